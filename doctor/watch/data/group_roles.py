"""What the groups of a program serve for: whose members must agree, and whose must not. Pure.

Certain are groups that the program names (DeviceMesh dimensions, Megatron's parallel_state, group descriptions) and
those of DistributedDataParallel. Inferred are a group over which gradients are reduced (data-parallel) and a group
over which activations are reduced in the forward pass and gradients never (tensor-parallel). A group that does both is
tensor-parallel where its ranks add a batch's activations, row by row, that parameters of their own have made; else it
is not told apart, and nothing is demanded of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges
from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.sanitize import printable as clean
from doctor.engine.texts import filled
from doctor.watch.data.records import JobRecords, by_rank, text_list, text_map

NOT_RECORDED = ""
TO_ONE = frozenset({"all_reduce", "barrier", "reduce"})
"""Calls by which the rank that gets the sum of gradients hands on neither them nor what it makes of them."""


class GroupRole(msgspec.Struct, frozen=True):
    """One group whose purpose is known."""

    ranks: tuple[int, ...]
    role: str
    """``model``: its ranks hold one model together, and work on the same rows. ``data``: each has rows of its own.
    ``shards``: each has a share of the parameters."""
    reason: str
    certain: bool

    @property
    def inferred(self) -> str:
        """Why its ranks are taken for a group with this role; empty where the program says so."""
        return "" if self.certain else self.reason

    def difference(
        self, check: str, kind: str, step: int, split: Split[int], template: str, **values: Any
    ) -> ValueDefect:
        """A defect of the ranks that differ from the rest of the group, in the words of ``template``."""
        others = format_ranges(split.agreeing or self.ranks)
        values = {"group": others, "agree": len(split.agreeing), "tensors": name_tensors(split.names), **values}
        values["members"] = list(self.ranks)
        return ValueDefect(check, kind, step, split.differing, template, values, tie=split.tie, inferred=self.inferred)


class GroupRoles(msgspec.Struct, frozen=True):
    """All groups, and what is not known of some."""

    model: tuple[GroupRole, ...]
    data: tuple[GroupRole, ...]
    shards: tuple[GroupRole, ...]
    """Over which the gradients of shards are reduced; nothing is known of the rows of their ranks."""
    unclear: tuple[str, ...]

    def sentences(self) -> list[str]:
        """What was inferred, in words."""
        inferred = (
            ("ranks {0} were taken as a tensor-parallel group, by {1}", self.model),
            ("ranks {0} were taken as a data-parallel group, by {1}", self.data),
        )
        texts = [filled(text, format_ranges(of.ranks), of.reason) for text, groups in inferred for of in groups]
        return [*texts, *self.unclear]


def name_tensors(names: Sequence[str]) -> str:
    """Some of the names, and how many more.

    >>> name_tensors(["a", "b", "c", "d"])
    'a, b, c and 1 more tensor'
    """
    listed = ", ".join(names[:3])
    if len(names) == 4:
        return filled("{0} and 1 more tensor", listed)
    return filled("{0} and {1} more tensors", listed, len(names) - 3) if len(names) > 4 else listed


def group_roles(job: JobRecords) -> GroupRoles:
    """The roles of all groups of two ranks and more that are used."""
    uses: dict[tuple[int, ...], dict[str, str]] = {}
    for entry in job.ranks.values():
        for record in entry.of("use"):
            ranks = job.members(record)
            if len(ranks) > 1 and entry.rank in ranks:
                uses.setdefault(ranks, {}).setdefault(
                    str(record.values.get("u")), clean(str(record.values.get("why")))[:80]
                )
    roles: dict[str, list[GroupRole]] = {"model": [], "data": [], "shards": []}
    unclear = []
    for ranks, reasons in sorted(uses.items()):
        if reason := reasons.pop("shards", ""):
            roles["shards"].append(GroupRole(ranks, "shards", reason, True))
        named = next((purpose for purpose in ("model", "data") if purpose in reasons), "")
        role = named or _inferred_role(job, ranks, reasons)
        if role in roles:
            roles[role].append(GroupRole(ranks, role, reasons.get(named) or next(iter(reasons.values())), bool(named)))
        elif role:
            unclear.append(role)
    return GroupRoles(tuple(roles["model"]), tuple(roles["data"]), tuple(roles["shards"]), tuple(unclear))


def _inferred_role(job: JobRecords, ranks: tuple[int, ...], reasons: Mapping[str, str]) -> str:
    """By what is reduced over the group; else in words why nothing is demanded of it, or empty."""
    has_own = "gradients" in reasons and bool(own_tensors(job, ranks))
    if "gradients" not in reasons or ("rows" in reasons and has_own):
        return "model" if reasons else ""
    if len(reasons) > 1:
        text = "ranks {0} reduce activations and gradients over one group: nothing is demanded of it"
        return filled(text, format_ranges(ranks))
    if not has_own:
        to_one = reasons["gradients"].startswith("reduce ") and not calls_of(job, ranks) <= TO_ONE
        return "" if to_one else "data"
    if _read_the_same(job, ranks):
        return "model"
    return filled(
        "ranks {0} reduce a part of their gradients over one group: nothing is demanded of it", format_ranges(ranks)
    )


def calls_of(job: JobRecords, ranks: Sequence[int]) -> set[str]:
    """The kinds of collectives that these ranks have called; `NOT_RECORDED` where that is not known of one."""
    updates = (record for rank in ranks if rank in job.ranks for record in job.ranks[rank].of("update"))
    return {call for record in updates for call in text_list(record.values.get("calls")) or [NOT_RECORDED]}


def _read_the_same(job: JobRecords, ranks: Sequence[int]) -> bool:
    """Whether these ranks work on the same rows in each step, as those of one model do: rows that change."""
    tables = [
        records for records in by_rank(job, "inputs", "s", "i").values() if all(rank in records for rank in ranks)
    ]
    rows = [{str(records[rank].get("a")) for rank in ranks} for records in tables]
    return all(len(each) == 1 for each in rows) and len({text for each in rows for text in each}) > 1


def own_tensors(job: JobRecords, ranks: Sequence[int]) -> set[str]:
    """Parameters that nothing reduces over these ranks and that began differently: each rank's own, as experts are."""
    begun = by_rank(job, "begun", "s").get((0,), {})
    records = [begun[rank] for rank in ranks if rank in begun]
    lists = [record.get("loose") for record in records]
    unreduced = (record for rank in ranks if rank in job.ranks for record in job.ranks[rank].of("left"))
    lists += [record.values.get("n") for record in unreduced if job.members(record) == tuple(ranks)]
    loose = {name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)}
    return {name for name in loose if len({text_map(record.get("t")).get(name) for record in records}) > 1}
