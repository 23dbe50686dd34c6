"""The losses and gradients of a layout against the reference run's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.analysis.values.splits import format_ranges
from doctor.engine.texts import filled, joined
from doctor.facts.smoke import TrainingStep
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.gradients import gradient_norm
from doctor.smoke.numerics.layout_trace import LayoutTrace, errors_split, field_values
from doctor.smoke.numerics.likely_causes import Deviation, common_features, likely_cause
from doctor.smoke.numerics.reference_run import MajorityReference, relative_error

DIFFERS = "smoke-loss-differs"

OF_ITS_OWN = (
    "the loss of {who} in step {step} differs from the reference run's of the same blocks by {share}; that of the "
    "other ranks does not"
)
OF_ITS_MODEL = (
    "the loss of rank {wrong} in step {step} differs from the reference run's of the same blocks by {share}, and that "
    "of the other ranks does not: one of the ranks of its model computes something else, {who}"
)


def loss_of(trace: LayoutTrace, events: dict[int, TrainingStep]) -> float | None:
    """The loss over all data of a step: the mean over data-parallel ranks, each with as many rows."""
    parts: list[float] = []
    for model in trace.models:
        losses: list[float] = list(field_values(events, model, "loss").values())
        if not losses:
            return None
        parts.append(sum(losses) / len(losses))
    return sum(parts) / len(parts)


def first_deviation(trace: LayoutTrace, reference: MajorityReference) -> Deviation | None:
    """Where the layout leaves the reference run; None if it stays within the tolerance."""
    for step, events in trace.numbered_steps():
        if step >= len(reference.losses):
            return None
        for quantity, observed, expected in (
            ("loss", loss_of(trace, events), reference.losses[step]),
            ("gradient", gradient_norm(trace, events), reference.grads[step]),
        ):
            if (
                observed is not None
                and expected is not None
                and relative_error(observed, expected) > reference.tolerance
            ):
                return Deviation(step, quantity, observed, expected)
    return None


def loss_defects(traces: Sequence[LayoutTrace], reference: MajorityReference) -> Iterator[Defect]:
    """One defect for each layout that differs from the reference run, with the most likely cause."""
    deviations = {trace.number: deviation for trace in traces if (deviation := first_deviation(trace, reference))}
    sound = [trace.layout for trace in traces if trace.number not in deviations]
    where = common_features([trace.layout for trace in traces if trace.number in deviations], sound)
    explained: list[tuple[float, str]] = []
    # Layouts that begin with one and the same wrong loss have one cause, and the plainest of them tells it best.
    for trace in sorted(traces, key=lambda candidate: candidate.layout.tp * candidate.layout.pp):
        of_ranks = _own_defect(trace, reference)
        if of_ranks and (trace.number not in deviations or of_ranks.step <= deviations[trace.number].step):
            yield of_ranks
        elif trace.number in deviations:
            deviation = deviations[trace.number]
            alike = [
                cause
                for observed, cause in explained
                if not deviation.step and relative_error(deviation.observed, observed) <= reference.tolerance
            ]
            why = alike[0] if alike else likely_cause(trace, reference, deviation)
            if not deviation.step and deviation.quantity == "loss":
                explained.append((deviation.observed, why))
            yield _defect(trace, deviation, why, where)


def _defect(trace: LayoutTrace, deviation: Deviation, why: str, where: str) -> Defect:
    template = "the loss of step {step} is {observed}, the reference run's {expected}"
    if deviation.quantity == "gradient":
        template = "the gradient's norm in step {step} is {observed}, the reference run's {expected}; the loss is right"
    values = {
        "observed": float(f"{deviation.observed:.6g}"),
        "expected": float(f"{deviation.expected:.6g}"),
        "share": float(f"{deviation.share:.2g}"),
        "likely": why,
        "only": where,
    }
    template = joined("", (template, "{only}; most likely {likely}"))
    return Defect(
        DIFFERS, filled("{0} {1}", deviation.quantity, why), deviation.step, (), template, values, trace=trace
    )


def _own_defect(trace: LayoutTrace, reference: MajorityReference) -> Defect | None:
    """The first step in which some ranks' loss of their own blocks is not the reference run's, and that of others is.

    The mean over all ranks would hide it in a large world. Where all ranks of one model that tell a loss have a wrong
    one, it can be any rank of the model that computes something else.
    """
    for step, events in trace.numbered_steps():
        errors = field_values(events, trace.ranks, "loss_error")
        split = errors_split(errors, reference.tolerance)
        if not split:
            continue
        wrong = set(split.differing)
        models = [model for model in trace.models if len(model) > 1 and wrong & set(model)]
        suspects = {rank for model in models if wrong.issuperset(set(model) & set(errors)) for rank in model}
        ranks = tuple(sorted(wrong | suspects))
        of_model = ranks != split.differing
        template = OF_ITS_MODEL if of_model else OF_ITS_OWN
        values = {"share": float(f"{max(map(errors.__getitem__, wrong)):.2g}"), "wrong": format_ranges(wrong)}
        values |= {"likely": "a rank computes something else now and then: its device or its memory"}
        return Defect(
            DIFFERS, "rank", step, ranks, template, values, trace=trace, tie=of_model, of_group=bool(suspects)
        )
    return None
