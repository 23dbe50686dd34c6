"""What a process looks for again and again: the loop that it sleeps in, and the values that its condition names."""

import os
import re
import stat

from doctor.remote.runtime.reading import link_at, open_at_once
from doctor.smoke.programs.agent.file_wait import is_elsewhere, mount_of
from doctor.watch.attach.inspector.connected import user_of

MAX_SOURCE = 1 << 20
MOST_LINES = 60  # of a loop, before the line that sleeps
MOST_VALUES = 4
MAX_CONDITION = 160
SLEEPS = re.compile(r"\b(?:sleep|wait|select|poll|join)\w*\(")
WAITS = re.compile(r"/(?:threading|selectors|subprocess)\.py$")
LOOP = re.compile(r"(while|for)\b(.*)")
CHOICE = re.compile(r"(?:if|elif) ")
DEFINES = re.compile(r"(?:async )?def |class ")
ENDS = re.compile(r"\b(?:break|return)\b")
ENDLESS = re.compile(r"(?:\(?(?:True|1)\)? *:)")
NAMES_FILE = re.compile(r"\b(?:l?exists|isfile|isdir|is_file|is_dir|listdir|scandir|i?glob|l?stat|getsize|open)\(")
NAMES_STORE = re.compile(r"\bstore\b|\.check\(")
SHOWABLE = re.compile(r"""['"](?!.*(?:\\|@|\?))([\w./:\[\]=, *+-]{1,200})['"]$|\d{1,7}$""")
SECRET = re.compile(r"(?i)pass|secret|token|cred|auth|api_?key|private")
OWN_HOST = re.compile(r"(?:[a-z]+://)?(?:localhost|127(?:\.\d+){3}|\[?::1\]?)(?::|/|$)")


def indent_of(line):
    """The column at which a line begins."""
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def condition_of(lines, number):
    """The condition of the loop that line ``number``, from 1, sleeps in; empty where it sleeps in none.

    That of ``while``, or, where that is always true, of the ``if`` around the line, of one that ends the loop, or what
    is tried.

    >>> condition_of(["while True:", "    if done(path): break", "    time.sleep(1)"], 3)
    'if done(path)'
    """
    depth, condition = indent_of(lines[number - 1]), ""
    for place in range(number - 1, max(-1, number - 1 - MOST_LINES), -1):
        text, column = lines[place].strip(), indent_of(lines[place])
        if not text or text.startswith("#") or column > depth:
            continue
        loop, is_around = LOOP.match(text), column < depth
        depth = column
        if loop and (column < indent_of(lines[number - 1]) or place == number - 1):
            is_condition = loop.group(1) == "while" and not ENDLESS.match(loop.group(2).strip())
            return (text.partition(":")[0] if is_condition else condition)[:MAX_CONDITION]
        if DEFINES.match(text):
            return ""
        if condition or place == number - 1:
            continue
        if CHOICE.match(text) and (is_around or ENDS.search("".join(lines[place : place + 2]))):
            condition = text.partition(":")[0]
        elif text == "try:":
            condition = lines[place + 1].strip()
    return ""


def source_lines(pid, path):
    """The lines of a program's file; none where its user may not read it, or another host serves it."""
    mount = mount_of(pid, path) if path.startswith("/") else None
    if mount is None or is_elsewhere(*mount):
        return []  # who touches a mount that hangs hangs with it
    try:
        with open("/proc/%d/root%s" % (pid, path), "rb", 0, opener=open_at_once) as file:
            status = os.fstat(file.fileno())
            may_read = status.st_uid == user_of(pid) or status.st_mode & stat.S_IROTH
            data = file.read(MAX_SOURCE) if may_read and stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return []
    return data.decode("utf-8", "replace").split("\n")


def polled(pid, frames, is_local):
    """[condition, values, whether only this host brings what is looked for] of a process that sleeps in a loop; None.

    ``frames``: of py-spy, with local variables, the innermost first. ``is_local``: all ranks run on this host.
    """
    frames = [frame for frame in frames if not WAITS.search(str(frame["filename"]))]
    lines, number = (source_lines(pid, str(frames[0]["filename"])), frames[0]["line"]) if frames else ([], 0)
    sleeps = 0 < number <= len(lines) and SLEEPS.search(lines[number - 1])
    condition = condition_of(lines, number) if sleeps else ""
    return [condition, *values_of(pid, condition, frames[0]["locals"], is_local)] if condition else None


def values_of(pid, condition, variables, is_local):
    """The values of the variables that a condition names, as ``path = '/x'``, and whether only this host changes them.

    Plain words and numbers alone, and none whose name sounds like that of a secret.
    """
    names = set(re.findall(r"\w+", condition))
    values = [(str(entry["name"]), str(entry["repr"])) for entry in variables if entry["name"] in names]
    values = [(name, text) for name, text in values if SHOWABLE.match(text) and not SECRET.search(name)][:MOST_VALUES]
    texts = [text.strip("'\"") for _, text in values] + re.findall(r"""["']([\w./:-]{1,200})["']""", condition)
    is_here = bool(texts) and is_local and bool(NAMES_STORE.search(condition))
    if NAMES_FILE.search(condition):
        folder = link_at("/proc/%d/cwd" % pid)
        mounts = [mount_of(pid, os.path.join(folder, text)) for text in texts if not text.isdigit()]
        is_here = bool(mounts) and not any(mount is None or is_elsewhere(*mount) for mount in mounts)
    is_here = is_here or any(OWN_HOST.match(text) for text in texts)
    return [["%s = %s" % row for row in values], is_here]
