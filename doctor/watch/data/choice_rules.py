"""What data-parallel ranks choose alike: rates, scales, types, and what they change besides the parameters. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import majority_split
from doctor.analysis.values.value_defect import ValueDefect
from doctor.watch.data.group_roles import GroupRole
from doctor.watch.data.records import JobRecords, by_rank, text_list, text_map

LEAST_STEPS = 3
"""Digested steps in which ranks differ, before that is said."""
CHOSEN: Mapping[tuple[str, str, str, str, Literal["error", "warning"]], str] = {
    ("backward", "z", "smoke-gradient-not-synchronised", "Not set to zero", "warning"): (
        "the gradients of the step before are {own} when {who} begins step {step}, those of the other data-parallel "
        "ranks {usual}"
    ),
    ("update", "lr", "smoke-update-missing", "Learning rate", "error"): (
        "the learning rate of {who} is {own} from step {step} on, that of the other data-parallel ranks {usual}"
    ),
    ("backward", "f", "smoke-gradient-not-synchronised", "Scale, or Type", "warning"): (
        "the loss of {who} is multiplied by {own} from step {step} on, that of the other data-parallel ranks by {usual}"
    ),
    ("outputs", "d", "smoke-gradient-not-synchronised", "Scale, or Type", "warning"): (
        "the model of {who} returns {own} from step {step} on, that of the other data-parallel ranks {usual}"
    ),
}
"""What data-parallel ranks choose alike in each step: kind and field of its record, check, case and level."""


def choices(job: JobRecords, group: GroupRole) -> Iterator[ValueDefect]:
    """Ranks that differ from the others in each step that was looked at: by their rates, loss scales or precision.

    Where they take unlike numbers of passes in a step, each may weigh its own.
    """
    for (kind, field, check, case, level), template in CHOSEN.items():
        passes = Counter((entry.rank, record.step) for entry in job.ranks.values() for record in entry.of(kind))
        rows = [
            (step, {rank: tuple(text_list(_listed(records[rank].get(field)))) for rank in group.ranks})
            for (step,), records in sorted(by_rank(job, kind, "s").items())
            if all(rank in records and records[rank].get("how", "mean") == "mean" for rank in group.ranks)
            and len({passes[rank, step] for rank in group.ranks}) == 1
        ]
        if field == "z":  # from the step on in which a rank begins to leave them
            rows = [row for row in rows if row[1] == rows[-1][1]]
        splits = [majority_split(row) for _, row in rows]
        steady = len({tuple(row.values()) for _, row in rows}) == 1 or level == "error"
        lengths = {len(value) for _, row in rows for value in row.values()}
        is_same = len(lengths) == len({split and split.differing for split in splits}) == 1
        if len(rows) >= LEAST_STEPS - (field == "z") and steady and is_same and (split := splits[0]):
            step, row = rows[0]
            odd_value = next(row[rank] for rank in split.differing if row[rank] != row[split.norm])
            values = {"own": ", ".join(odd_value), "usual": ", ".join(row[split.norm]), "case": case}
            defect = group.difference(check, field, step, split, template, **values)
            yield msgspec.structs.replace(defect, level=level)


def resting_buffers(job: JobRecords, group: GroupRole) -> Iterator[ValueDefect]:
    """Buffers that some ranks change again and again, and the others never."""
    ranks = set(group.ranks)
    records_of = by_rank(job, "buffers", "s").values()
    tables = [{rank: text_map(records[rank].get("t")) for rank in ranks & records.keys()} for records in records_of]
    tables = [table for table in tables if len(table) == len(ranks)]
    changes: dict[tuple[str, ...], list[str]] = {}
    for name in tables[0][group.ranks[0]] if len(tables) >= LEAST_STEPS else ():
        digests = {rank: {str(table[rank].get(name)) for table in tables} for rank in group.ranks}
        counts = (len(digests[rank]) for rank in group.ranks)
        kinds = tuple("rests" if count == 1 else "changes" if count >= LEAST_STEPS else "" for count in counts)
        if set(kinds) == {"rests", "changes"}:
            changes.setdefault(kinds, []).append(name)
    for kinds, names in changes.items():
        resting = tuple(rank for rank, kind in zip(group.ranks, kinds, strict=True) if kind == "rests")
        template = "buffers of {who} do not change in {count} digested steps, and on ranks {group} they do: {tensors}"
        split = Split(resting, tuple(rank for rank in group.ranks if rank not in resting), names=tuple(names))
        check = "smoke-parameters-diverge"
        defect = group.difference(check, "buffer", 0, split, template, count=len(tables))
        yield msgspec.structs.replace(defect, level="warning")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
