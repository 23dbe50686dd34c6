"""A run as it is written to disk: without secrets, and with the table of its texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from doctor.engine.record import HOSTS_BEGIN, HostRecord, Run
from doctor.engine.secrets import HIDDEN, hide_in_output, is_secret_name
from doctor.engine.texts import origin, restated, table_of, texts_within


def run_lines(run: Run) -> Iterator[bytes]:
    """The run as JSON, redacted, with each host on a line of its own: `doctor.engine.record.load_run_file` reads them
    one by one.
    """
    clean_rest = _redact_value(msgspec.to_builtins(msgspec.structs.replace(run, hosts={})))
    rest = msgspec.convert(clean_rest, Run)
    yield msgspec.json.encode(rest).partition(NO_HOSTS)[0] + HOSTS_BEGIN
    filled_texts, end = set[str](), b""
    for host, record in run.hosts.items():
        clean = _redact_value(msgspec.to_builtins({host: record}))
        filled_texts.update(text for text in _texts_of(clean) if origin(text))
        yield end + msgspec.json.encode(msgspec.convert(clean, dict[str, HostRecord]))[1:-1]
        end = b",\n"
    rest = msgspec.structs.replace(rest, texts=table_of((*filled_texts, *_texts_of(clean_rest))))
    yield (end and b"\n") + b"}" + msgspec.json.encode(rest).partition(NO_HOSTS)[2] + b"\n"


NO_HOSTS = b'"hosts":{}'
"""In the JSON of a run without hosts: before it stand only texts, in which a quotation mark is escaped."""


def redact_run(run: Run) -> Run:
    """The run with every output, message and table redacted, and its table of texts, for writing to disk."""
    clean = _redact_value(msgspec.to_builtins(run))
    return msgspec.convert({**clean, "texts": table_of(_texts_of(clean))}, Run)


def _texts_of(clean: Any) -> Iterator[str]:
    """Every text of a run; an output may be JSON that holds some, as those of the smoke run and the network test do."""
    for text in texts_within(clean):
        yield text
        if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
            with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
                yield from texts_within(msgspec.json.decode(text))


_hidden = lru_cache(maxsize=1 << 12)(hide_in_output)
"""Hosts have most of their answers in common."""


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return restated(value, _hidden)
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(item, str) and item and is_secret_name(key) else _redact_value(item)
            for key, item in value.items()
        }
    return [_redact_value(item) for item in value] if isinstance(value, (list, tuple)) else value
