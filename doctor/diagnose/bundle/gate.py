"""The gate for secrets, for text of many lines: only lines that can hold part of a secret are searched for one.

The shapes of lines choose them, as in a diagnosis; what is a secret `doctor.engine.secrets` alone says.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from doctor.diagnose.excerpter.line_choice import MAX_LINE, ShapeIndex, split_block
from doctor.engine.secret_shapes import WORDS
from doctor.engine.secrets import hide_in_lines, hide_layered


@cache
def _index() -> ShapeIndex:
    return ShapeIndex([([word.encode()], word.encode()) for word in WORDS], encoded=True)  # type: ignore[no-untyped-call]


def gated(block: bytes) -> bytes:
    """The block, which ends with a line, without secrets: as `hide_secrets` leaves it, byte for byte."""
    text = hide_layered(block.decode("utf-8", "surrogateescape"))
    data = text.encode("utf-8", "surrogateescape")
    return hide_in_lines(text, _chosen(data)).encode("utf-8", "surrogateescape")


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
