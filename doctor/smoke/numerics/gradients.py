"""The gradient after its reduction: the mean of all ranks', the same on each, as large as the reference run's. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from doctor.analysis.values.splits import format_ranges
from doctor.engine.texts import filled
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.numerics.defect import CameBy, Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace, field_values
from doctor.smoke.numerics.optimizer_shards import sharded_defects
from doctor.smoke.numerics.reference_run import MajorityReference, relative_error

SUMMED, NOT_SYNCHRONISED = "smoke-gradient-summed", "smoke-gradient-not-synchronised"
MEAN_MARGIN = 1.001
"""A mean is never longer than the longest of what it is the mean of; rounding stays far below this."""


def gradient_defects(trace: LayoutTrace, reference: MajorityReference) -> Iterator[Defect]:
    """The first step whose reduced gradient is not the same on all ranks, or not a mean.

    Of a sharded optimizer, whose ranks told what each had in hand, its own rules say who is at fault.
    """
    if sharded := sharded_defects(trace):
        yield from sharded
        return
    for step, events in trace.steps_from_right_parameters(reference.tolerance):
        wrong = wrong_ranks(trace, events, reference.tolerance)
        defects = [
            *_not_synchronised(trace, step, events, wrong, reference.tolerance),
            *_summed(trace, reference, step, events),
        ]
        if defects:
            yield from defects
            return


def gradient_norm(trace: LayoutTrace, events: dict[int, TrainingStep]) -> float | None:
    """The whole gradient's norm after the reduction, from the shares of the ranks that hold one model together."""
    first = trace.models[0] if not trace.layout.zero else tuple(trace.ranks)
    shares = field_values(events, first, "grad")
    return math.sqrt(sum(share * share for share in shares.values())) if len(shares) == len(first) else None


def wrong_ranks(trace: LayoutTrace, events: dict[int, TrainingStep], tolerance: float) -> tuple[int, ...]:
    """The ranks whose reduced gradient is not the reference run's, where that is known of all and right on some."""
    errors = field_values(events, trace.ranks, "grad_error")
    wrong = tuple(rank for rank, error in errors.items() if error > tolerance)
    return wrong if len(errors) == trace.layout.world > len(wrong) else ()


def _not_synchronised(
    trace: LayoutTrace, step: int, events: dict[int, TrainingStep], wrong: tuple[int, ...], tolerance: float
) -> Iterator[Defect]:
    # What the reference run says is no vote: it is right where most ranks are wrong.
    if wrong and not any(_is_unreduced(events[rank]) for rank in wrong if trace.layout.dp > 1):
        yield _wrong_gradient(trace, step, events, wrong)
        return
    if trace.layout.zero:
        return  # each rank reduces a shard of its own
    against: list[int] = []
    unreduced: list[int] = []
    tie = False
    for group in trace.replicas:
        split = trace.differing(events, group, "grad_digest", "grad_error", tolerance)
        if split:
            against += split.differing
            tie = tie or split.tie
            unreduced += [rank for rank in split.differing if _is_unreduced(events[rank])]
    if not against:
        return
    if unreduced:
        ranks, kind = tuple(sorted(unreduced)), "own"
        template = "the gradient of {who} is the same before and after the reduction in step {step}: it was not reduced"
    else:
        ranks, kind = tuple(sorted(against)), "other"
        template = "after its reduction in step {step} {who} has another gradient than its data-parallel group{rest}"
    groups = [group for group in trace.replicas if set(group) & set(ranks)]
    blamed = () if kind == "own" and len(ranks) == trace.layout.world else ranks
    rest = "" if tie else filled(", whose ranks {0} agree", format_ranges(set(groups[0]) - set(ranks)))
    values = {"group": format_ranges(groups[0]), "rest": rest}
    tie = tie and kind == "other"
    came_by: CameBy = "" if kind == "own" or tie else "all_reduce"
    yield Defect(NOT_SYNCHRONISED, kind, step, blamed, template, values, tie=tie, came_by=came_by, trace=trace)


