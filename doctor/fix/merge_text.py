"""Three versions of a file: before a fix, as the fix left it, and now. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.fix.file_edits import MAX_DIFF_LINE_CHARS, file_diff

MAX_VALUE_LINES = 20
"""Lines of a command's output that are value_lines."""


def take_back(before: bytes | None, applied: bytes | None, now: bytes | None) -> bytes | None:
    r"""``now`` without what leads from ``before`` to ``applied``; all other lines stay.

    Raises: ValueError where both changed the same lines, or one of them removed the file.

    >>> take_back(b"a\n", b"a\nours\n", b"a\nours\ntheirs\n")
    b'a\ntheirs\n'
    """
    if applied is None or now is None:
        raise ValueError("the file was removed")
    base = _lines(applied)
    ours, theirs = _changes(base, _lines(before or b"")), _changes(base, _lines(now))
    merged: list[bytes] = []
    at = 0
    for low, high, lines in _ordered(ours, theirs):
        merged += [*base[at:low], *lines]
        at = high
    result = b"".join([*merged, *base[at:]])
    return None if before is None and not result else result


_Change = tuple[int, int, Sequence[bytes]]
"""Lines of the base, from the first to the one behind the last, and what stands in their place."""


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _changes(base: Sequence[bytes], other: Sequence[bytes]) -> list[_Change]:
    codes = difflib.SequenceMatcher(None, base, other, autojunk=False).get_opcodes()
    return [(low, high, other[start:end]) for tag, low, high, start, end in codes if tag != "equal"]


def _ordered(ours: Sequence[_Change], theirs: Sequence[_Change]) -> Iterator[_Change]:
    """All changes by their place. Raises: ValueError where two of them meet and are not the same."""
    last: tuple[bool, _Change] | None = None
    for is_ours, change in sorted(
        [*((True, change) for change in ours), *((False, change) for change in theirs)], key=lambda pair: pair[1][:2]
    ):
        if last is not None and last[0] != is_ours:
            (low, high, lines), (start, end, others) = last[1], change
            if (low, high, list(lines)) == (start, end, list(others)):
                continue
            # A line that was added where ours ends is no conflict: it stands behind what is taken out.
            if start < high or (start == low and end == high):
                raise ValueError("both changed the same lines")
        last = (is_ours, change)
        yield change


def file_versions(path: str, before: bytes | None, applied: bytes | None, now: bytes | None) -> list[str]:
    """What the fix changed, and what has changed since, each as a diff."""
    return [
        "changed by the fix:",
        *(f"  {line}" for line in file_diff(path, before, applied)),
        "changed since:",
        *(f"  {line}" for line in file_diff(path, applied, now)),
    ]


def value_versions(before: str, applied: str | None, now: str) -> list[str]:
    """The same for a setting, which is value_lines whole."""
    lines: list[str] = []
    for title, value in (("before the fix:", before), ("as the fix left it:", applied), ("now:", now)):
        value_lines = ["not known, the fix was interrupted"] if value is None else value.splitlines() or ["(nothing)"]
        lines += [title, *(f"  {printable(line, MAX_DIFF_LINE_CHARS)}" for line in value_lines[:MAX_VALUE_LINES])]
        if len(value_lines) > MAX_VALUE_LINES:
            lines.append(filled("  ({0} more lines)", len(value_lines) - MAX_VALUE_LINES))
    return lines
