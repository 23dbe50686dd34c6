"""What passes between us and the carriers on the hosts (`doctor.transport.launcher.carrier`), either way. Pure.

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

from doctor.engine.decoding import inflate

_HEADER = struct.Struct(">IcBI")
_MAX_BASES = 4
_MIN_DELTA_BYTES = 1024
"""Bytes from which a search for what was sent before saves more than it costs."""
_MAX_FRAME_CHARS = 1 << 18
"""Characters of a frame: the carrier reads 48 KiB at a time."""
_MAX_FRAME_BYTES = 1 << 18
"""Bytes that a frame may grow to when it is unpacked."""


class Frame(NamedTuple):
    """``kind``: h(ello), b(eat), o(ut), e(rr), z: both at their end, x: exit status, t(aken in), f(ailed to start)."""

    kind: str
    number: int
    """Of the command it is about."""
    data: bytes


class FrameError(Exception):
    """Frames were lost or damaged; the text says so in plain words."""


class FrameReader:
    """Reads one host's frames; what is between them is noise, and skipped."""

    def __init__(self) -> None:
        self._partial: bytearray | None = None
        self._next_count = 0

    def read(self, piece: bytes) -> Iterator[Frame]:
        """The frames that are complete now. Raises: Broken."""
        head, *parts = piece.replace(b"\n", b"").replace(b"\r", b"").split(b"(")
        yield from self._feed(head)
        for part in parts:
            self._partial = bytearray()
            yield from self._feed(part)

    def _feed(self, part: bytes) -> Iterator[Frame]:
        if self._partial is None:
            return
        head, closed, _ = part.partition(b")")
        self._partial += head
        if len(self._partial) > _MAX_FRAME_CHARS:
            self._partial = None
        elif closed:
            text, self._partial = bytes(self._partial), None
            frame = self._decode(text)
            if frame:
                yield frame

    def _decode(self, text: bytes) -> Frame | None:
        """None: it is noise that looks like one."""
        packed, _, check = text.partition(b".")
        try:
            body = base64.b64decode(packed, validate=True)
            count, kind, flags, number = _HEADER.unpack_from(body)
            if int(check, 16) != binascii.crc32(body):
                return None
            data = inflate(body[_HEADER.size :], _MAX_FRAME_BYTES) if flags else body[_HEADER.size :]
        except (ValueError, struct.error):
            return None
        if count != self._next_count:
            raise FrameError("the launcher lost a part of the host's output")
        self._next_count += 1
        return Frame(kind.decode("latin-1"), number, data)


class RequestEncoder:
    """Makes the lines that carriers read; ``task`` is a host's number with its launcher."""

    def __init__(self) -> None:
        self._bases: dict[int, bytes] = {}
        self._base_count = 0

    def encode(self, task: int | str, *fields: Any) -> bytes:
        return f"{task} {json.dumps(fields)}\n".encode("ascii")

    def encode_data(self, task: int | str, number: int, data: bytes) -> bytes:
        """What tells a command's stdin ``encode_data``, by what all carriers know already where that is shorter."""
        if len(data) < _MIN_DELTA_BYTES:
            return self.encode(task, "data", number, _pack(data))
        closest = min((_common_ends(data, base, model) for base, model in self._bases.items()), default=None)
        if closest is None or closest[0] > len(data) // 2:
            self._base_count += 1
            self._bases[self._base_count] = data
            self._bases.pop(self._base_count - _MAX_BASES, None)
            base_line = self.encode("*", "base", self._base_count, _pack(data))
            return base_line + self.encode(task, "like", number, self._base_count, len(data), 0, _pack(b""))
        _, base, prefix, suffix = closest
        middle = _pack(data[prefix : len(data) - suffix])
        return self.encode(task, "like", number, base, prefix, suffix, middle)


def _pack(data: bytes) -> str:
    small = zlib.compress(data) if len(data) > 100 else data
    packed, mark = (small, "z") if len(small) < len(data) else (data, "r")
    return mark + base64.b64encode(packed).decode("ascii")


def _common_ends(data: bytes, base: int, model: bytes) -> tuple[int, int, int, int]:
    """Bytes that differ, the base, and the lengths of the beginning and the end that do not."""
    most = min(len(data), len(model))
    prefix = _largest_count(most, lambda count: data[:count] == model[:count])
    suffix = _largest_count(most - prefix, lambda count: data[len(data) - count :] == model[len(model) - count :])
    return len(data) - prefix - suffix, base, prefix, suffix


def _largest_count(most: int, alike: Callable[[int], bool]) -> int:
    """The largest count that is still alike: by halves, for comparing bytes one by one takes its time."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if alike(middle) else (least, middle - 1)
    return least
