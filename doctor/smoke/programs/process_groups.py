"""The plan as agents and workers get it, and the process groups that it needs. Pure; the controller has it as well."""

from __future__ import annotations

from typing import TypedDict

from doctor.remote.runtime.host_texts import filled

HALF_SIZE = 4
"""Devices 0-3 and 4-7 of a server of the Atlas training series (910A) are two networks of their own."""
GROUP_SIZES = (1, 2, 4, 8)


class PlannedRank(TypedDict, total=False):
    """Where one rank runs: see `doctor.smoke.model.RankPlacement`."""

    rank: int
    host: str
    local: int
    device: int
    ordinal: int


class PlannedLayout(TypedDict, total=False):
    """How the model is spread: see `doctor.smoke.model.Layout`. What is its default may be absent."""

    dp: int
    tp: int
    pp: int
    zero: bool
    accumulate: int
    recompute: bool


class Plan(TypedDict, total=False):
    """See `doctor.smoke.model.SmokePlan`."""

    backend: str
    places: list[PlannedRank]
    layouts: list[PlannedLayout]
    stages: list[str]
    group_rule: str
    library: str
    steps: int
    learn_steps: int
    seed: int
    max_bytes: int
    timeout: float
    budget: float
    soak: float
    device_seconds: float
    interface: str
    environment: str
    variables: dict[str, str]
    keep: list[str] | None


def why_no_group(plan: Plan, ranks: list[int]) -> str:
    """Why these ranks cannot form a group, or the empty string.

    Source, for "Atlas Training Series": hiascend.com, HCCL API reference, create_group (hcclpython_07_0003): "The
    number of ranks selected for each server must be the same (the number must be 1, 2, 4, or 8). When the number of
    ranks for each server is 2 or 4, Ascend AI Processors selected must belong to the same cluster", of devices 0-3 or
    4-7. Messages between two ranks have a group of their own in torch_npu, so that the rule holds for pairs as well.
    """
    if plan.get("group_rule", "") != "halves" or len(ranks) < 2:
        return ""
    devices_by_host: dict[str, list[int]] = {}
    for rank in ranks:
        place = plan["places"][rank]
        devices_by_host.setdefault(place["host"], []).append(place.get("device", -1))
    sizes = {len(devices) for devices in devices_by_host.values()}
    if len(sizes) > 1:
        return "it has another number of NPUs on each host"
    size = min(sizes)
    if size not in GROUP_SIZES:
        return filled("it has {0} NPUs on a host", size)
    for host, devices in devices_by_host.items():
        if 1 < size <= HALF_SIZE and len({device // HALF_SIZE for device in devices}) > 1:
            numbers = ", ".join(map(str, sorted(devices)))
            return filled("NPUs {0} of {1} are not in one half (0-3 or 4-7)", numbers, host)
    return ""


def partitions(plan: Plan) -> list[tuple[str, list[list[int]]]]:
    """Every way in which the layouts split the world into process groups, each once: a name, and the groups.

    Example: layouts dp=4 and dp=2,tp=2 of 4 ranks give ``[("tp2", [[0, 1], [2, 3]]), ("dp2", [[0, 2], [1, 3]])]``.
    """
    names_by_groups: dict[tuple[tuple[int, ...], ...], dict[str, None]] = {}
    for layout in plan["layouts"]:
        dp, tp, pp = layout.get("dp", 1), layout.get("tp", 1), layout.get("pp", 1)
        ranks = [[[(p * dp + d) * tp + t for t in range(tp)] for d in range(dp)] for p in range(pp)]
        splits = {
            f"tp{tp}": [ranks[p][d] for p in range(pp) for d in range(dp)],
            f"dp{dp}": [[ranks[p][d][t] for d in range(dp)] for p in range(pp) for t in range(tp)],
            f"pp{pp}": [[ranks[p][d][t] for p in range(pp)] for d in range(dp) for t in range(tp)],
        }
        for name, groups in splits.items():
            if 1 < len(groups[0]) < len(plan["places"]):
                names_by_groups.setdefault(tuple(map(tuple, groups)), {})[name] = None
    return [("/".join(names), [list(group) for group in groups]) for groups, names in names_by_groups.items()]
