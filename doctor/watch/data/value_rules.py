"""Parameters, gradients and updates of data-parallel replicas, and numbers that are not finite. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Literal

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import first_makers, format_ranges, majority_split, split_by_name
from doctor.analysis.values.value_defect import BEFORE_FIRST_STEP, ValueDefect, describe
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.watch.data.choice_rules import choices, resting_buffers
from doctor.watch.data.group_roles import NOT_RECORDED, GroupRole, GroupRoles, calls_of, name_tensors, own_tensors
from doctor.watch.data.records import (
    JobRecords,
    RankRecords,
    RankValues,
    RecordTable,
    RecordValues,
    by_rank,
    text_list,
    text_map,
)
from doctor.watch.data.shard_rules import are_sums, no_sum_defect, replica_tables, summed_defect, summed_shards

UNMOVED_STEPS = 3
MAX_NAMES = 4000
"""Of a list of the hook that was cut."""
GroupCalls = dict[tuple[int, ...], int]
"""Collectives that a rank has called, by the ranks of their group."""


class AlikeRule(msgspec.Struct, frozen=True):
    """Tensors that the ranks of each data-parallel group must hold alike: a row is all that such a rule needs."""

    record: str
    """The kind of the records that hold their digests, by name, under ``t``."""
    check: str
    kind: str
    template: str
    only_first: bool = False
    """Before the first update alone; else the first step counts in which they differ."""
    level: Literal["error", "warning"] = "error"


ALIKE = (
    AlikeRule(
        "begun", "smoke-parameters-not-broadcast", "begin",
        "before the first update {who} holds other parameters than data-parallel ranks {group}, not broadcast: "
        "{tensors}",
        only_first=True,
    ),
    AlikeRule(
        "held", "smoke-parameters-not-broadcast", "state",
        "before its first update {who} holds another optimizer state than data-parallel ranks {group}: {tensors}",
        only_first=True,
    ),
    AlikeRule(
        "parameters", "smoke-parameters-diverge", "data",
        "after step {step} {who} holds other parameters than data-parallel ranks {group}: {tensors}",
    ),
    AlikeRule(
        "states", "smoke-parameters-diverge", "state",
        "after step {step} {who} holds another optimizer state than data-parallel ranks {group}: {tensors}",
    ),
    AlikeRule(
        "copies", "smoke-parameters-diverge", "copy",
        "after step {step} {who} holds another copy of the parameters, such as their average, than data-parallel ranks "
        "{group}: {tensors}",
        level="warning",
    ),
)  # fmt: skip
EXCHANGES = frozenset({"all_to_all", "send", "recv"})
"""Calls by which ranks use tensors that each of them has alone: experts, stages."""


def value_defects(job: JobRecords, roles: GroupRoles) -> Iterator[ValueDefect]:
    """All that the values of replicas show, causes and consequences alike."""
    for group in roles.data:
        for rule in ALIKE:
            yield from _not_alike(job, group, rule)
        yield from _state_not_loaded(job, group)
        yield from _own_tensors(job, group)
        yield from resting_buffers(job, group)
        yield from choices(job, group)
        yield from _gradients(job, group)
    yield from _added_up(job, roles)
    yield from summed_shards(job, roles)
    yield from _updates(job, set() if roles.data else _served(job))
    yield from _not_finite(job)


def _tables(records: RankValues, ranks: Sequence[int]) -> RankValues:
    return {rank: text_map(records[rank].get("t")) for rank in ranks if rank in records}


def _not_alike(job: JobRecords, group: GroupRole, rule: AlikeRule) -> Iterator[ValueDefect]:
    tables: RankValues = {}
    for (step,), records in sorted(replica_tables(job, rule.record, group).items()):
        if rule.only_first and step:
            continue
        before, tables = tables, _tables(records, group.ranks)
        split = split_by_name(tables, group.ranks)
        if split and not (rule.record == "copies" and _kept_by_few(tables, before)):
            at = BEFORE_FIRST_STEP if rule.only_first else step
            defect = group.difference(rule.check, rule.kind, at, split, rule.template, root=min(group.ranks))
            yield msgspec.structs.replace(defect, level=rule.level)
            return


def _kept_by_few(tables: RankValues, before: RankValues) -> bool:
    """Whether at most half of the ranks change their copies, as where rank 0 alone averages; or that is not known."""
    moved = sum(tables[rank] != before.get(rank) for rank in tables)
    return not before or 0 < 2 * moved <= len(tables)


def _own_tensors(job: JobRecords, group: GroupRole) -> Iterator[ValueDefect]:
    """Tensors that began differently and that nothing reduces: each rank's own, which no other rank seems to use."""
    names = sorted(own_tensors(job, group.ranks))
    calls = calls_of(job, sorted(job.ranks))
    if names and calls - {NOT_RECORDED}:
        template = "{who} each train tensors of their own, which began with other values and are not reduced: {tensors}"
        meant = not group.certain or group.ranks != tuple(sorted(job.ranks)) or calls & EXCHANGES
        values = {"tensors": name_tensors(names), "root": min(group.ranks)}
        yield ValueDefect(
            "smoke-parameters-not-broadcast", "own", BEFORE_FIRST_STEP, group.ranks, template, values,
            level="note" if meant else "warning", inferred=group.inferred,
        )  # fmt: skip


