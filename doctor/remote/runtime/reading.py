"""What questions and the collector find on a host, without the modules of the standard library that take long to load.

``glob``, ``shutil`` and ``subprocess`` import ``re``, ``enum`` and more: each takes longer than all else on most hosts.
"""

import os
import time


def matching_paths(pattern):
    """The paths that a pattern with ``*`` and ``[0-9]`` matches, in order; as `glob.glob` finds them."""
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
            except OSError:
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
    """Up to so many bytes of a file as text; the empty string where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def find_tool(name, path):
    """The program that a shell would run for a name with this PATH, as `shutil.which` finds it; else None."""
    folders = [""] if "/" in name else [folder for folder in path.split(":") if folder]
    for folder in folders:
        program = os.path.join(folder, name)
        if os.access(program, os.X_OK) and not os.path.isdir(program):
            return program
    return None


class EffectiveTime:
    """How long a thread takes from now on, without its waiting for a CPU: one that is late may be innocent.

    `folder`: /proc/PID/task/TID, as proc(5) has it. Where the kernel does not count waits (no ``schedstat``: see
    ``Documentation/scheduler/sched-stats.rst`` of Linux), and of a thread that has ended, all time counts.
    """

    def __init__(self, folder):
        self.folder = folder
        self.began = self.moved = time.monotonic()
        self.first = self.last = self.times()

    def times(self):
        """Nanoseconds that it ran, and that it waited; zeros where they are not known."""
        fields = read_text(self.folder + "/schedstat", 200).split()
        return tuple(map(int, fields[:2])) if len(fields) > 1 else (0, 0)

    def seconds(self):
        """A wait is counted by the kernel when it ends: one that goes on is a thread that could run and does not."""
        now, times = time.monotonic(), self.times()
        state = read_text(self.folder + "/stat", 4096).rpartition(")")[2].split()[:1]
        if times != self.last or state != ["R"] or not any(times):
            self.last, self.moved = times, now
        return self.moved - self.began - max(0, times[1] - self.first[1]) / 1e9
