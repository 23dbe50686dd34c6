"""zlib streams of hosts and of programs that are not ours: a few bytes may stand for gigabytes."""

from __future__ import annotations

import zlib

from doctor.engine.texts import filled


class StreamTooLarge(ValueError):
    """It stands for more bytes than are read."""


def inflate(data: bytes, limit: int) -> bytes:
    """What a whole zlib stream stands for, at most ``limit`` bytes.

    Raises: StreamTooLarge; ValueError for what is no zlib stream, or only a part of one.

    >>> inflate(zlib.compress(b"x" * 9), 9)
    b'xxxxxxxxx'
    """
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, max(limit, 1))
    except zlib.error as error:
        raise ValueError(filled("no zlib stream: {0}", error)) from None
    if inflater.unconsumed_tail:
        raise StreamTooLarge(filled("larger than {0} bytes", limit))
    if not inflater.eof:
        raise ValueError("a part of a zlib stream")
    return content
