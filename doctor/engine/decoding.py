"""Decoding of what hosts and other programs send: zlib streams up to a limit, and types made ready for msgspec."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from doctor.engine.texts import filled


def prepare_decoding(*types: Any) -> None:
    """Builds what msgspec needs to decode ``types``, in the thread that imports the caller's module.

    msgspec builds it when a type is first decoded, without a lock: two threads that are first at once can crash the
    interpreter (SIGSEGV). Every module whose types are decoded in threads calls this at its end, as in

    >>> prepare_decoding(dict[str, int])
    """
    for kind in types:
        msgspec.json.Decoder(kind)


class StreamTooLarge(ValueError):
    """It stands for more bytes than are read."""


def inflate(data: bytes, limit: int) -> bytes:
    """What a whole zlib stream stands for, at most ``limit`` bytes: a few bytes may stand for gigabytes.

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
