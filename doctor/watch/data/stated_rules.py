"""What the program itself demands by calls of the probe. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doctor.analysis.values.splits import format_ranges, holders_of_same, majority_split, shared_and_unread
from doctor.analysis.values.value_defect import ValueDefect
from doctor.watch.data.records import JobRecords, RankValues, RecordTable, RecordValues, by_rank, indices_of, text_map

_TENSORS = {
    "params": ("smoke-parameters-diverge", "parameters"),
    "gradients": ("smoke-gradient-not-synchronised", "gradients"),
}


def stated_defects(job: JobRecords) -> Iterator[ValueDefect]:
    """The first call of each name that does not hold; calls that a rank has not made yet are not compared."""
    reported: set[Any] = set()
    for kind in ("same", "different"):
        for (name, number, group), records in _calls(job, kind, "n").items():
            if (kind, name, group) in reported or any(rank not in records for rank in group):
                continue
            defect = _value(kind, str(name), number, group, records)
            if defect:
                reported.add((kind, name, group))
                yield defect
    for kind, (check, quantity) in _TENSORS.items():
        for (number, group), records in _calls(job, kind).items():
            tensors = {rank: text_map(records[rank].get("t")) for rank in group if rank in records}
            split = majority_split({rank: str(sorted(values.items())) for rank, values in tensors.items()})
            if split and len(tensors) == len(group) and (kind, group) not in reported:
                reported.add((kind, group))
                template = "call {number} of probe.{kind}: {who} holds other {what} than ranks {group}"
                values = {"number": number, "kind": kind, "what": quantity, "agree": len(split.agreeing)}
                values["group"] = format_ranges(split.agreeing or group)
                yield _stated(check, "stated", number, split.differing, template, values, split.tie)
    for (number, group), records in _calls(job, "shard").items():
        if ("shard", group) not in reported and all(rank in records for rank in group):
            defect = _shard(number, group, records)
            if defect:
                reported.add(("shard", group))
                yield defect


def _calls(job: JobRecords, kind: str, *keys: str) -> RecordTable:
    """Calls by name, number and ranks of the group, in the order of their numbers."""
    everybody = tuple(sorted(job.ranks))
    table: RecordTable = {}
    for key, records in by_rank(job, kind, *keys, "i", "g").items():
        for rank, values in records.items():
            ranks = values.get("ranks")
            group = ranks if isinstance(ranks, tuple) and ranks else everybody
            if rank in group and isinstance(key[-2], int):
                table.setdefault((*key[:-1], group), {})[rank] = values
    return dict(sorted(table.items(), key=lambda item: (item[0][-2], str(item[0]))))


def _value(kind: str, name: str, number: int, group: tuple[int, ...], records: RankValues) -> ValueDefect | None:
    digests = {rank: str(records[rank]["d"]) for rank in group if records[rank].get("d")}
    values: RecordValues = {"name": name, "number": number, "group": format_ranges(group)}
    if kind == "same":
        split = majority_split(digests) if len(digests) == len(group) else None
        if split is None:
            return None
        template = 'call {number} of probe.same("{name}"): {who} has another value than the rest of ranks {group}'
        values["agree"] = len(split.agreeing)
        return _stated("smoke-mask-differs", "stated", number, split.differing, template, values, split.tie)
    alike = sorted(rank for ranks in holders_of_same(digests) for rank in ranks)
    if not alike:
        return None
    template = 'call {number} of probe.different("{name}"): {who} have the same value, among ranks {group}'
    return _stated("smoke-mask-repeated", "stated", number, tuple(alike), template, values)


def _shard(number: int, group: tuple[int, ...], records: RankValues) -> ValueDefect | None:
    sets = {rank: indices_of(records[rank]) for rank in group}
    if any(indices is None for indices in sets.values()):
        return None
    total = records[group[0]].get("total")
    expected = range(total) if isinstance(total, int) and 0 < total <= 1 << 26 else ()
    twice, unread = shared_and_unread({rank: indices or () for rank, indices in sets.items()}, expected)
    values = {"number": number, "twice": format_ranges(list(twice)[:8]), "missing": format_ranges(unread[:8])}
    values |= {"group": format_ranges(group), "count": len(twice), "lost": len(unread)}
    if twice:
        ranks = tuple(sorted({rank for readers in twice.values() for rank in readers}))
        template = "call {number} of probe.shard: {who} read {count} samples twice, such as {twice}"
        if len(twice) == 1:
            template = "call {number} of probe.shard: {who} read sample {twice} twice"
        return _stated("smoke-shards-wrong", "stated", number, ranks, template, values, tie=True)
    if unread:
        template = "call {number} of probe.shard: no rank of {group} reads {lost} samples, such as {missing}"
        if len(unread) == 1:
            template = "call {number} of probe.shard: no rank of {group} reads sample {missing}"
        return _stated("smoke-shards-wrong", "stated missing", number, (), template, values)
    return None


def _stated(
    check: str, kind: str, step: int, ranks: tuple[int, ...], template: str, values: RecordValues, tie: bool = False
) -> ValueDefect:
    """A defect of what the program itself demands: it follows from nothing."""
    return ValueDefect(check, kind, step, ranks, template, values, root=True, tie=tie)