def _state_not_loaded(job: JobRecords, group: GroupRole) -> Iterator[ValueDefect]:
    """An optimizer that goes on from a checkpoint has states before its first step: on each replica, not on some."""
    records = replica_tables(job, "held", group).get((0,), {})
    if not all(rank in records for rank in group.ranks):
        return
    names = {rank: tuple(sorted(table)) for rank, table in _tables(records, group.ranks).items()}
    # An optimizer that divides its states among the ranks keeps other ones on each of them.
    holders, empty = {held for held in names.values() if held}, [rank for rank, held in names.items() if not held]
    if empty and len(holders) == 1 and len({name.rpartition(" of ")[2] for name in next(iter(holders))}) > 1:
        split = Split(tuple(empty), tuple(rank for rank in group.ranks if rank not in empty))
        template = "before its first update {who} holds no optimizer state, data-parallel ranks {group} hold one"
        check = "smoke-parameters-not-broadcast"
        yield group.difference(check, "state", BEFORE_FIRST_STEP, split, template, root=min(group.ranks))


def _gradients(job: JobRecords, group: GroupRole) -> Iterator[ValueDefect]:
    reduced, sketches = replica_tables(job, "reduced", group), by_rank(job, "sketch", "s")
    summed: list[int] = []
    for (step,), records in sorted(reduced.items()):
        split = split_by_name(_tables(records, group.ranks), group.ranks)
        parts = {rank: _halves(sketches.get((step,), {}).get(rank, {})) for rank in group.ranks}
        if split:
            yield _not_synchronised(group, step, split, parts)
            return
        pairs = _sums(parts, len(group.ranks))
        if pairs and (other := list(no_sum_defect(job, group, step, pairs))):
            yield from other
            return
        if are_sums(pairs):
            summed.append(step)
    if not summed:
        return
    yield from summed_defect(job, group, summed[0])


def _not_synchronised(
    group: GroupRole, step: int, split: Split[int], parts: dict[int, tuple[list[float], list[float]]]
) -> ValueDefect:
    unreduced = tuple(rank for rank, (local, after) in parts.items() if local and local == after)
    ranks = format_ranges(group.ranks)
    if not unreduced and split.kinds == len(group.ranks) > 2:
        template = (
            "in step {step} {who} has a gradient of its own, not reduced over data-parallel ranks {group}: {tensors}"
        )
        unreduced = group.ranks
    elif not unreduced:
        template = "the gradient of {who} in step {step} is not that of data-parallel ranks {group}: {tensors}"
        check = "smoke-gradient-not-synchronised"
        return group.difference(check, "other", step, split, template, group=ranks, case="Another sum")
    else:
        template = "the gradient of {who} in step {step} is the local one: it was not reduced over ranks {group}"
    blamed = Split(() if set(unreduced) == set(group.ranks) else unreduced, group.ranks, names=split.names)
    case = "Not reduced"
    return group.difference("smoke-gradient-not-synchronised", "own", step, blamed, template, group=ranks, case=case)


