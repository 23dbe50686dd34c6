"""What passes between us and the carriers on the hosts (`doctor.transport.launcher.remote_carrier`), either way. Pure.

To the hosts go lines that all of them see: what several are sent alike is sent once. From each host come frames, cut
and joined as the launcher likes.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_HEAD = struct.Struct(">IcBI")
_BASES = 4
_WORTH = 1024
"""Bytes from which on it pays to look for what was sent before."""
_LONGEST = 1 << 18
"""Characters of a frame: the carrier reads 48 KiB at a time."""
_PIECE = 1 << 18
"""Bytes that a frame may grow to when it is unpacked."""


class Frame(NamedTuple):
    """``kind``: h(ello), b(eat), o(ut), e(rr), z: both at their end, x: exit status, t(aken in), f(ailed to start)."""

    kind: str
    number: int
    """Of the command it is about."""
    data: bytes


class Broken(Exception):
    """Frames were lost or damaged; the text says so in plain words."""


class Frames:
    """Reads one host's frames; what is between them is noise, and skipped."""

    def __init__(self) -> None:
        self._open: bytearray | None = None
        self._next = 0

    def read(self, piece: bytes) -> Iterator[Frame]:
        """The frames that are complete now. Raises: Broken."""
        head, *parts = piece.replace(b"\n", b"").replace(b"\r", b"").split(b"(")
        yield from self._more(head)
        for part in parts:
            self._open = bytearray()
            yield from self._more(part)

    def _more(self, part: bytes) -> Iterator[Frame]:
        if self._open is None:
            return
        head, closed, _ = part.partition(b")")
        self._open += head
        if len(self._open) > _LONGEST:
            self._open = None
        elif closed:
            text, self._open = bytes(self._open), None
            frame = self._frame(text)
            if frame:
                yield frame

    def _frame(self, text: bytes) -> Frame | None:
        """None: it is noise that looks like one."""
        packed, _, check = text.partition(b".")
        try:
            body = base64.b64decode(packed, validate=True)
            count, kind, flags, number = _HEAD.unpack_from(body)
            if int(check, 16) != binascii.crc32(body):
                return None
            data = _inflate(body[_HEAD.size :]) if flags else body[_HEAD.size :]
        except (ValueError, struct.error, zlib.error):
            return None
        if count != self._next:
            raise Broken("the launcher lost a part of what it said")
        self._next += 1
        return Frame(kind.decode("latin-1"), number, data)


def _inflate(data: bytes) -> bytes:
    whole = zlib.decompressobj()
    found = whole.decompress(data, _PIECE)
    if whole.unconsumed_tail:
        raise ValueError("more than a carrier reads at a time")
    return found


class Orders:
    """Makes the lines that carriers read; ``task`` is a host's number with its launcher."""

    def __init__(self) -> None:
        self._bases: dict[int, bytes] = {}
        self._made = 0

    def order(self, task: int | str, *words: Any) -> bytes:
        return f"{task} {json.dumps(words)}\n".encode("ascii")

    def data(self, task: int, number: int, data: bytes) -> bytes:
        """What tells a command's stdin ``data``, by what all carriers know already where that is shorter."""
        if len(data) < _WORTH:
            return self.order(task, "data", number, _packed(data))
        found = min((_likeness(data, base, model) for base, model in self._bases.items()), default=None)
        if found is None or found[0] > len(data) // 2:
            self._made += 1
            self._bases[self._made] = data
            self._bases.pop(self._made - _BASES, None)
            known = self.order("*", "base", self._made, _packed(data))
            return known + self.order(task, "like", number, self._made, len(data), 0, _packed(b""))
        _, base, prefix, suffix = found
        middle = _packed(data[prefix : len(data) - suffix])
        return self.order(task, "like", number, base, prefix, suffix, middle)


def _packed(data: bytes) -> str:
    small = zlib.compress(data) if len(data) > 100 else data
    packed, mark = (small, "z") if len(small) < len(data) else (data, "r")
    return mark + base64.b64encode(packed).decode("ascii")


def _likeness(data: bytes, base: int, model: bytes) -> tuple[int, int, int, int]:
    """Bytes that differ, the base, and the lengths of the beginning and the end that do not."""
    most = min(len(data), len(model))
    prefix = _longest(most, lambda count: data[:count] == model[:count])
    suffix = _longest(most - prefix, lambda count: data[len(data) - count :] == model[len(model) - count :])
    return len(data) - prefix - suffix, base, prefix, suffix


def _longest(most: int, alike: Callable[[int], bool]) -> int:
    """The largest count that is still alike: by halves, for comparing bytes one by one takes its time."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if alike(middle) else (least, middle - 1)
    return least
