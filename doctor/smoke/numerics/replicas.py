"""Parameters that several ranks must hold alike: after the first broadcast, and after every step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges
from doctor.analysis.values.value_defect import BEFORE_FIRST_STEP
from doctor.engine.texts import filled
from doctor.smoke.numerics.defect import CameBy, Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace, errors_split, field_values
from doctor.smoke.numerics.reference_run import LOSS_TOLERANCE

BROADCAST, DIVERGE = "smoke-parameters-not-broadcast", "smoke-parameters-diverge"

OTHER_AT_BEGIN = (
    "before the first step {who} holds other values of the tensors that tensor parallelism does not shard than the "
    "rest of ranks {group}"
)
TIED_AT_BEGIN = (
    "before the first step the ranks {group} hold different values of the tensors that tensor parallelism does not "
    "shard"
)
EVERYWHERE = {
    "data": "after step {step} the ranks of each data-parallel group hold different parameters; expected the same",
    "tensor": "after step {step} the ranks of each tensor-parallel group hold different values of the unsharded "
    "tensors; expected the same",
}
OTHER = {
    "data": "after step {step} {who} holds other parameters than the rest of data-parallel group {group}",
    "tensor": "after step {step} {who} holds other values of the unsharded tensors than the rest of tensor-parallel "
    "group {group}",
}
TIED = {
    "data": "after step {step} the ranks of data-parallel group {group} hold different parameters; expected the same",
    "tensor": "after step {step} the ranks of tensor-parallel group {group} hold different values of the unsharded "
    "tensors; expected the same",
}

OF_ONE_RANK = (
    "after step {step} the parameters of {who} differ from the reference run's by {share} of their norm, and its "
    "gradient does not: check that rank's device and memory"
)


def replica_defects(trace: LayoutTrace, tolerance: float = LOSS_TOLERANCE) -> Iterator[Defect]:
    """What is wrong before the first step; and the first step after which replicas differ."""
    began = list(_not_broadcast(trace))
    for group in trace.slices if not began else ():  # what tensor parallelism keeps whole
        split = trace.differing(trace.begun, group, "replicated", "error", tolerance)
        if split and not began:
            template = TIED_AT_BEGIN if split.tie else OTHER_AT_BEGIN
            began = [_divergence_defect(trace, BEFORE_FIRST_STEP, "begin", split, template, group, root=True)]
    yield from began or _first_divergence(trace, tolerance)


def _not_broadcast(trace: LayoutTrace) -> Iterator[Defect]:
    late: dict[int, str] = {}
    for group in trace.replicas:
        after, before = field_values(trace.begun, group, "params"), field_values(trace.begun, group, "before")
        for rank, value in sorted(after.items()):
            if len(group) > 1 and group[0] in before and value != before[group[0]]:
                swapped = "swapped" if value in before.values() else "other"
                late[rank] = "kept" if value == before.get(rank) else swapped
    if not late:
        return
    kind = "kept" if set(late.values()) == {"kept"} else "other" if "other" in late.values() else "swapped"
    end = {
        "kept": "the same parameters as before it",
        "swapped": "the parameters that another rank made",
        "other": "parameters that no rank made",
    }[kind]
    roots = [group[0] for group in trace.replicas if set(group) & set(late)]
    everybody = set(late) == {rank for group in trace.replicas for rank in group[1:]}
    template = "after the first broadcast {who} has {end}; expected those of rank {root}, the first of the group"
    if everybody and len(late) > 1:
        template = "after the first broadcast every rank but the first of its data-parallel group has {end}"
    values = {"end": end, "root": format_ranges(roots)}
    ranks = () if everybody and len(late) > 1 else tuple(late)
    kind += " all" * (not ranks)
    came_by: CameBy = "broadcast" if kind == "other" else ""
    yield Defect(BROADCAST, kind, BEFORE_FIRST_STEP, ranks, template, values, root=True, came_by=came_by, trace=trace)


def _first_divergence(trace: LayoutTrace, tolerance: float) -> Iterator[Defect]:
    for step, events in enumerate(trace.steps):
        over_data, over_tensor = (
            {group: trace.differing(events, group, bits, "params_error", tolerance) for group in groups}
            for groups, bits in ((trace.replicas, "params"), (trace.slices, "replicated"))
        )
        for kind, groups in (("data", over_data), ("tensor", over_tensor)):
            parted = {group: split for group, split in groups.items() if split}
            if parted:
                defect = _divergence(trace, step, kind, parted, len(parted) == len(groups))
                of_ranks = field_values(events, defect.ranks, "grad_error").values()
                is_own = (
                    kind == "tensor" and len(of_ranks) == len(defect.ranks) and max(of_ranks, default=1) <= tolerance
                )
                # Its gradient is right, and so is what came to it.
                yield msgspec.structs.replace(defect, came_by="") if is_own else defect
        if any((*over_data.values(), *over_tensor.values())):
            return
        errors = field_values(events, trace.ranks, "params_error")
        if split := errors_split(errors, tolerance):
            gradients = field_values(events, split.differing, "grad_error").values()
            is_complete = len(errors) == trace.layout.world and not trace.layout.zero
            if is_complete and max(gradients, default=1.0) <= tolerance:
                share = float(f"{max(errors.values()):.2g}")
                yield Defect(DIVERGE, "own", step, split.differing, OF_ONE_RANK, {"share": share}, trace=trace)
            return


def _divergence(
    trace: LayoutTrace, step: int, kind: str, parted: dict[tuple[int, ...], Split[int]], everywhere: bool
) -> Defect:
    """Replicas that no longer agree. From the first step on, in every group and without a majority: the program."""
    clear = {group: split for group, split in parted.items() if not split.tie}
    if everywhere and not clear and not step:
        return _divergence_defect(
            trace, step, filled("{0} all", kind), Split((), ()), EVERYWHERE[kind], next(iter(parted))
        )
    blamed = clear or parted
    group = next(iter(blamed))
    against = tuple(sorted(rank for split in blamed.values() for rank in split.differing))
    agree = tuple(rank for split in clear.values() for rank in split.agreeing)
    template = (OTHER if clear else TIED)[kind]
    return _divergence_defect(trace, step, kind, Split(against, agree), template, group)


def _divergence_defect(
    trace: LayoutTrace,
    step: int,
    kind: str,
    split: Split[int],
    template: str,
    group: tuple[int, ...],
    root: bool = False,
) -> Defect:
    values = {"group": format_ranges(group), "agree": len(split.agreeing), "likely": _likely(trace, kind)}
    tie = split.tie and bool(split.differing)
    came_by: dict[str, CameBy] = {"data": "all_gather" if trace.layout.zero else "", "tensor": "all_reduce"}
    return Defect(
        DIVERGE, kind, step, split.differing, template + "{likely}", values,
        root=root, tie=tie, came_by=came_by.get(kind, ""), trace=trace,
    )  # fmt: skip


def _likely(trace: LayoutTrace, kind: str) -> str:
    """What does this to a program that is otherwise right."""
    if kind == "tensor all":
        return "; most likely the backward pass lacks an all-reduce over the tensor-parallel group"
    if kind == "data all":
        return "; most likely each rank updates with a gradient of its own"
    # Each rank of a sharded optimizer has the gradient of its shard, and of a cut tensor that of its slice.
    alone = kind == "data" and not trace.layout.zero
    return "" if not alone else "; as all its gradients agreed, check that rank's device and memory"
