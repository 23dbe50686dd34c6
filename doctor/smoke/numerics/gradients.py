"""The gradient after its reduction: the mean of all ranks', the same on each, as large as the serial twin's. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from doctor.facts.smoke import Stepped
from doctor.smoke.numerics.defect import Defect, spans
from doctor.smoke.numerics.layout_trace import Course, pick, split
from doctor.smoke.numerics.reference_run import Twins, relative

SUMMED, APART = "smoke-gradient-summed", "smoke-gradient-not-synchronised"
ABOVE = 1.001
"""A mean is never longer than the longest of what it is the mean of; rounding stays far below this."""


def gradients_wrong(course: Course, twin: Twins) -> Iterator[Defect]:
    """The first step whose reduced gradient is not the same on all ranks, or not a mean."""
    for step, said in course.after():
        found = [*_apart(course, step, said), *_summed(course, twin, step, said)]
        if found:
            yield from found
            return


def size(course: Course, said: dict[int, Stepped]) -> float | None:
    """The whole gradient's norm after the reduction, from the shares of the ranks that hold one model together."""
    first = course.models[0] if not course.layout.zero else tuple(course.ranks)
    shares = pick(said, first, "grad")
    return math.sqrt(sum(share * share for share in shares.values())) if len(shares) == len(first) else None


def _apart(course: Course, step: int, said: dict[int, Stepped]) -> Iterator[Defect]:
    if course.layout.zero:
        return  # each rank reduces a shard of its own
    against: list[int] = []
    own: list[int] = []
    tie = False
    for group in course.replicas:
        found = split(pick(said, group, "grad_digest"))
        if found:
            against += found.against
            tie = tie or found.tie
            own += [rank for rank in found.against if _kept(said[rank])]
    if not against:
        return
    if own:
        ranks, kind = tuple(sorted(own)), "own"
        template = "the gradient of {who} is the same before and after the reduction in step {step}: it was not reduced"
    else:
        ranks, kind = tuple(sorted(against)), "other"
        template = "after its reduction in step {step} {who} has another gradient than its data-parallel group{rest}"
    groups = [group for group in course.replicas if set(group) & set(ranks)]
    whole = kind == "own" and len(ranks) == course.layout.world
    rest = "" if tie else f", whose ranks {spans(set(groups[0]) - set(ranks))} agree"
    values = {"group": spans(groups[0]), "rest": rest}
    yield Defect(APART, kind, course, step, () if whole else ranks, template, values, tie=tie and kind == "other")


def _kept(said: Stepped) -> bool:
    return said.grad is not None and said.grad == said.grad_local


def _summed(course: Course, twin: Twins, step: int, said: dict[int, Stepped]) -> Iterator[Defect]:
    layout = course.layout
    total, want = size(course, said), twin.grads[step] if step < len(twin.grads) else None
    share = total / want if total and want else 0.0
    long = layout.dp > 1 and _too_long(course, said)
    counts = {"data": layout.dp, "micro": layout.accumulate, "both": layout.dp * layout.accumulate}
    fits = [kind for kind, count in counts.items() if count > 1 and relative(share, count) <= 10 * twin.tolerance]
    # With as many ranks as micro-batches, only a sum over ranks is longer than what it is the sum of.
    fits.sort(key=lambda kind: (kind == "data") != long)
    if fits:
        yield _sum(course, step, fits[0], counts[fits[0]], share, False)
    elif long:
        yield _sum(course, step, "data", layout.dp, share, True)


def _too_long(course: Course, said: dict[int, Stepped]) -> bool:
    """Reduced gradients are longer than any mean of the local ones can be."""
    long = []
    for group in course.replicas:
        local, after = pick(said, group, "grad_local"), pick(said, group, "grad")
        if len(local) != len(group) or len(after) != len(group):
            return False
        reduced = math.sqrt(sum(norm * norm for norm in after.values())) if course.layout.zero else min(after.values())
        long.append(reduced > ABOVE * max(local.values()))
    return all(long)


def _sum(course: Course, step: int, kind: str, count: int, share: float, root: bool) -> Defect:
    over = {"data": "data-parallel ranks", "micro": "micro-batches", "both": "ranks and micro-batches"}[kind]
    template = (
        "the gradient of step {step} is {share} times the serial twin's: a sum over {count} {over}, not their mean"
    )
    if root:
        template = "the reduced gradient of step {step} is longer than any of the {count} local ones: no mean can be"
    values = {"share": float(f"{share:.4g}"), "count": count, "over": over}
    return Defect(SUMMED, kind, course, step, (), template, values, root=root)
