"""What programs on hosts have filled, as `doctor.remote.runtime.host_texts` sends it: untrusted, and bounded."""

from __future__ import annotations

import msgspec

from doctor.engine.texts import MAX_ANSWER_ROWS, TextTable, read_table
from doctor.remote.runtime.host_texts import with_texts


class _Event(msgspec.Struct, frozen=True):
    texts: TextTable = {}


class _Message(_Event, frozen=True):
    event: _Event = _Event()
    """Of a rank, which its host's agent passes on."""


_DECODER = msgspec.json.Decoder(_Message)


def take_texts(data: bytes) -> None:
    """Makes the texts known that came with a message of a program; a message that is none of ours has none."""
    if b'"texts"' not in data:
        return
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    for table in (message.texts, message.event.texts):
        read_table(table, MAX_ANSWER_ROWS)


def filled_here(text: str) -> str:
    """``text``, which a module of such a program has filled in this process."""
    read_table(with_texts({}).get("texts", {}))
    return text
