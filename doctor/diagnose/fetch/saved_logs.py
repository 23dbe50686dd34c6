"""What was read of logs on hosts, and the file that ``--save`` writes and ``--from`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from doctor.config.atomic_write import write_atomic
from doctor.engine.bounded_read import read_bounded
from doctor.engine.errors import InputError
from doctor.engine.sanitize import UTF8_MARK, parse_problem, printable
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import TextTable, filled, read_table, table_of

SCHEMA = "doctor.logs/1"
MAX_SAVED_BYTES = 1 << 30


class LogExcerpt(msgspec.Struct, frozen=True):
    """The lines of one log that a diagnosis needs."""

    path: str
    size: int
    """Bytes of the file, when it was opened."""
    modified: float
    """Seconds since 1970, by the clock of its host."""
    inode: int
    crc: int
    """CRC-32 of all bytes that were read."""
    lines: int
    read: int
    """Bytes that were read; of a compressed file those that it holds."""
    complete: bool
    notes: list[str]
    kept: list[tuple[int, str]]
    """Line numbers from 1 in rising order, and lines."""
    labels: list[Annotated[int, msgspec.Meta(ge=0, lt=1_000_000)]] = []
    """Ranks that labels of a launcher show at most lines."""
    dump: str = ""
    """The bytes of a dump of a flight recorder, in base64; empty for a log."""
    kernel: bool = False
    """These are the messages of the host's kernel."""


class Omission(msgspec.Struct, frozen=True, array_like=True):
    """Files that were not read for one reason."""

    reason: str
    count: int
    examples: list[str]


class HostLogs(msgspec.Struct, frozen=True):
    """The answer of one host."""

    files: list[LogExcerpt] = []
    omitted: list[Omission] = []
    unmatched: list[str] = []
    """Places that do not exist there."""
    error: str = ""
    """Why the host gave no answer, or not all of it; empty where it did."""
    kernel: str = ""
    """Why the kernel's messages cannot be read there; empty where they can, or were not asked for."""


class LogRecord(msgspec.Struct, frozen=True):
    """One collection of logs."""

    schema: str
    source: str
    """In words: where the hosts come from."""
    started: str
    places: tuple[str, ...]
    since: float
    """Seconds; files that were last written before that were not read. 0: all were."""
    hosts: dict[str, HostLogs]
    texts: dict[str, str] = {}
    """What a scheduler says of the job, by the command that printed it."""
    job_hosts: tuple[str, ...] = ()
    """The hosts of the job: those that were asked, or that its scheduler lists."""
    notes: list[str] = []
    logs: dict[str, str] = {}
    """Logs that a scheduler keeps itself, by name."""
    sentences: TextTable = {}
    """Templates and values of what doctor says in it (`doctor.engine.texts.table_of`)."""


def save_logs(path: Path, record: LogRecord) -> None:
    """Writes it atomically, readable only by its owner, without what looks like a secret. Raises: OSError."""
    hosts = {
        host: msgspec.structs.replace(logs, files=list(map(_redacted, logs.files)))
        for host, logs in record.hosts.items()
    }
    texts = {name: hide_secrets(text) for name, text in record.texts.items()}
    kept = {name: hide_secrets(text) for name, text in record.logs.items()}
    sentences = table_of(map(hide_secrets, _sentences(record)))
    saved = msgspec.structs.replace(record, hosts=hosts, texts=texts, logs=kept, sentences=sentences)
    write_atomic(path, msgspec.json.encode(saved) + b"\n")


def _sentences(record: LogRecord) -> Iterator[str]:
    """What doctor says in a record, and no line of a log."""
    yield from (record.source, *record.notes)
    for logs in record.hosts.values():
        yield from (logs.error, logs.kernel, *(omission.reason for omission in logs.omitted))
        for log in logs.files:
            yield from log.notes


def _redacted(log: LogExcerpt) -> LogExcerpt:
    return msgspec.structs.replace(log, kept=[(number, hide_secrets(line)) for number, line in log.kept])


def load_logs(path: Path) -> LogRecord:
    """The record in a file. Raises: InputError (exit code 78) for what is none."""
    name = printable(str(path))
    try:
        data = read_bounded(path, MAX_SAVED_BYTES).removeprefix(UTF8_MARK)
    except OSError as error:
        raise InputError(filled("--from {0}: {1}; expected a file of --save", name, error.strerror)) from None
    try:
        record = msgspec.json.decode(data, type=LogRecord)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = parse_problem(error, 200, data)
        raise InputError(filled("--from {0}: no logs saved by doctor diagnose --save: {1}", name, problem)) from None
    if record.schema != SCHEMA:
        raise InputError(
            filled("--from {0}: schema {1}; expected {2}", name, f"{printable(record.schema, 60)!r}", f"{SCHEMA!r}")
        )
    read_table(record.sentences)
    return record
