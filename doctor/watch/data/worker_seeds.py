"""The generators of data-loader workers: the same inside a model, other ones for other data. Pure.

That two workers begin alike matters where they draw: of ranks that hold one model it is a defect only where their
inputs differ as well; all else is a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from doctor.analysis.values.splits import format_ranges, majority_split, names_held_alike
from doctor.analysis.values.value_defect import ValueDefect
from doctor.watch.data.group_roles import GroupRole, GroupRoles
from doctor.watch.data.records import JobRecords, RankValues, RecordTable, by_rank, text_map

CHECK = "smoke-loader-seed-differs"
GENERATORS = {"python": "random", "numpy": "numpy.random", "torch": "torch"}


def worker_defects(job: JobRecords, roles: GroupRoles, inputs: Sequence[ValueDefect]) -> Iterator[ValueDefect]:
    """Workers that draw other numbers than they should. ``inputs``: what is wrong with the inputs themselves."""
    workers: RecordTable = by_rank(job, "worker", "l", "e", "w")
    masked = {rank: defect.step for defect in inputs if defect.kind == "mask" for rank in defect.ranks}
    for group in roles.model:
        yield from _inside_model(workers, group, masked)
    for group in roles.data:
        yield from _over_data(workers, group)


def _states(records: RankValues, name: str, group: GroupRole) -> dict[int, str]:
    """What each rank of the group says; empty where one of them says nothing."""
    states = {rank: str(text_map(records[rank].get("g")).get(name, "")) for rank in group.ranks if rank in records}
    return states if len(states) == len(group.ranks) and all(states.values()) else {}


def _inside_model(workers: RecordTable, group: GroupRole, masked: dict[int, int]) -> Iterator[ValueDefect]:
    for (loader, _, worker), records in workers.items():
        splits = {name: majority_split(states) for name in GENERATORS if (states := _states(records, name, group))}
        differing = {name: split for name, split in splits.items() if split}
        if not differing:
            continue
        split = next(iter(differing.values()))
        assert split
        steps = [masked[rank] for rank in split.differing if rank in masked]
        names = [GENERATORS[name] for name in differing]
        template = (
            "worker {worker} of loader {loader} on {who} draws other {generators} numbers than on the rest of its "
            "model ({group})"
        )
        values = {"group": format_ranges(group.ranks), "worker": worker, "loader": loader, "generators": names}
        defect = group.difference(CHECK, "workers", min(steps, default=0), split, template, **values)
        yield msgspec.structs.replace(defect, level="error" if steps else "note", inferred=group.reason)
        return


def _over_data(workers: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    for (loader, _, worker), records in workers.items():
        states = {rank: text_map(records[rank].get("g")) for rank in group.ranks if rank in records}
        drawn = {
            rank: {title: str(state[name]) for name, title in GENERATORS.items() if state.get(name)}
            for rank, state in states.items()
        }
        for ranks, generators in names_held_alike(drawn).items():
            template = (
                "worker {worker} of loader {loader} begins with the same {generators} numbers on the data-parallel "
                "ranks {group}: what it draws for their different rows is alike"
            )
            listed = ", ".join(generators)
            values = {"worker": worker, "loader": loader, "generators": listed, "group": format_ranges(ranks)}
            yield ValueDefect(CHECK, "repeated", 0, (), template, values, level="note")
            return
