"""The gate for secrets, for text of many lines: only lines that can hold part of a secret are searched for one.

The shapes of lines choose them, as in a diagnosis; what is a secret `doctor.engine.secrets` alone says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from doctor.diagnose.excerpter.line_choice import MAX_LINE, ShapeIndex, split_block
from doctor.engine.secrets import WHOLE, WORDS, hide_secrets, hide_tokens

_BEHIND = 3
"""Lines that are not empty behind one that is searched: a header or a login may go on in them."""
_ENCODED_LINE = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}\r?")
"""A whole line of base64: nothing is assigned in it, and it holds no words; a token may stand there."""
_LONG_RUN = re.compile(r"([A-Za-z0-9+/]{128})([A-Za-z0-9+/]{768,})([A-Za-z0-9+/]{128})")
"""Of base64. What the middle of it assigns, or names, begins or ends in one of its ends."""
_CUT = re.compile("\ue000(\\d+)aA\ue001")


@cache
def _index() -> ShapeIndex:
    return ShapeIndex([([word.encode()], word.encode()) for word in WORDS], encoded=True)  # type: ignore[no-untyped-call]


def gated(block: bytes) -> bytes:
    """The block, which ends with a line, without secrets: as `hide_secrets` leaves it, byte for byte."""
    if any(mark in block for mark in WHOLE):
        return _hidden(block)
    lines = block.split(b"\n")
    pieces: list[bytes] = []
    end = 0
    for first, last in _runs(block, lines):
        pieces += lines[end:first]
        pieces.append(_hidden(b"\n".join(lines[first:last])))
        end = last
    return b"\n".join([*pieces, *lines[end:]])


def _hidden(data: bytes) -> bytes:
    if _ENCODED_LINE.fullmatch(data):
        return hide_tokens(data.decode()).encode()
    text = data.decode("utf-8", "surrogateescape")
    return (_hidden_around_runs(text) if len(text) > MAX_LINE else hide_secrets(text)).encode(
        "utf-8", "surrogateescape"
    )


def _hidden_around_runs(text: str) -> str:
    """Most of the time goes into long runs of base64: their middles are searched for tokens alone."""
    middles: list[str] = []

    def cut(match: re.Match[str]) -> str:
        middles.append(match[2])
        return f"{match[1]}\ue000{len(middles) - 1}aA\ue001{match[3]}"

    shown = hide_secrets(_LONG_RUN.sub(cut, hide_tokens(text)))
    return _CUT.sub(lambda match: middles[int(match[1])] if int(match[1]) < len(middles) else match[0], shown)


def _runs(block: bytes, lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """From where to where lines are searched together, in order."""
    first = last = -1
    for number in _chosen(block):
        if number >= last:
            if last > 0:
                yield first, last
            first = number
        last = number + 1 if _ENCODED_LINE.fullmatch(lines[number]) else _with_behind(lines, number)
    if last > 0:
        yield first, last


def _with_behind(lines: list[bytes], number: int) -> int:
    """Behind the lines that belong to this one."""
    lines_left, end = _BEHIND, number + 1
    while end < len(lines) and lines_left:
        lines_left -= bool(lines[end].strip())
        end += 1
    return end


def _chosen(block: bytes) -> Iterator[int]:
    """The numbers of the lines that hold one of the words."""
    lower = block.lower() + b"\n"
    lines, shapes = split_block(lower)  # type: ignore[no-untyped-call]
    numbers = _index().numbered(lower)  # type: ignore[no-untyped-call]
    hot = _index().hot_shapes([shape for shape in shapes if len(shape) <= MAX_LINE])  # type: ignore[no-untyped-call]
    for number, (line, shape) in enumerate(zip(lines, shapes, strict=True)):
        triggers = (*hot.get(shape, ()), *numbers.get(number, ()))
        if len(shape) > MAX_LINE or (triggers and any(word in line for word in triggers)):
            yield number
