"""What the groups of a program serve for: whose members must agree, and whose must not. Pure.

Certain are groups that the program names (DeviceMesh dimensions, Megatron's parallel_state, group descriptions) and
those of DistributedDataParallel. Inferred are a group over which gradients are reduced (data-parallel) and a group
over which activations are reduced in the forward pass and gradients never (tensor-parallel). A group that does both is
not told apart, and nothing is demanded of it.
"""

from __future__ import annotations

import msgspec

from doctor.engine.sanitize import printable as clean
from doctor.smoke.numerics.defect import format_ranges
from doctor.watch.data.records import JobRecords


class GroupRole(msgspec.Struct, frozen=True):
    """One group whose purpose is known."""

    ranks: tuple[int, ...]
    role: str
    """``model``: its ranks hold one model together, and work on the same rows. ``data``: each has rows of its own.
    ``shards``: each has a share of the parameters.
    """
    reason: str
    certain: bool


class GroupRoles(msgspec.Struct, frozen=True):
    """All groups, and what could not be told of some."""

    model: tuple[GroupRole, ...]
    data: tuple[GroupRole, ...]
    shards: tuple[GroupRole, ...]
    """Over which the gradients of shards are reduced; nothing is known of the rows of their ranks."""
    unclear: tuple[str, ...]

    def sentences(self) -> list[str]:
        """What was inferred, in words."""
        tensor_groups = [
            f"ranks {format_ranges(group.ranks)} are taken for a tensor-parallel group: {group.reason}"
            for group in self.model
        ]
        data_groups = [
            f"ranks {format_ranges(group.ranks)} are taken for a data-parallel group: {group.reason}"
            for group in self.data
        ]
        return [*tensor_groups, *data_groups, *self.unclear]


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
        for purpose in ("model", "data"):
            if purpose in reasons:
                roles[purpose].append(GroupRole(ranks, purpose, reasons[purpose], True))
                break
        else:
            if len(reasons) > 1:
                unclear.append(
                    f"ranks {format_ranges(ranks)} reduce activations and gradients over one group: "
                    f"nothing is demanded of it"
                )
            elif "gradients" in reasons:
                roles["data"].append(GroupRole(ranks, "data", reasons["gradients"], False))
            elif "activations" in reasons:
                roles["model"].append(GroupRole(ranks, "model", reasons["activations"], False))
    return GroupRoles(tuple(roles["model"]), tuple(roles["data"]), tuple(roles["shards"]), tuple(unclear))
