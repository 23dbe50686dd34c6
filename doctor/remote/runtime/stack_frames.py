"""Whose a frame of a Python stack is, by the path of its file."""

import re

LIBRARIES = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python|/bin/[^/.]+$|^<(?!ipython-input|stdin)|\bray/_raylet\.pyx$"
)
HOOK_FILE = r"(?:[^\"\n]{0,300}/doctor-watch-[^/\"\n]{1,80}/(?:hook|data-hooks)|doctor-watch)/\w{1,40}\.py"
OWN_FRAME = re.compile(r'^([ \t]*)File "' + HOOK_FILE + r'"[^\n]*(?:\n\1[ \t]+(?!File ")[^\n]*)*\n?', re.M)


def is_of_program(path: str) -> bool:
    """Whether a frame's file belongs to the program, and to no installed library or command, nor to what doctor adds.

    >>> [is_of_program(path) for path in ("/job/bin/train.py", "/opt/env/bin/torchrun", "/usr/lib/python3/x.py")]
    [True, False, False]
    """
    return not LIBRARIES.search(path.replace("\\", "/")) and not is_own(path)


def is_own(path: str) -> bool:
    """Whether it is of the hook that `doctor watch` puts into a program."""
    return bool(re.match(HOOK_FILE + r"\Z", path))


def without_own_frames(stack: str) -> str:
    """A stack as Python or faulthandler writes it, without the frames of doctor's hook, and without their lines.

    >>> [without_own_frames('File "%s.py", line 1 in f' % name) for name in ("doctor-watch/groups", "/x/train")]
    ['', 'File "/x/train.py", line 1 in f']
    """
    return OWN_FRAME.sub("", stack)
