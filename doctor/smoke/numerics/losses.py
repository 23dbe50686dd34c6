"""The losses and gradients of a layout against the reference run's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.facts.smoke import TrainingStep
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.gradients import gradient_norm
from doctor.smoke.numerics.layout_trace import LayoutTrace, field_values
from doctor.smoke.numerics.likely_causes import Deviation, common_features, likely_cause
from doctor.smoke.numerics.reference_run import MajorityReference, relative_error

DIFFERS = "smoke-loss-differs"
PARTED = 1e-4
"""Relative difference from which on ranks that compute the same loss disagree, or one of them is wrong."""


def loss_of(trace: LayoutTrace, events: dict[int, TrainingStep]) -> float | None:
    """The loss over all data of a step: the mean over data-parallel ranks, each with as many rows."""
    parts: list[float] = []
    for model in trace.models:
        losses: list[float] = list(field_values(events, model, "loss").values())
        if not losses:
            return None
        parts.append(sum(losses) / len(losses))
    return sum(parts) / len(parts)


def largest_error(trace: LayoutTrace, reference: MajorityReference) -> float:
    """The largest relative difference of a loss from the reference run's."""
    pairs = zip((loss_of(trace, events) for events in trace.steps), reference.losses, strict=False)
    return max(
        (
            relative_error(observed, expected)
            for observed, expected in pairs
            if observed is not None and expected is not None
        ),
        default=0.0,
    )


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
        if trace.number in deviations:
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
    ranks = _wrong_losses(trace, deviation)
    if ranks:
        template = (
            "the loss of {who} in step {step} is {observed}, and that of the other ranks of its tensor-parallel group, "
            "which compute the same, fits the reference run's of {expected}"
        )
    elif deviation.quantity == "gradient":
        template = "the gradient's norm in step {step} is {observed}, the reference run's {expected}; the loss is right"
    values = {
        "observed": float(f"{deviation.observed:.6g}"),
        "expected": float(f"{deviation.expected:.6g}"),
        "share": float(f"{deviation.share:.2g}"),
        "likely": why,
        "only": where,
    }
    if ranks:
        losses = field_values(trace.steps[deviation.step], ranks, "loss")
        return Defect(
            DIFFERS,
            "rank",
            deviation.step,
            ranks,
            template,
            {**values, "observed": _rounded(max(losses.values()))},
            trace=trace,
        )
    template += "{only}; most likely {likely}"
    return Defect(DIFFERS, f"{deviation.quantity} {why}", deviation.step, (), template, values, trace=trace)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _wrong_losses(trace: LayoutTrace, deviation: Deviation) -> tuple[int, ...]:
    """Ranks whose loss is wrong while another rank that computes the same has the right one; empty for none.

    Tensor-parallel ranks compute one loss. With a single group that disagrees, the others leave one value for it.
    """
    if deviation.quantity != "loss" or trace.layout.tp < 2:
        return ()
    events = trace.steps[deviation.step]
    groups = [losses for group in trace.slices if (losses := field_values(events, group, "loss"))]
    parted = [losses for losses in groups if max(losses.values()) - min(losses.values()) > PARTED * deviation.expected]
    if len(parted) != 1:
        return ()
    rest = sum(sum(losses.values()) / len(losses) for losses in groups if losses is not parted[0])
    right = deviation.expected * len(groups) - rest
    wrong = tuple(rank for rank, loss in parted[0].items() if abs(loss - right) > PARTED * abs(right) * len(groups))
    return wrong if len(wrong) < len(parted[0]) else ()
