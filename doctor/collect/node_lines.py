"""A record on stdout, in lines short enough that a launcher does not cut them.

srun cuts a line at 1024 bytes and mixes the pieces of all tasks, so a record is packed, and each of its lines says
whose it is and which of how many. mpirun cuts anywhere: what it has torn is found to be so.
"""

from __future__ import annotations

import base64
import re
import secrets
import zlib
from collections.abc import Iterator

import msgspec

from doctor.engine.decoding import inflate
from doctor.engine.texts import filled

LINE_BYTES = 512
"""Bytes of a line, all alike, so that what fills a pipe ends with a line."""
MAX_LINES = 200_000
"""Of one record."""
_LINE = re.compile(rb"doctor-node ([\w.:-]{1,253}) ([0-9a-f]{8}) (\d{1,6})/(\d{1,6}) ([A-Za-z0-9+/]+=*) *\.\r?\n?\Z")


def encode_lines(name: str, data: bytes) -> list[bytes]:
    """The lines of one host's record."""
    packed = base64.b64encode(zlib.compress(data, 9))
    key = f"doctor-node {name} {secrets.token_hex(4)} "
    room = LINE_BYTES - len(key) - len("000000/000000 .\n")
    pieces = [packed[start : start + room] for start in range(0, len(packed), room)]
    heads = (f"{key}{number:06}/{len(pieces):06} ".encode() for number in range(1, len(pieces) + 1))
    return [(head + piece).ljust(LINE_BYTES - 2) + b".\n" for head, piece in zip(heads, pieces, strict=True)]


class LinePart(msgspec.Struct, frozen=True):
    """One line of a record."""

    name: str
    key: str
    number: int
    count: int
    piece: bytes


def parse_part(line: bytes) -> LinePart | None:
    """The part that a line holds, behind any label that a launcher put before it; None when it holds none."""
    match = _LINE.search(line) if len(line) < 2 * LINE_BYTES else None
    if not match:
        return None
    name, key, number, count = (match[place].decode() for place in (1, 2, 3, 4))
    if not 1 <= int(number) <= int(count) <= MAX_LINES:
        return None
    return LinePart(name, key, int(number), int(count), match[5])


class TornRecord(Exception):
    """Lines that do not make a record."""


class Assembly:
    """The parts that have come, of many hosts in any order."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str, int], dict[int, bytes]] = {}

    def add(self, part: LinePart, limit: int) -> bytes | None:
        """The record of at most ``limit`` bytes, if this was its last part. Raises: Torn."""
        record_key = part.name, part.key, part.count
        parts = self._parts.setdefault(record_key, {})
        parts[part.number] = part.piece
        if len(parts) < part.count:
            return None
        del self._parts[record_key]
        try:
            packed = base64.b64decode(b"".join(parts[number] for number in sorted(parts)), validate=True)
            return inflate(packed, limit)
        except ValueError:
            raise TornRecord(
                "its lines do not form a record: the launcher probably mixed them with lines of other hosts"
            ) from None

    def incomplete(self) -> Iterator[tuple[str, str]]:
        for (name, _, count), parts in self._parts.items():
            yield (
                name,
                filled(
                    "{0} of {1} lines of its record arrived: the launcher cut them? --out DIR avoids this",
                    len(parts),
                    count,
                ),
            )