def _halves(record: RecordValues) -> tuple[list[float], list[float]]:
    values = record.get("v")
    if not isinstance(values, list) or not all(isinstance(value, float | int) for value in values):
        return [], []
    return values[: len(values) // 2], values[len(values) // 2 :]


def _sums(parts: dict[int, tuple[list[float], list[float]]], count: int) -> list[tuple[float, float]]:
    """Sums of what the ranks computed, each with what the optimizer gets; empty where that is not known."""
    sizes = {len(local) for local, _ in parts.values()}
    if count < 2 or len(sizes) != 1:
        return []
    total = [sum(values) for values in zip(*(local for local, _ in parts.values()), strict=True)]
    return list(zip(total, next(iter(parts.values()))[1], strict=True))


def _added_up(job: JobRecords, roles: GroupRoles) -> Iterator[ValueDefect]:
    """Parameters whose gradients are added over ranks that hold one model: they are copies, and begin alike."""
    begun = by_rank(job, "begun", "s").get((0,), {})
    tables: dict[tuple[int, ...], RankValues] = {}
    for entry in job.ranks.values():
        for record in entry.of("left"):
            names, values = record.values.get("n"), text_map(begun.get(entry.rank, {}).get("t"))
            if isinstance(names, list) and len(names) < MAX_NAMES:
                added = values.keys() - {str(name)[:120] for name in names}
                tables.setdefault(job.members(record), {})[entry.rank] = {name: values[name] for name in sorted(added)}
    for ranks in sorted(tables.keys() - {group.ranks for group in roles.data}):
        if ranks and (split := split_by_name(tables[ranks], ranks)):
            template = (
                "before the first update {who} holds other values than ranks {group} of parameters whose gradients are "
                "added over these ranks: {tensors}"
            )
            group = GroupRole(ranks, "data", "", True)
            check = "smoke-parameters-not-broadcast"
            yield group.difference(check, "begin", BEFORE_FIRST_STEP, split, template, root=min(ranks))


def _updates(job: JobRecords, served: Set[int]) -> Iterator[ValueDefect]:
    yield from _without_step(job, served)
    updates = by_rank(job, "update", "s")
    made = {rank: [records[rank] for records in updates.values() if rank in records] for rank in job.ranks}
    observed_ranks = {rank: records for rank, records in made.items() if len(records) >= UNMOVED_STEPS}
    still_ranks = [rank for rank, rows in observed_ranks.items() if _stands_still(job.ranks[rank], rows)]
    zero = [rank for rank in still_ranks if all(not any(_numbers(entry.get("lr"))) for entry in observed_ranks[rank])]
    if still_ranks:
        template = "{who} changed no parameter in {count} digested steps, although the gradients were not zero{lr}"
        kind, case, why = ("lr", "Learning rate", ": the learning rate is 0") if zero else ("all", "All parameters", "")
        if all(row.get("bare") for rank in still_ranks for row in observed_ranks[rank]):
            template = (
                "{who} changed no parameter in {count} digested steps: none had a gradient when its optimizer stepped"
            )
        values = {"count": len(observed_ranks[still_ranks[0]]), "lr": why, "case": case}
        ranks = () if len(still_ranks) == len(job.ranks) else tuple(still_ranks)
        yield ValueDefect("smoke-update-missing", kind, 0, ranks, template, values)
    moving = {rank: records for rank, records in observed_ranks.items() if rank not in still_ranks}
    yield from _still_in_part(moving, len(observed_ranks))
    yield from _frozen(job, updates)


def _stands_still(entry: RankRecords, rows: Sequence[RecordValues]) -> bool:
    """Whether no step changes a parameter; without gradients (``bare``) also nothing else between the steps."""
    is_alike = len({str(record.values.get("t")) for record in entry.of("parameters")}) == 1
    return all(not row.get("moved") and (row.get("still") or (is_alike and row.get("bare"))) for row in rows)


def _still_in_part(moving: Mapping[int, Sequence[RecordValues]], count: int) -> Iterator[ValueDefect]:
    """Parameters that never moved on ranks whose others did. ``count``: ranks whose updates were observed."""
    holders: dict[str, list[int]] = {}
    for rank, records in moving.items():
        for name in set.intersection(*(set(text_list(entry.get("still"))) for entry in records)):
            holders.setdefault(name, []).append(rank)
    by_ranks = lists_by_key((tuple(sorted(ranks)), name) for name, ranks in holders.items())
    for culprits, names in sorted(by_ranks.items()):
        held = {name for rank in culprits for entry in moving[rank] for name in text_list(entry.get("unheld"))}
        cause, case = "their gradients are not zero", "Some parameters"
        if held.issuperset(names):
            cause, case = "no optimizer holds them", "Not held"
        template = "{tensors} did not move in {count} digested steps on {who}: {cause}"
        values = {
            "tensors": name_tensors(sorted(names)),
            "count": len(moving[culprits[0]]),
            "cause": cause,
            "case": case,
        }
        ranks = () if len(culprits) == count else culprits
        yield ValueDefect("smoke-update-missing", "still", 0, ranks, template, values)


def _numbers(value: object) -> list[float]:
    return [part for part in value if isinstance(part, float | int)] if isinstance(value, list) else []


def _frozen(job: JobRecords, updates: RecordTable) -> Iterator[ValueDefect]:
    """Frozen tensors are a choice; other ones on one rank than on the rest are none."""
    for (step,), records in sorted(updates.items()):
        frozen = {rank: tuple(text_list(record.get("frozen"))) for rank, record in records.items()}
        split = majority_split(frozen) if len(frozen) == len(job.ranks) else None
        if split:
            usual = set(frozen[split.norm])
            names = sorted({name for rank in split.differing for name in usual.symmetric_difference(frozen[rank])})
            template = "{who} does not train the same tensors as ranks {group} from step {step} on: {tensors}"
            everyone, values = GroupRole(tuple(sorted(frozen)), "data", "", True), {"tensors": name_tensors(names)}
            yield everyone.difference("smoke-update-missing", "frozen", step, split, template, **values, case="Frozen")
            return
        if any(frozen.values()) and not split:
            template = "{tensors} are not trained, on any rank"
            values = {"tensors": name_tensors(list(next(iter(frozen.values()))))}
            yield ValueDefect("smoke-update-missing", "frozen", step, (), template, values, level="note")
            return


def _without_step(job: JobRecords, served: Set[int]) -> Iterator[ValueDefect]:
    """Ranks that go on with the next batch as the others do, without an update: their optimizer skips steps.

    A step is bounded by the collectives in which the ranks meet; each rank may accumulate any batches before.
    """
    passes: dict[int, dict[int, list[GroupCalls]]] = {}
    for entry in job.ranks.values():
        for record in entry.of("inputs") if entry.rank not in served else ():
            number = record.values.get("i")
            if isinstance(number, int) and number > 0:
                calls = passes.setdefault(record.step, {}).setdefault(entry.rank, [])
                calls.append(_calls_so_far(entry, record.values.get("c")))
    is_recorded = any(calls for of_step in passes.values() for each in of_step.values() for calls in each)
    before = 0
    for step, of_step in sorted(passes.items()):
        counts = {rank: len(calls) for rank, calls in sorted(of_step.items())}
        template = "{who} made no update in step {step}: {count} forward passes, {usual} on the other ranks"
        if 0 < 2 * len(late := _fallen_behind(passes, before, step)) <= len(of_step):
            counts = {rank: sum(calls[0].values()) for rank, calls in of_step.items()}
            template = "{who} made fewer updates before step {step}: {count} collectives, {usual} on the other ranks"
        elif is_recorded:
            late = _over_the_bound(of_step, passes.get(step + 1, {}))
        else:
            late = _more_passes(counts, is_last=step == max(passes))
        others = [number for rank, number in counts.items() if rank not in late]
        if late and others:
            values = {"count": counts[late[0]], "usual": max(others), "case": "One step"}
            yield ValueDefect("smoke-update-missing", "no-step", step, late, template, values)
            return
        before = step


def _served(job: JobRecords) -> Set[int]:
    """Ranks that hand their gradients to others, update nothing, and get the parameters back."""
    idle = {rank for rank, entry in job.ranks.items() if not any(entry.of("update"))}
    calls = calls_of(job, sorted(job.ranks.keys() - idle))
    return idle if calls & {"reduce", "gather", "recv"} and calls & {"broadcast", "scatter", "send"} else set()


def _fallen_behind(passes: Mapping[int, Mapping[int, list[GroupCalls]]], before: int, step: int) -> tuple[int, ...]:
    """Ranks that have called a whole step's collectives more than another one of their group since the step before.

    Each collective has all of its group, so that such a rank has spread as many of them over fewer updates. Where the
    ranks meet less often than in each step, they may take unlike numbers of them.
    """

    def falls(rank: int, other: int) -> bool:
        begun, now = passes[before], passes[step]
        for group in now[rank][0].keys() & now[other][-1].keys():
            usual = now[other][-1][group] - begun[other][0].get(group, 0)
            calls = now[rank][0][group] - begun[rank][-1].get(group, 0)
            if {rank, other} <= {*group} and usual >= step - before and calls - usual >= usual // (step - before):
                return True
        return False

    ranks = passes[before].keys() & passes[step].keys() if step > before in passes else set()
    return tuple(rank for rank in sorted(ranks) if any(falls(rank, other) for other in ranks - {rank}))


def _over_the_bound(
    passes: Mapping[int, Sequence[GroupCalls]], following: Mapping[int, Sequence[GroupCalls]]
) -> tuple[int, ...]:
    """Ranks that got within one step as far as another did with its update: from before its collectives to behind them.

    ``passes``: by rank, what had been called before each forward pass of the step; ``following``: of the next step.
    """

    def crosses(rank: int, other: int) -> bool:
        bound = {group: calls for group, calls in following[other][0].items() if rank in group}
        bound = {group: calls for group, calls in bound.items() if calls > passes[other][0].get(group, 0)}
        is_behind = [all(each.get(group, 0) >= calls for group, calls in bound.items()) for each in passes[rank]]
        return bool(bound) and not is_behind[0] and is_behind[-1] and len(passes[rank]) != len(passes[other])

    others = following.keys() & passes.keys()
    return tuple(rank for rank in sorted(passes) if any(crosses(rank, other) for other in others - {rank}))


def _more_passes(counts: Mapping[int, int], *, is_last: bool) -> tuple[int, ...]:
    """Ranks with several times the forward passes of all others, where nothing tells what they called between these.

    The last step of a program that still runs is not at its end on all ranks.
    """
    usual = sorted(counts.values())[(len(counts) - 1) // 2]
    late = tuple(rank for rank, number in counts.items() if number > usual + is_last)
    is_even = is_last or len({number for rank, number in counts.items() if rank not in late}) == 1
    return late if is_even and not any(counts[rank] % usual for rank in late) else ()


def _calls_so_far(entry: RankRecords, counts: object) -> GroupCalls:
    """How often a rank had called collectives, by the ranks of their groups; empty where that is not known."""
    pairs = counts if isinstance(counts, list) else []
    return {
        entry.groups[pair[0]]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, int) for part in pair)
        if pair[0] in entry.groups
    }


