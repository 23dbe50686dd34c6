"""Parameters, gradients and updates of data-parallel replicas, and numbers that are not finite. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from doctor.smoke.numerics.defect import format_ranges
from doctor.smoke.numerics.layout_trace import MajoritySplit, majority_split
from doctor.watch.data.data_defect import DataDefect, split_values
from doctor.watch.data.group_roles import GroupRole, GroupRoles
from doctor.watch.data.records import JobRecords, by_rank, text_list, text_map
from doctor.watch.data.shard_rules import replica_tables, summed_shards
from doctor.watch.data.summed_gradients import RATIO_TOLERANCE, RESIDUAL, summed_defect

UNMOVED_STEPS = 3


def value_defects(job: JobRecords, roles: GroupRoles) -> Iterator[DataDefect]:
    """All that the values of replicas show, causes and consequences alike."""
    for group in roles.data:
        yield from _not_broadcast(job, group)
        yield from _gradients(job, group)
        yield from _states_not_loaded(job, group)
        yield from _diverged(job, group)
        yield from _states_diverged(job, group)
    yield from summed_shards(job, roles)
    yield from _updates(job)
    yield from _not_finite(job)


def _split_of(records: dict[int, dict[str, Any]], ranks: Sequence[int]) -> tuple[MajoritySplit, list[str]] | None:
    """Who holds other tensors than most, and which; None where all agree or too little is there."""
    tensors = {rank: text_map(records[rank].get("t")) for rank in ranks if rank in records}
    if len(tensors) < len(ranks):
        return None
    shared = [name for name in tensors[ranks[0]] if all(tensors[rank].get(name) for rank in ranks)]
    split = majority_split({rank: tuple(str(tensors[rank][name]) for name in shared) for rank in ranks})
    if split is None:
        return None
    first = tensors[(split.agreeing or split.deviating)[0]]
    return split, [name for name in shared if any(tensors[rank][name] != first[name] for rank in split.deviating)]


def _named(names: Sequence[str]) -> str:
    listed = ", ".join(names[:3])
    if len(names) == 4:
        return f"{listed} and 1 more tensor"
    return f"{listed} and {len(names) - 3} more tensors" if len(names) > 4 else listed


def _reason(group: GroupRole) -> str:
    return "" if group.certain else group.reason


def _not_broadcast(job: JobRecords, group: GroupRole) -> Iterator[DataDefect]:
    begun = _split_of(replica_tables(job, "begun", group).get((0,), {}), group.ranks)
    if begun:
        split, names = begun
        template = (
            "before the first update {who} holds other parameters than data-parallel ranks "
            "{group}: {tensors} were not broadcast"
        )
        yield DataDefect(
            "smoke-parameters-not-broadcast", "begin", -1, split.deviating, template,
            {**split_values(split, split.agreeing or group.ranks), "tensors": _named(names), "root": min(group.ranks)},
            tie=split.tie, inferred=_reason(group),
        )  # fmt: skip


def _diverged(job: JobRecords, group: GroupRole) -> Iterator[DataDefect]:
    for (step,), records in sorted(replica_tables(job, "parameters", group).items()):
        difference = _split_of(records, group.ranks)
        if difference:
            split, names = difference
            template = "after step {step} {who} holds other parameters than data-parallel ranks {group}: {tensors}"
            yield DataDefect(
                "smoke-parameters-diverge", "data", step, split.deviating, template,
                {**split_values(split, split.agreeing or group.ranks), "tensors": _named(names)},
                tie=split.tie, inferred=_reason(group),
            )  # fmt: skip
            return


def _states_not_loaded(job: JobRecords, group: GroupRole) -> Iterator[DataDefect]:
    """An optimizer that goes on from a checkpoint has states before its first step: on each replica the same."""
    records = replica_tables(job, "held", group).get((0,), {})
    if not all(rank in records for rank in group.ranks):
        return
    names = {rank: tuple(sorted(text_map(records[rank].get("t")))) for rank in group.ranks}
    begun = _split_of(records, group.ranks)
    # An optimizer that divides its states among the ranks keeps other ones on each of them.
    holders, empty = {names[rank] for rank in group.ranks if names[rank]}, [r for r in group.ranks if not names[r]]
    template = "before its first update {who} holds another optimizer state than data-parallel ranks {group}: {tensors}"
    if begun:
        split, differing = begun
        values = {**split_values(split, split.agreeing or group.ranks), "tensors": _named(differing)}
        ranks, tie = split.deviating, split.tie
    elif empty and len(holders) == 1 and len({name.rpartition(" of ")[2] for name in next(iter(holders))}) > 1:
        others = [rank for rank in group.ranks if rank not in empty]
        template = "before its first update {who} holds no optimizer state, data-parallel ranks {group} hold one"
        values, tie = {"group": format_ranges(others)}, False
        ranks = tuple(empty)
    else:
        return
    yield DataDefect(
        "smoke-parameters-not-broadcast", "state", -1, ranks, template, {**values, "root": min(group.ranks)},
        tie=tie, inferred=_reason(group),
    )  # fmt: skip


def _states_diverged(job: JobRecords, group: GroupRole) -> Iterator[DataDefect]:
    for (step,), records in sorted(replica_tables(job, "states", group).items()):
        difference = _split_of(records, group.ranks)
        if difference:
            split, names = difference
            template = (
                "after step {step} {who} holds another optimizer state than data-parallel ranks {group}: {tensors}"
            )
            values = {**split_values(split, split.agreeing or group.ranks), "tensors": _named(names)}
            yield DataDefect(
                "smoke-parameters-diverge", "state", step, split.deviating, template, values,
                tie=split.tie, inferred=_reason(group),
            )  # fmt: skip
            return


def _gradients(job: JobRecords, group: GroupRole) -> Iterator[DataDefect]:
    reduced, sketches = replica_tables(job, "reduced", group), by_rank(job, "sketch", "s")
    summed: list[int] = []
    for (step,), records in sorted(reduced.items()):
        split = _split_of(records, group.ranks)
        parts = {rank: _halves(sketches.get((step,), {}).get(rank, {})) for rank in group.ranks}
        if split:
            own_value = tuple(rank for rank, (local, after) in parts.items() if local and local == after)
            everybody = set(own_value) == set(group.ranks)
            ranks = own_value or split[0].deviating
            template = "the gradient of {who} in step {step} is not that of data-parallel ranks {group}: {tensors}"
            if own_value:
                template = (
                    "the gradient of {who} in step {step} is the one that it computed itself: it was not "
                    "reduced over ranks {group}"
                )
            yield DataDefect(
                "smoke-gradient-not-synchronised", "own" if own_value else "other", step,
                () if everybody else ranks, template,
                {"group": format_ranges(group.ranks), "tensors": _named(split[1])},
                tie=split[0].tie and not own_value, inferred=_reason(group),
            )  # fmt: skip
            return
        if _is_sum(parts, len(group.ranks)):
            summed.append(step)
    if not summed:
        return
    yield from summed_defect(job, group, summed[0])


def _halves(record: dict[str, Any]) -> tuple[list[float], list[float]]:
    values = record.get("v")
    if not isinstance(values, list) or not all(isinstance(value, float | int) for value in values):
        return [], []
    return values[: len(values) // 2], values[len(values) // 2 :]


def _is_sum(parts: dict[int, tuple[list[float], list[float]]], count: int) -> bool:
    """Whether what the optimizer gets is the sum of what the ranks computed: in direction and in length."""
    sizes = {len(local) for local, _ in parts.values()}
    if count < 2 or len(sizes) != 1 or not (length := sizes.pop()):
        return False
    total = [sum(local[place] for local, _ in parts.values()) for place in range(length)]
    after = next(iter(parts.values()))[1]
    norm = math.fsum(value * value for value in total)
    if not norm or not math.isfinite(norm):
        return False
    ratio = math.fsum(a * b for a, b in zip(after, total, strict=True)) / norm
    rest = math.fsum((a - ratio * b) ** 2 for a, b in zip(after, total, strict=True))
    return abs(ratio - 1) < RATIO_TOLERANCE and rest < RESIDUAL**2 * norm


def _updates(job: JobRecords) -> Iterator[DataDefect]:
    yield from _without_step(job)
    updates = by_rank(job, "update", "s")
    last = {rank: [records[rank] for records in updates.values() if rank in records] for rank in job.ranks}
    observed_ranks = {rank: records for rank, records in last.items() if len(records) >= UNMOVED_STEPS}
    still_ranks = [
        rank
        for rank, records in observed_ranks.items()
        if all(not entry.get("moved") and entry.get("still") for entry in records)
    ]
    zero = [rank for rank in still_ranks if all(not any(_numbers(entry.get("lr"))) for entry in observed_ranks[rank])]
    if still_ranks:
        everybody = len(still_ranks) == len(job.ranks)
        template = "{who} changed no parameter in {count} digested steps, although the gradients were not zero{lr}"
        values = {"count": len(observed_ranks[still_ranks[0]]), "lr": ": the learning rate is 0" if zero else ""}
        yield DataDefect(
            "smoke-update-missing",
            "lr" if zero else "all",
            0,
            () if everybody else tuple(still_ranks),
            template,
            values,
        )
    holders: dict[str, list[int]] = {}
    for rank, records in observed_ranks.items():
        if rank in still_ranks:
            continue
        always = set(text_list(records[0].get("still"))).intersection(
            *(text_list(entry.get("still")) for entry in records)
        )
        for name in always:
            holders.setdefault(name, []).append(rank)
    by_ranks: dict[tuple[int, ...], list[str]] = {}
    for name, ranks in holders.items():
        by_ranks.setdefault(tuple(sorted(ranks)), []).append(name)
    for culprits, names in sorted(by_ranks.items()):
        held = {name for rank in culprits for entry in observed_ranks[rank] for name in text_list(entry.get("unheld"))}
        cause = "no optimizer holds them" if held.issuperset(names) else "their gradients are not zero"
        template = "{tensors} did not move in {count} digested steps on {who}: {cause}"
        values = {"tensors": _named(sorted(names)), "count": len(observed_ranks[culprits[0]]), "cause": cause}
        everybody = len(culprits) == len(observed_ranks)
        yield DataDefect("smoke-update-missing", "still", 0, () if everybody else culprits, template, values)
    yield from _frozen(job, updates)


def _numbers(value: object) -> list[float]:
    return [part for part in value if isinstance(part, float | int)] if isinstance(value, list) else []


def _frozen(job: JobRecords, updates: dict[tuple[Any, ...], dict[int, dict[str, Any]]]) -> Iterator[DataDefect]:
    """Frozen tensors are a choice; other ones on one rank than on the rest are none."""
    for (step,), records in sorted(updates.items()):
        frozen = {rank: tuple(text_list(record.get("frozen"))) for rank, record in records.items()}
        split = majority_split(frozen) if len(frozen) == len(job.ranks) else None
        if split:
            first = set(frozen[(split.agreeing or split.deviating)[0]])
            names = sorted({name for rank in split.deviating for name in first.symmetric_difference(frozen[rank])})
            template = "{who} does not train the same tensors as ranks {group} from step {step} on: {tensors}"
            values = {**split_values(split, split.agreeing or frozen), "tensors": _named(names)}
            yield DataDefect("smoke-update-missing", "frozen", step, split.deviating, template, values, tie=split.tie)
            return
        if any(frozen.values()) and not split:
            names = list(next(iter(frozen.values())))
            template = "{tensors} are not trained, on any rank"
            values = {"tensors": _named(names)}
            yield DataDefect("smoke-update-missing", "frozen", step, (), template, values, level="note")
            return


def _without_step(job: JobRecords) -> Iterator[DataDefect]:
    """Ranks that compute more forward passes for an update than most: their optimizer does not step each time."""
    forwards: dict[int, dict[int, int]] = {}
    for entry in job.ranks.values():
        for record in entry.of("inputs"):
            number = record.values.get("i")
            if isinstance(number, int):
                counts = forwards.setdefault(record.step, {})
                counts[entry.rank] = max(counts.get(entry.rank, 0), number)
    for step, counts in sorted(forwards.items()):
        if len(counts) < 2:
            continue
        # The last step of a program that still runs is not at its end on all ranks.
        usual = sorted(counts.values())[(len(counts) - 1) // 2]
        late = tuple(rank for rank, number in sorted(counts.items()) if number > usual + (step == max(forwards)))
        if late:
            template = "{who} made no update in step {step}: {count} forward passes, {usual} on the other ranks"
            values = {"count": counts[late[0]], "usual": usual}
            yield DataDefect("smoke-update-missing", "no step", step, late, template, values)
            return


def _not_finite(job: JobRecords) -> Iterator[DataDefect]:
    """The first step with a NaN or Inf, and there the first place, on the ranks that made it of finite numbers."""
    places: dict[int, list[tuple[int, int, int, str]]] = {}
    for entry in job.ranks.values():
        for record in entry.records:
            values = record.values
            if record.kind == "nan":
                order = (0, values["c"] if isinstance(values.get("c"), int) else 0)
                text = f"{'before' if values.get('at') == 'input' else 'in'} module {text_list([values.get('n')])[0]}"
            elif record.kind == "backward" and isinstance(values.get("v"), str):
                order, text = (1, 0), "the loss"
            elif record.kind in {"reduced", "gradients"} and text_list(values.get("bad")):
                order, text = (2, 0), "the gradient of " + _named(text_list(values.get("bad")))
            elif record.kind in {"parameters", "params"} and text_list(values.get("bad")):
                order, text = (3, 0), "the parameter " + _named(text_list(values.get("bad")))
            else:
                continue
            places.setdefault(record.step, []).append((*order, entry.rank, text))
    if not places:
        return
    step, entries = min(places.items())
    first = min(entries)
    ranks = tuple(sorted({rank for *order, rank, _ in entries if tuple(order) == first[:2]}))
    victims = sorted({rank for *_, rank, _ in entries} - set(ranks))
    template = "{who} made the first NaN or Inf in step {step}: {place}{follow}"
    follow = f"; ranks {format_ranges(victims)} had it after" if victims else ""
    everybody = len(ranks) == len(job.ranks)
    yield DataDefect(
        "smoke-not-finite", "activations" if not first[0] else "values", step, () if everybody else ranks, template,
        {"place": first[3], "follow": follow},
    )  # fmt: skip