def _wrong_gradient(trace: LayoutTrace, step: int, events: dict[int, TrainingStep], wrong: tuple[int, ...]) -> Defect:
    """Of ranks whose reduced gradient is not the reference run's. Those of one model pass on what is wrong."""
    worst = float(f"{max(error for rank in wrong if (error := events[rank].grad_error) is not None):.2g}")
    template = (
        "after its reduction in step {step} the gradient of {who} differs from the reference run's by {share} of "
        "its norm; that of the other ranks does not"
    )
    in_one_model = any(len(set(wrong) & set(model)) > 1 for model in trace.models)
    shared = in_one_model or _share_one_gradient(trace, events, wrong)
    if shared:
        template = (
            "after its reduction in step {step} the gradient of {who} differs from the reference run's by {share} of "
            "its norm, and that of the other ranks does not: what one of them added to it, or was sent before, is wrong"
        )
    values = {"share": worst}
    came_by: CameBy = "" if shared or trace.layout.dp == 1 else "all_reduce"
    return Defect(
        NOT_SYNCHRONISED, "wrong", step, wrong, template, values,
        trace=trace, vague=shared, of_group=shared, came_by=came_by,
    )  # fmt: skip


def _share_one_gradient(trace: LayoutTrace, events: dict[int, TrainingStep], wrong: tuple[int, ...]) -> bool:
    """Whether these are whole data-parallel groups of several ranks, each with one gradient: the sum is wrong."""
    among = set(wrong)
    groups = [group for group in trace.replicas if len(group) > 1 and among.issuperset(group)]
    alike = all(len(set(field_values(events, group, "grad_digest").values())) == 1 for group in groups)
    return alike and sorted(rank for group in groups for rank in group) == sorted(wrong)


def _is_unreduced(event: TrainingStep) -> bool:
    return event.grad is not None and event.grad == event.grad_local


def _summed(
    trace: LayoutTrace, reference: MajorityReference, step: int, events: dict[int, TrainingStep]
) -> Iterator[Defect]:
    layout = trace.layout
    total, expected = gradient_norm(trace, events), reference.grads[step] if step < len(reference.grads) else None
    share = total / expected if total and expected else 0.0
    long = layout.dp > 1 and _too_long(trace, events)
    counts = {"data": layout.dp, "micro": layout.accumulate, "both": layout.dp * layout.accumulate}
    fits = [
        kind for kind, count in counts.items() if count > 1 and relative_error(share, count) <= 10 * reference.tolerance
    ]
    # With as many ranks as micro-batches, only a sum over ranks is longer than what it is the sum of.
    fits.sort(key=lambda kind: (kind == "data") != long)
    if fits:
        yield _sum_defect(trace, step, fits[0], counts[fits[0]], share, False)
    elif long:
        yield _sum_defect(trace, step, "data", layout.dp, share, True)


def _too_long(trace: LayoutTrace, events: dict[int, TrainingStep]) -> bool:
    """Reduced gradients are longer than any mean of the local ones can be."""
    long = []
    for group in trace.replicas:
        local, after = field_values(events, group, "grad_local"), field_values(events, group, "grad")
        if len(local) != len(group) or len(after) != len(group):
            return False
        reduced = math.sqrt(sum(norm * norm for norm in after.values())) if trace.layout.zero else min(after.values())
        long.append(reduced > MEAN_MARGIN * max(local.values()))
    return all(long)


def _sum_defect(trace: LayoutTrace, step: int, kind: str, count: int, share: float, root: bool) -> Defect:
    over = {"data": "data-parallel ranks", "micro": "micro-batches", "both": "ranks and micro-batches"}[kind]
    template = (
        "the gradient of step {step} is {share} times the reference run's: a sum over {count} {over}, not their mean"
    )
    if root:
        template = (
            "the reduced gradient of step {step} is larger than any of the {count} local ones, which a mean cannot be"
        )
    values = {"share": float(f"{share:.4g}"), "count": count, "over": over}
    return Defect(SUMMED, kind, step, (), template, values, root=root, trace=trace, of_group=True)