def _not_finite(job: JobRecords) -> Iterator[ValueDefect]:
    """The first step with a NaN or Inf, and there the first place, on the ranks that made it of finite numbers."""
    places: dict[int, list[tuple[int, int, int, str]]] = {}
    for entry in job.ranks.values():
        for record in entry.records:
            values = record.values
            if record.kind == "nan":
                order = (0, values["c"] if isinstance(values.get("c"), int) else 0)
                text = filled(
                    "{0} module {1}", "before" if values.get("at") == "input" else "in", text_list([values.get("n")])[0]
                )
            elif record.kind == "backward" and isinstance(values.get("v"), str):
                order, text = (1, 0), "the loss"
            elif record.kind in {"reduced", "gradients"} and text_list(values.get("bad")):
                order, text = (2, 0), filled("the gradient of {0}", name_tensors(text_list(values.get("bad"))))
            elif record.kind in {"parameters", "params"} and text_list(values.get("bad")):
                order, text = (3, 0), filled("the parameter {0}", name_tensors(text_list(values.get("bad"))))
            else:
                continue
            places.setdefault(record.step, []).append((*order, entry.rank, text))
    if not places:
        return
    step, entries = min(places.items())
    orders = {rank: (stage, call) for stage, call, rank, _ in sorted(entries, reverse=True)}
    ranks, victims = first_makers(orders)
    *_, text = min(entries)
    template = "{who} made the first NaN or Inf in step {step}: {place}{follow}"
    values = {"place": text, "follow": filled("; {0} had it after", describe(victims)) if victims else ""}
    kind = "values" if orders[ranks[0]][0] else "activations"
    yield ValueDefect("smoke-not-finite", kind, step, () if len(ranks) == len(job.ranks) else ranks, template, values)
