"""Inputs, masks and random generators: the same inside a model, other ones over data-parallel ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges, holders_of_same, majority_split
from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.texts import filled
from doctor.watch.data.group_roles import GroupRole, GroupRoles
from doctor.watch.data.records import JobRecords, RankValues, RecordTable, RecordValues, by_rank, text_list, text_map

ALIKE = 0.5
"""Share of equal elements from which two inputs that differ are one batch, differently masked."""
CERTAIN_STEPS = 2
LEAST_VARIED = 8
"""Different values among the samples of an input that is no mask, length or label."""
_GENERATORS = {"python": "random", "numpy": "numpy.random", "torch": "torch", "device": "the device's"}


def input_defects(job: JobRecords, roles: GroupRoles) -> Iterator[ValueDefect]:
    """The first step in which what must agree does not."""
    inputs, states = by_rank(job, "inputs", "s", "i"), by_rank(job, "random", "s", "i")
    for group in roles.model:
        rules = (_inside_model(inputs, states, group), _draws(job, states, group), _masked(job, group))
        defect = next((defect for rule in rules for defect in rule), None)
        if defect:
            yield defect
    for group in roles.data:
        equal_rows = list(_over_data(inputs, group))
        yield from equal_rows or _behind_masks(inputs, group)
        yield from _batch_sizes(inputs, group)
        yield from _equal_generators(states, group)


def _inside_model(inputs: RecordTable, states: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    for (step, number), records in sorted(inputs.items()):
        members = {rank: text_map(records[rank].get("a")) for rank in group.ranks if rank in records}
        if len(members) < len(group.ranks):
            continue
        for path in next(iter(members.values())):
            tensors = {rank: entry[path] for rank, entry in members.items() if _is_input(entry.get(path))}
            split = majority_split({rank: tensor[0] for rank, tensor in tensors.items() if tensor[0]})
            if split is None:
                continue
            generators = [
                name
                for name in _GENERATORS
                if (drawn := _state_split(states.get((step, number), {}), name, group.ranks))
                and set(drawn.differing) & set(split.differing)
            ]
            share = _alike(tensors, split)
            masked = share >= ALIKE
            drawn_from = ", ".join(_GENERATORS[name] for name in generators)
            by = filled("; the states of {0} differ, too", drawn_from) if generators else ""
            phrase = "another mask in" if masked else "other rows in"
            template = "{who} has {what} input {input} than the rest of the model{rest}, in step {step}{by}"
            if split.tie:
                template = "{who}, which hold one model, have {what} input {input} in step {step}{by}"
            rest = filled(", which ranks {0} have alike", format_ranges(split.agreeing)) if split.agreeing else ""
            check, kind = ("smoke-mask-differs", "mask") if masked else ("smoke-shards-wrong", "batch")
            case = ["Share", *(["Seed"] if generators else [])] if kind == "batch" else []
            values = {"input": path, "case": case, "share": round(share, 2), "rest": rest, "what": phrase}
            yield group.difference(check, kind, step, split, template, **values, generators=generators, by=by)
            return


def _is_input(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and isinstance(value[0], str) and isinstance(value[3], list)


def _alike(tensors: dict[int, list[Any]], split: Split[int]) -> float:
    """The share of sampled elements that ranks which differ have in common; of the pair most unlike."""
    first = split.norm
    shares = []
    for rank in split.differing:
        ours, theirs = tensors[rank][3], tensors[first][3]
        if rank != first and ours and len(ours) == len(theirs):
            shares.append(sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours))
    return min(shares, default=0.0)


def _state_split(states: RankValues, name: str, ranks: tuple[int, ...]) -> Split[int] | None:
    values = {rank: str(text_map(states[rank].get("g")).get(name, "")) for rank in ranks if rank in states}
    return majority_split({rank: value for rank, value in values.items() if value})


def _rests(name: str, *records: RecordValues | None) -> bool:
    """Whether nothing was drawn from a generator: its state is the same before and behind the step."""
    states = {str(text_map(record.get("g")).get(name, "")) if record else "" for record in records}
    return len(states) == 1 and "" not in states


def _draws(job: JobRecords, states: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    """The same inputs, and another loss: dropout, by a generator whose states differ."""
    for (step,), records in by_rank(job, "backward", "s").items():
        losses = {rank: str(records[rank].get("v")) for rank in group.ranks if rank in records}
        split = majority_split(losses) if len(losses) == len(group.ranks) else None
        if split is None:
            continue
        at, behind = states.get((step, 1), {}), states.get((step, 0), {})
        for name in ("torch", "device"):
            drawn = _state_split(at, name, group.ranks)
            if drawn and not all(_rests(name, at.get(rank), behind.get(rank)) for rank in group.ranks):
                template = (
                    "{who} draws other {generator} numbers, such as the mask of dropout, in the forward pass of step "
                    "{step} than the rest of its model ({group}): the losses differ, the inputs do not"
                )
                if drawn.tie:
                    template = (
                        "{who}, which hold one model, draw other {generator} numbers, such as the mask of dropout, in "
                        "step {step} than the other: the losses differ, the inputs do not"
                    )
                values = {"group": format_ranges(group.ranks), "generator": name, "generators": [name]}
                yield group.difference("smoke-mask-differs", filled("draws {0}", name), step, drawn, template, **values)
                return
        if not step and (apart := _grown_apart(job, group, split)):
            template = (
                "{who} has another loss in step {step} than the rest of its model ({group}) from the same inputs, and "
                "parameters that were alike are not any more: {tensors}; each rank draws masks or noise alone"
            )
            if apart.tie:
                template = (
                    "{who}, which hold one model, have another loss in step {step} from the same inputs, and "
                    "parameters that were alike are not any more: {tensors}; each rank draws masks or noise alone"
                )
            yield group.difference("smoke-mask-differs", "draws", step, apart, template, generators=[])
            return


def _masked(job: JobRecords, group: GroupRole) -> Iterator[ValueDefect]:
    """Equal values within the forward pass, on which ranks of one model put different masks or noise."""
    for (step, *_), records in sorted(by_rank(job, "masked", "s", "i", "n").items()):
        members = [records[rank] for rank in group.ranks if rank in records]
        if len(members) < len(group.ranks) or len({(str(r.get("v")), str(r.get("sh"))) for r in members}) > 1:
            continue
        split = majority_split({rank: str(records[rank].get("m")) for rank in group.ranks})
        if split:
            template = (
                "{who} puts another random mask or noise on equal values than the rest of its model ({group}), in the "
                "forward pass of step {step}{place}"
            )
            if split.tie:
                template = (
                    "{who}, which hold one model, put another random mask or noise on equal values than the other, in "
                    "the forward pass of step {step}{place}"
                )
            line = text_list([members[0].get("at")])[0]
            place = filled(", at {0}", line) if line else ""
            yield group.difference("smoke-mask-differs", "masked", step, split, template, place=place, generators=[])
            return


def _grown_apart(job: JobRecords, group: GroupRole, losses: Split[int]) -> Split[int] | None:
    """Ranks of one model whose parameters began alike and differ after the first step, where their losses did, too.

    Shards differ from the beginning, or, filled with zeros, from the first step on: their losses are the same.
    """
    begun, after = by_rank(job, "begun", "s").get((0,), {}), by_rank(job, "parameters", "s").get((0,), {})
    if not all(rank in begun and rank in after for rank in group.ranks):
        return None
    first = {rank: text_map(begun[rank].get("t")) for rank in group.ranks}
    then = {rank: text_map(after[rank].get("t")) for rank in group.ranks}
    names = [
        name
        for name, digest in first[group.ranks[0]].items()
        if digest
        and all(first[rank].get(name) == digest for rank in group.ranks)
        and len({str(then[rank].get(name)) for rank in group.ranks}) > 1
    ]
    return msgspec.structs.replace(losses, names=tuple(names)) if names else None


def _over_data(inputs: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    """Ranks that work on the same rows in two steps; one whose rows never change measures, and trains on nothing."""
    same: dict[tuple[int, ...], list[int]] = {}
    batches: dict[int, set[str]] = {}
    for (step, _), records in sorted(inputs.items()):
        digests: dict[int, str] = {}
        for rank in group.ranks:
            entry = text_map(records[rank].get("a")) if rank in records else {}
            parts = [f"{path} {tensor[0]}" for path, tensor in sorted(entry.items()) if _is_input(tensor)]
            if parts:
                digests[rank] = " ".join(parts)
                batches.setdefault(rank, set()).add(digests[rank])
        for ranks in holders_of_same(digests):
            same.setdefault(ranks, []).append(step)
    for readers, steps in sorted(same.items()):
        changing = any(len(batches[rank]) > 1 for rank in readers)
        if len(steps) < CERTAIN_STEPS:
            continue
        everybody = readers == group.ranks
        template = (
            "the rows of {who} are those of another data-parallel rank from step {step} on: "
            "one batch is learnt {count} times"
        )
        yield ValueDefect(
            "smoke-shards-wrong", "same rows", steps[0],
            () if everybody and len(readers) > 2 else readers, template, {"count": len(readers)},
            level="error" if changing else "note", tie=not everybody or len(readers) == 2,
            inferred=group.inferred,
        )  # fmt: skip


def _behind_masks(inputs: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    """One input that is the same on several ranks and new in each step, while another one, a random mask, differs."""
    same: dict[tuple[str, str, tuple[int, ...]], dict[str, int]] = {}
    for (step, _), records in sorted(inputs.items()):
        entries = {rank: text_map(records[rank].get("a")) for rank in group.ranks if rank in records}
        for path in {path for entry in entries.values() for path in entry}:
            tensors = {rank: entry[path] for rank, entry in entries.items() if _is_input(entry.get(path))}
            rows = {rank: tensor for rank, tensor in tensors.items() if len(set(tensor[3])) >= LEAST_VARIED}
            shapes = {str(tensor[1]) for tensor in rows.values()}
            for ranks in holders_of_same({rank: str(tensor[0]) for rank, tensor in rows.items()}):
                if len(shapes) == 1:
                    same.setdefault((path, shapes.copy().pop(), ranks), {})[str(rows[ranks[0]][0])] = step
    for (path, _, readers), digests in sorted(same.items()):
        if len(digests) >= CERTAIN_STEPS:
            template = (
                "input {input} of {who} has the values of another data-parallel rank in each step from step {step} on, "
                "and only other inputs differ: one batch is learnt {count} times"
            )
            values = {"count": len(readers), "input": path}
            everybody = readers == group.ranks
            yield ValueDefect(
                "smoke-shards-wrong", "same rows", min(digests.values()),
                () if everybody and len(readers) > 2 else readers, template, values,
                level="warning", tie=not everybody or len(readers) == 2, inferred=group.inferred,
            )  # fmt: skip
            return


def _batch_sizes(inputs: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    differing: list[tuple[int, Split[int], dict[int, int]]] = []
    for (step, number), records in sorted(inputs.items()):
        sizes = {}
        for rank in group.ranks:
            entry = text_map(records[rank].get("a")) if rank in records else {}
            shapes = [tensor[1] for tensor in entry.values() if _is_input(tensor) and tensor[1]]
            if shapes and isinstance(shapes[0], list) and isinstance(shapes[0][0], int):
                sizes[rank] = shapes[0][0]
        split = majority_split(sizes) if number == 1 and len(sizes) == len(group.ranks) else None
        if split:
            differing.append((step, split, sizes))
    # Batches that are filled up to a number of tokens, or hold what others send, have other sizes in each step.
    if len(differing) >= 3 and len({tuple(sizes.values()) for *_, sizes in differing}) == 1:
        step, split, sizes = differing[0]
        listed = ", ".join(f"rank {rank} {size}" for rank, size in list(sizes.items())[:8])
        template = (
            "{who} has batches of another size than the other data-parallel ranks from step "
            "{step} on: {sizes}; the mean of gradients weighs rows unequally"
        )
        defect = group.difference("smoke-shards-wrong", "batch size", step, split, template, sizes=listed)
        yield msgspec.structs.replace(defect, level="warning")


def _equal_generators(states: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    for name in ("torch", "device"):
        steps = []
        for (step, _), records in sorted(states.items()):
            drawn = {str(text_map(records[rank].get("g")).get(name, rank)) for rank in group.ranks if rank in records}
            if len(drawn) == 1 and all(rank in records for rank in group.ranks):
                steps.append(step)
        moved = {str(text_map(record.get("g")).get(name)) for records in states.values() for record in records.values()}
        if len(steps) > CERTAIN_STEPS and len(moved) > CERTAIN_STEPS:
            template = (
                "the state of {generator} is the same on the data-parallel ranks {group}: they draw "
                "the same dropout for different rows"
            )
            yield ValueDefect(
                "smoke-mask-repeated", filled("draws {0}", name), steps[0], (), template,
                {"generator": name, "group": format_ranges(group.ranks)}, level="note",
            )  # fmt: skip
