"""The records of the probe and of the hook, of all ranks: read with limits, since any process may have written them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from doctor.engine.decoding import inflate
from doctor.engine.sanitize import printable as clean

MAX_LINE = 4 << 20
"""Bytes of a record."""
MAX_RECORDS = 400_000
"""Of one process."""
MAX_RANK = 1 << 20
OF_PROGRAM = frozenset({"process", "line", "note"})
"""Kinds of records that hold for the whole program, also where they are from a time before the ranks met."""
MAX_BITMAP = 8 << 20


RecordValues = dict[str, Any]
"""The values of one record, by their short names in the file; any process may have written them."""
RankValues = dict[int, RecordValues]
"""One record of each rank."""
RecordTable = dict[tuple[Any, ...], RankValues]
"""Records of one kind, by the values of their keys, then by rank."""


class DataRecord(msgspec.Struct, frozen=True):
    """One record: its kind, its rank, and the values of its kind."""

    kind: str
    rank: int
    step: int
    values: RecordValues


class RankRecords(msgspec.Struct):
    """What one rank told, in its order, without what could not be read."""

    rank: int
    host: str = ""
    records: list[DataRecord] = []
    groups: dict[int, tuple[int, ...]] = {}
    """The ranks of each group, by the number that the file gives it."""

    def of(self, kind: str) -> Iterator[DataRecord]:
        return (record for record in self.records if record.kind == kind)


class JobRecords(msgspec.Struct):
    """What all ranks told."""

    ranks: dict[int, RankRecords] = {}
    unreadable: int = 0
    """Lines that are no records."""
    failed: list[str] = []
    """What the hooks could not do, each once."""
    cut: list[int] = []
    """Ranks whose file was full, or whose hooks have ended themselves."""

    def add_failed(self, text: str) -> None:
        if text not in self.failed and len(self.failed) < 20:
            self.failed.append(text)

    def members(self, record: DataRecord) -> tuple[int, ...]:
        """The ranks of the group that a record names; all ranks where it names none."""
        number = record.values.get("g", 0)
        groups = self.ranks[record.rank].groups
        if not isinstance(number, int):
            return ()
        return groups.get(number, ()) if number else tuple(sorted(self.ranks))


def read_records(files: Iterable[bytes]) -> JobRecords:
    """The records of these files, one of each process. Raises nothing: what is no record is counted."""
    job = JobRecords()
    for content in files:
        _read_file(job, content)
    for entry in job.ranks.values():  # what a rank did before it trained with the others is its own
        together = max(map(_time_of, entry.of("anew")), default=0)
        entry.records = [each for each in entry.records if each.kind in OF_PROGRAM or _time_of(each) >= together]
    return job


def _read_file(job: JobRecords, content: bytes) -> None:
    host = ""
    groups: dict[int, tuple[int, ...]] = {}
    first: dict[int, int] = {}
    """By rank that the file is of: its first record here."""
    decoder = msgspec.json.Decoder(RecordValues)
    for number, line in enumerate(content.splitlines()):
        if number >= MAX_RECORDS:
            job.cut += first
            break
        try:
            values = decoder.decode(line) if len(line) <= MAX_LINE else {}
        except (msgspec.DecodeError, RecursionError):
            values = {}
        kind, rank, step = values.pop("k", None), values.pop("r", None), values.get("s", 0)
        if not isinstance(kind, str) or not _is_rank(rank) or not isinstance(step, int):
            job.unreadable += not (kind in {"process", "end"} and rank == -1)
            continue
        entry = job.ranks.setdefault(rank, RankRecords(rank, host, []))
        start = first.setdefault(rank, len(entry.records))
        if kind == "process":
            host = entry.host = clean(str(values.get("host", "")))[:64]
        elif kind == "group":
            members, name = values.get("ranks"), values.get("id")
            if isinstance(name, int) and isinstance(members, list) and all(map(_is_rank, members)):
                groups[name] = tuple(sorted(set(members)))
        elif kind == "failed":
            job.add_failed(clean(f"{values.get('n')}: {values.get('text')}")[:240])
        elif kind in {"cut", "ended"}:
            job.cut.append(rank)
        elif kind == "anew":  # in the order of the file: the clock may not have gone on since
            entry.records[start:] = [each for each in entry.records[start:] if each.kind in OF_PROGRAM]
        # A loader's worker is a fork of its rank: its groups are its own.
        if isinstance(values.get("g"), int):
            values["ranks"] = groups.get(values["g"], ()) if values["g"] else None
        entry.groups.update(groups)
        entry.records.append(DataRecord(kind, rank, step, values))


def _time_of(record: DataRecord) -> int:
    """Milliseconds of the clock; 0 where a record has none."""
    return milliseconds if isinstance(milliseconds := record.values.get("ms"), int) else 0


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANK


def by_rank(job: JobRecords, kind: str, *keys: str) -> RecordTable:
    """Records of one kind, by the values of these keys (which must be numbers or texts), then by rank; the first."""
    table: RecordTable = {}
    for entry in job.ranks.values():
        for record in entry.of(kind):
            key = tuple(record.values.get(name) for name in keys)
            if all(isinstance(part, (int, str, tuple)) for part in key):
                table.setdefault(key, {}).setdefault(record.rank, record.values)
    return dict(sorted(table.items(), key=lambda item: tuple(map(str, item[0])) if item[0] else ()))


def text_map(value: object) -> RecordValues:
    """A mapping with cleaned names; empty for anything else."""
    return {clean(str(name))[:120]: part for name, part in value.items()} if isinstance(value, dict) else {}


def text_list(value: object) -> list[str]:
    """Texts, cleaned; empty for anything else."""
    return [clean(str(part))[:120] for part in value[:64]] if isinstance(value, list) else []


def indices_of(values: RecordValues) -> frozenset[int] | None:
    """The sample indices of a record; None where they were too many to be written, or make no sense."""
    listed = values.get("ix")
    if isinstance(listed, list):
        return frozenset(listed) if all(isinstance(index, int) for index in listed) else None
    packed = values.get("bits")
    if not isinstance(packed, str):
        return None
    try:
        bits = inflate(base64.b64decode(packed, validate=True), MAX_BITMAP)
    except ValueError:
        return None
    return frozenset(8 * place + bit for place, byte in enumerate(bits) if byte for bit in range(8) if byte & 1 << bit)
