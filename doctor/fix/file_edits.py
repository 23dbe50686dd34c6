"""The edit of a file by a step: new content from old content. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

import msgspec

from doctor.engine.sanitize import printable
from doctor.remedy.playbook import PlaybookStep

MAX_DIFF_LINE_CHARS = 200
"""Characters of one line of a diff."""


class FileState(msgspec.Struct, frozen=True):
    """What is at a path, as `remote.peek` saw it."""

    real: str
    """Where the path leads, with links followed."""
    kind: str = "absent"
    """``file``, ``absent``, or ``other``: what no step may touch."""
    trouble: str = ""
    """Why it cannot be written."""
    missing: list[str] = []
    """Folders that have to be made for it."""
    data: bytes = b""
    sha: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    link: str = ""
    """Where the path itself leads, if it is a symbolic link."""
    xattrs: dict[str, bytes] = {}

    @property
    def content(self) -> bytes | None:
        return self.data if self.kind == "file" else None


def edited_content(old: bytes | None, step: PlaybookStep, filtered: bytes | None = None) -> bytes | None:
    """The complete file after a step; None if it does not exist before or after.

    ``filtered`` is what the step's own filter printed; a file that only other steps change stays as it is.
    """
    if step.keep:
        return old
    if step.filter:
        return filtered
    if step.text is not None:
        text = step.text
        return (text if text.endswith("\n") or not text else text + "\n").encode()
    if old is None and step.remove:
        return None
    # What is no UTF-8 comes out as it went in.
    lines = re.findall(r"[^\n]*\n|[^\n]+", (old or b"").decode("utf-8", "surrogateescape"))
    after = _without_lines(lines, step.remove) if step.remove else _with_line(lines, step.line, step.replaces)
    return "".join(after).encode("utf-8", "surrogateescape")


def _without_lines(lines: list[str], pattern: str) -> Iterator[str]:
    return (line for line in lines if not re.search(pattern, line.rstrip("\r\n"), re.ASCII))


def _with_line(lines: list[str], new_line: str, pattern: str) -> Iterator[str]:
    """The line once: in the place of the first that it replaces, else where it is, else at the end."""
    bare = [line.rstrip("\r\n") for line in lines]
    hits = [at for at, line in enumerate(bare) if line == new_line or (pattern and re.search(pattern, line, re.ASCII))]
    if not hits:
        yield from lines
        if lines and not lines[-1].endswith("\n"):
            yield "\n"
        yield new_line + "\n"
        return
    for at, line in enumerate(lines):
        if at == hits[0]:
            yield new_line + (line[len(bare[at]) :] or "\n") if bare[at] != new_line else line
        elif at not in hits:
            yield line


NOT_THERE = " (not there)"
"""Behind the path in the header of a difference: the file does not exist before, or after."""


def file_diff(path: str, old: bytes | None, new: bytes | None) -> list[str]:
    """A unified diff with three lines of context, fit to show; nothing where nothing changes."""
    if old == new:
        return []
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (old, new))
    name, end = [
        f"{printable(path, MAX_DIFF_LINE_CHARS)}{'' if data is not None else NOT_THERE}" for data in (old, new)
    ]
    lines = difflib.unified_diff(before, after, name, end, lineterm="", n=3)
    return [printable(line, MAX_DIFF_LINE_CHARS) for line in lines]
