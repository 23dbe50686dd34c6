"""All that is wrong with a program's data and values: causes, separated from their consequences. Pure.

Causes are what nothing else can bring about: other data, other masks, parameters that were not broadcast, an update
that a rank does not make, the first NaN. Of all others the first in time is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from doctor.engine.sanitize import count_noun
from doctor.watch.data.data_defect import DataDefect
from doctor.watch.data.group_roles import group_roles
from doctor.watch.data.input_rules import input_defects
from doctor.watch.data.records import JobRecords, read_records
from doctor.watch.data.sample_shards import shard_defects
from doctor.watch.data.stated_rules import stated_defects
from doctor.watch.data.value_rules import value_defects
from doctor.watch.data.worker_seeds import worker_defects

_PHASES = (
    "smoke-loader-seed-differs",
    "smoke-shards-wrong",
    "smoke-mask-differs",
    "smoke-mask-repeated",
    "smoke-parameters-not-broadcast",
    "smoke-update-missing",
    "smoke-not-finite",
    "smoke-gradient-summed",
    "smoke-gradient-not-synchronised",
    "smoke-parameters-diverge",
)
"""In the order in which one brings about the next."""
_CONSEQUENCES = ("smoke-gradient-not-synchronised", "smoke-parameters-diverge")


class DataReport(msgspec.Struct, frozen=True):
    """What the digests of all ranks show."""

    causes: tuple[DataDefect, ...]
    consequences: tuple[tuple[DataDefect, str], ...]
    """Each with the check that holds its cause."""
    notes: tuple[DataDefect, ...]
    """No findings: what may be meant."""
    inferred: tuple[str, ...]
    """What was taken for granted of the program's groups, in words."""
    unseen: tuple[str, ...]
    """What could not be looked at, in words: it counts as unknown, not as healthy."""
    steps: int
    """Steps that were digested on some rank."""


def analyze_records(files: Iterable[bytes]) -> DataReport:
    """The report on the files that the processes of a job wrote. Raises nothing.

    Example: ``analyze_records(path.read_bytes() for path in folder.glob("*.probe")).causes``.
    """
    return analyze_job(read_records(files))


def analyze_job(job: JobRecords) -> DataReport:
    """The same, of records that were read before."""
    roles = group_roles(job)
    inputs = list(input_defects(job, roles))
    defects_found = [
        *shard_defects(job, roles),
        *inputs,
        *worker_defects(job, roles, inputs),
        *value_defects(job, roles),
        *stated_defects(job),
    ]
    notes = tuple(defect for defect in defects_found if defect.level == "note")
    causes, explained = causes_of([defect for defect in defects_found if defect.level != "note"])
    steps = len({record.step for entry in job.ranks.values() for record in entry.of("inputs")})
    return DataReport(
        tuple(causes), tuple(explained), notes, tuple(roles.sentences()), tuple(_unseen(job, steps)), steps
    )


def causes_of(found: list[DataDefect]) -> tuple[list[DataDefect], list[tuple[DataDefect, str]]]:
    """The causes among these defects, and the others, each with the check that holds its cause."""
    defects = _without_repetition(found)
    causes: list[DataDefect] = []
    explained: list[tuple[DataDefect, str]] = []
    for defect in sorted(defects, key=lambda entry: (_PHASES.index(entry.check), entry.step)):
        # Of several, the nearest: parameters that were not broadcast before batches that are equal.
        cause = next((earlier for earlier in reversed(causes) if _explains(earlier, defect)), None)
        if cause:
            explained.append((defect, cause.check))
        else:
            causes.append(defect)
    return causes, explained


def _explains(cause: DataDefect, defect: DataDefect) -> bool:
    if defect.kind.startswith("stated") or cause.level != "error":
        return False
    if defect.check in _CONSEQUENCES:
        return cause.check != "smoke-gradient-summed"
    if cause.check == "smoke-loader-seed-differs":
        return defect.check == "smoke-mask-differs"
    if cause.check == "smoke-shards-wrong":
        # One batch under two names: by the indices of the loader, and by the rows; and a rank that has fewer of them.
        return defect.check in {"smoke-shards-wrong", "smoke-mask-differs"} or defect.kind == "no step"
    return cause.check == defect.check == "smoke-update-missing" and cause.kind == "no step"


def _without_repetition(defects: list[DataDefect]) -> list[DataDefect]:
    """One defect of each check and kind, the clearest of all groups; ranks of clear ones are put together."""
    merged: dict[tuple[str, str, str], DataDefect] = {}
    for defect in sorted(defects, key=lambda entry: (entry.tie, entry.step)):
        key = (defect.check, defect.kind, str(defect.values.get("name", "")))
        earlier = merged.get(key)
        if earlier is None:
            merged[key] = defect
        elif not earlier.tie and not defect.tie and earlier.ranks and earlier.step == defect.step:
            merged[key] = msgspec.structs.replace(earlier, ranks=tuple(sorted({*earlier.ranks, *defect.ranks})))
    return list(merged.values())


def _unseen(job: JobRecords, steps: int) -> list[str]:
    texts = [f"a hook failed: {text}" for text in job.failed]
    if job.unreadable:
        lines = count_noun(job.unreadable, "line")
        texts.append(f"{lines} of digests could not be read")
    if job.cut:
        ranks = count_noun(len(set(job.cut)), "rank")
        texts.append(f"the digests of {ranks} are not complete: a file was full, or a hook ended itself")
    compiled = sorted({entry.rank for entry in job.ranks.values() for _ in entry.of("note")})
    if compiled:
        texts.append("gradients, modules and, after module.compile(), inputs of compiled models were not looked into")
    silent = sorted(rank for rank, entry in job.ranks.items() if not any(entry.of("inputs")))
    if steps and silent:
        ranks = f"rank {silent[0]}" if len(silent) == 1 else f"{len(silent)} ranks, the first is {silent[0]}"
        texts.append(f"no forward pass was seen on {ranks}")
    return texts
