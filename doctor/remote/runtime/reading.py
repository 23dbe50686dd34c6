"""What questions and the collector find on a host, without the modules of the standard library that take long to load.

``glob``, ``shutil`` and ``subprocess`` import ``re``, ``enum`` and more: each takes longer than all else on most hosts.
"""

import os
import sys
import time

SYS_FOLDER = "/sys/"
OWN_NETWORK_MARKS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")
"""Files of containers that mostly have a network of their own, which SSH to this machine does not lead into."""
ENGINE_MARKS = (*OWN_NETWORK_MARKS, "/.singularity.d")
"""Files that container engines make in their containers; an image may leave one on a machine."""


def require_sys(path):
    """Raises OSError for a path of /sys where /sys is not mounted, or is hidden: its devices are unknown, not absent.

    Of the folders of /sys only root may look into those that a hardened host closes.
    """
    if path.startswith(SYS_FOLDER) and not os.listdir(SYS_FOLDER):
        raise OSError("/sys is empty: it is not mounted")


def matching_paths(pattern):
    """The paths that a pattern with ``*`` and ``[0-9]`` matches, in order; as `glob.glob` finds them.

    Raises: OSError where it asks for what /sys has, and that cannot be read.
    """
    require_sys(pattern)
    paths = ["/" if pattern.startswith("/") else ""]
    parts = [part for part in pattern.split("/") if part]
    for part in parts:
        if "*" not in part and "[" not in part:
            paths = [path + part + "/" for path in paths]
            continue
        next_paths = []
        for path in paths:
            try:
                names = os.listdir(path or ".")
            except OSError as error:
                if isinstance(error, PermissionError) and pattern.startswith(SYS_FOLDER):
                    raise
                continue
            next_paths += [path + name + "/" for name in names if matches(name, part)]
        paths = next_paths
    return sorted(path[:-1] for path in paths if os.path.lexists(path[:-1]))


def matches(name, pattern):
    """Whether a name fits a pattern with ``*`` and ``[0-9]``; a hidden one fits none that begins with either."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    first, *rest = pattern.replace("[0-9]", "\n").split("*")
    if not fits(name[: len(first)], first):
        return False
    if not rest:
        return len(name) == len(first)
    place = len(first)
    for text in rest[:-1]:
        while place <= len(name) and not fits(name[place : place + len(text)], text):
            place += 1
        place += len(text)
    return place + len(rest[-1]) <= len(name) and fits(name[len(name) - len(rest[-1]) :], rest[-1])


def fits(name, text):
    """Whether a name is this text, in which a newline stands for any digit."""
    if len(name) != len(text):
        return False
    return all(
        character in "0123456789" if text[place] == "\n" else character == text[place]
        for place, character in enumerate(name)
    )


def read_text(path, limit=65536):
    """Up to so many bytes of a file as text; the empty string where it cannot be read. It waits for no writer."""
    pieces = []
    try:
        with open(path, "rb", 0, opener=open_at_once) as file:
            while limit > 0:
                piece = file.read(min(limit, 65536))  # the tables of /proc come in pieces of a page
                if not piece:
                    break
                pieces.append(piece)
                limit -= len(piece)
    except OSError:
        return ""
    return b"".join(pieces).decode("utf-8", "replace")


def table_rows(path, limit=8 << 20):
    """The fields of each socket in a table such as /proc/net/tcp; None where the kernel has no such table."""
    text = read_text(path, limit)
    return [fields for fields in map(str.split, text.splitlines()[1:]) if len(fields) > 9] if text else None


def table_address(word):
    """The bytes of the IP address, and the port, of a word in such a table."""
    digits, port = word.split(":")
    parts = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return b"".join(part.to_bytes(4, sys.byteorder) for part in parts), int(port, 16)


def names_in(folder, most=None):
    """The names in a folder, so many at most; none where it cannot be read."""
    try:
        return os.listdir(folder)[:most]
    except OSError:
        return []


def link_at(path):
    """Where a symbolic link leads; the empty string where it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def open_at_once(path, flags):
    """Also of a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def find_tool(name, path):
    """The program that a shell would run for a name with this PATH, as `shutil.which` finds it; else None."""
    folders = [""] if "/" in name else [folder for folder in path.split(":") if folder]
    for folder in folders:
        program = os.path.join(folder, name)
        if os.access(program, os.X_OK) and not os.path.isdir(program):
            return program
    return None


def interpreter_of(path):
    """The interpreter that a script's first line names; empty where it names none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            command = file.readline(256).strip(b"\n").split(b" ") if file.read(2) == b"#!" else []
    except OSError:
        return ""
    return os.fsdecode(next(filter(None, command), b""))


def find_interpreter(name, path=None, launcher=""):
    """The words that start the job's interpreter: a file, or a command line; without a name the interpreter of the
    launcher's script, else python3, else python.

    ``path``: in place of PATH. None where nothing is found for the first of them.
    """
    path = (os.environ.get("PATH", "") if path is None else path) + ":/usr/local/bin:/usr/bin"
    script = find_tool(launcher, path) if launcher and not name else None
    for named in (script or "", interpreter_of(script) if script else ""):
        if os.path.basename(named).startswith("python") and os.access(named, os.X_OK):
            return [named]
    command = [name]
    if " " in name and not find_tool(name, path):
        import shlex

        try:
            command = shlex.split(name)
        except ValueError:
            return None
    for first in command[:1] if name else ("python3", "python"):
        program = find_tool(first, path)
        if program:
            return [program] + command[1:]
    return None


def thread_schedule(folder):
    """(nanoseconds that a thread ran, that it waited for a CPU, turns) so far; None where the kernel counts none.

    `folder`: /proc/PID/task/TID or /proc/thread-self. The kernel adds a wait when it ends. Source: Linux,
    ``Documentation/scheduler/sched-stats.rst``, "/proc/<pid>/schedstat".
    """
    fields = read_text(folder + "/schedstat", 200).split()
    return tuple(map(int, fields[:3])) if len(fields) > 2 else None


def schedule(folder):
    """Nanoseconds that a thread ran, and that it waited for a CPU; zeros where they are not known.

    `folder`: as of `thread_schedule`.
    """
    return (thread_schedule(folder) or (0, 0))[:2]


def effective_time(folder):
    """A function: the seconds that a thread takes from now on, without its waiting for a CPU. Late is not guilty.

    `folder`: /proc/PID/task/TID. The kernel counts a wait when it ends: one that goes on is seen by a thread that could
    run and does not. Where nothing is counted, and of a thread that has ended, all time is taken.
    """
    began = time.monotonic()
    first = schedule(folder)
    last = [first, began]

    def seconds():
        now, times = time.monotonic(), schedule(folder)
        state = read_text(folder + "/stat", 4096).rpartition(")")[2].split()[:1]
        if times != last[0] or state != ["R"] or not any(times):
            last[:] = [times, now]
        return last[1] - began - max(0, times[1] - first[1]) / 1e9

    return seconds
