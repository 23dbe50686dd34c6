"""The losses and gradients of a layout, and of torch's own parallel wrappers, against the reference run's. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from doctor.analysis.values.splits import format_ranges
from doctor.engine.grouping import lists_by_key
from doctor.engine.quantities import number_text
from doctor.engine.texts import filled, joined
from doctor.facts.smoke.further_stages import NativeResult, SmokeNative
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.model import Layout, SmokePlan
from doctor.smoke.numerics.defect import Defect, ranks_on
from doctor.smoke.numerics.gradients import gradient_norm
from doctor.smoke.numerics.layout_trace import LayoutTrace, errors_split, field_values
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
UPDATE_MISSING = "smoke-update-missing"


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
    for step, events in enumerate(trace.steps):
        if step >= len(reference.losses):
            return None
        # Where each rank has found its part of the gradient right, a norm that is not is wrong by itself.
        errors = field_values(events, trace.ranks, "grad_error").values()
        is_right = len(errors) == trace.layout.world and max(errors) <= reference.tolerance
        for quantity, observed, expected in (
            ("loss", loss_of(trace, events), reference.losses[step]),
            ("gradient", None if is_right else gradient_norm(trace, events), reference.grads[step]),
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
    for step, events in trace.steps_from_right_parameters(reference.tolerance):
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


class Deviation(msgspec.Struct, frozen=True):
    """The first step in which a layout is not the reference run."""

    step: int
    quantity: str
    """loss; or gradient, when the loss of the step is still right."""
    observed: float
    expected: float

    @property
    def share(self) -> float:
        return relative_error(self.observed, self.expected)


def likely_cause(trace: LayoutTrace, reference: MajorityReference, deviation: Deviation) -> str:
    """The likely error, from the step and the quantity of the deviation, and whether uncut tensors stay alike."""
    layout = trace.layout
    if deviation.step == 0 and deviation.quantity == "loss":
        return _forward_cause(trace, reference)
    if deviation.quantity == "gradient":
        return _backward_cause(layout, deviation)
    if layout.zero:
        return "a ZeRO rank updates another shard of the parameters than the one whose gradient it was given"
    moved = list(movement_ratios(trace, reference).values())
    times = number_text(sum(moved) / max(1, len(moved)))
    if deviation.step == 1 and moved and max(moved) - min(moved) <= 0.02 * max(moved) and times != "1":
        return filled("the updates are {0} times as large as they should be (learning rate)", times)
    if deviation.step == 1:
        return "the gradient of step 0 was right in size, and is not what the parameters were updated with"
    return filled(
        "one wrong number in step {0}: a transfer, or a device's memory; run again and compare", deviation.step - 1
    )


def _forward_cause(trace: LayoutTrace, reference: MajorityReference) -> str:
    layout = trace.layout
    begun = trace.begun.get(0)
    if layout.tp * layout.pp == 1 and begun and begun.params != reference.init:
        return "rank 0 begins with other parameters than its reference run (another seed, another checkpoint)"
    if layout.tp > 1:
        first = trace.steps[0]
        apart = any(
            trace.differing(first, group, "replicated", "params_error", reference.tolerance) for group in trace.slices
        )
        if apart:
            return "the forward pass lacks an all-reduce over the tensor-parallel group"
        return "a tensor-parallel rank holds another slice of a matrix than its place says (permuted shards)"
    if layout.pp > 1:
        return "a pipeline stage works on other activations than the stage before it sent, or on other layers"
    return "the forward pass of one rank computes something else, or its rows count more or less than the others'"


def _backward_cause(layout: Layout, deviation: Deviation) -> str:
    if layout.tp > 1:
        return "the backward pass lacks an all-reduce over the tensor-parallel group"
    if layout.recompute:
        return "what is computed again for the backward pass is not what the forward pass had computed"
    if layout.pp > 1:
        return "a pipeline stage gets another gradient than the stage after it sent, or loses a micro-batch"
    if layout.dp > 1 and deviation.share > 0.01:
        ratio = deviation.observed / deviation.expected
        return filled(
            "the reduction weighs the ranks wrongly: the gradient is {0} times as long", number_text(ratio, 4)
        )
    return "single numbers of the gradient are wrong: a lossy or damaged transfer"


def common_features(wrong: Sequence[Layout], sound: Sequence[Layout]) -> str:
    """Features that all wrong layouts share and no correct one has."""
    names: dict[str, Callable[[Layout], bool]] = {
        "data parallelism": lambda layout: layout.dp > 1,
        "tensor parallelism": lambda layout: layout.tp > 1,
        "pipeline stages": lambda layout: layout.pp > 1,
        "ZeRO-1": lambda layout: layout.zero,
        "micro-batches": lambda layout: layout.accumulate > 1,
        "recomputing": lambda layout: layout.recompute,
    }
    common = [name for name, has in names.items() if all(map(has, wrong)) and not any(map(has, sound))]
    return filled("; only with {0}", joined(" and ", common)) if common and sound else ""


def update_defects(trace: LayoutTrace, reference: MajorityReference) -> Iterator[Defect]:
    """Tensors that stayed exactly as they were while the reference run's moved."""
    moved = {name for name, square in reference.update.items() if square}
    still = {
        rank: tuple(name for name, square in event.update.items() if square == 0 and name in moved)
        for rank, event in sorted(trace.ended.items())
    }
    by_names = lists_by_key((names, rank) for rank, names in still.items() if names)
    unmoved_ranks = [rank for rank, names in still.items() if names and len(names) == len(trace.ended[rank].update)]
    if unmoved_ranks:
        everybody = len(unmoved_ranks) == len(trace.ended)
        template = "{who} changed no parameter in {steps} steps, although {gradient}"
        yield _unmoved_defect(trace, "all", () if everybody else tuple(unmoved_ranks), template, ("all",))
        return
    names = tuple(dict.fromkeys(name for names in by_names for name in names))
    if names:
        holders = [rank for rank, event in trace.ended.items() if set(event.update) & set(names)]
        ranks = tuple(rank for rank, unmoved_names in still.items() if unmoved_names)
        template = "{tensors} did not move in {steps} steps on {who}; the reference run's did"
        yield _unmoved_defect(trace, " ".join(names), () if len(ranks) == len(holders) else ranks, template, names)


def _unmoved_defect(
    trace: LayoutTrace, kind: str, ranks: tuple[int, ...], template: str, names: tuple[str, ...]
) -> Defect:
    norms = [event.grad for event in trace.steps[0].values() if event.grad] if trace.steps else []
    of_first = filled("the gradient had a norm of {0}", f"{max(norms):.3g}") if norms else "the reference run's did"
    values = {"tensors": list(names), "steps": len(trace.steps), "gradient": of_first}
    return Defect(UPDATE_MISSING, kind, 0, ranks, template, values, root=True, trace=trace)


def movement_ratios(trace: LayoutTrace, reference: MajorityReference) -> dict[str, float]:
    """How far each tensor moved, as a multiple of the reference run's way, where that is known."""
    model = trace.models[0]
    ratios = {}
    for name, expected in reference.update.items():
        parts = [trace.ended[rank].update.get(name, 0.0) for rank in model if rank in trace.ended]
        squares = [part for part in parts if part is not None]
        if expected and len(squares) == len(model):
            ratios[name] = math.sqrt(sum(squares) / expected)
    return ratios


class NativeDeviation(msgspec.Struct, frozen=True):
    """A wrapper that differs from the reference run, from this step on."""

    api: str
    layout: str
    step: int
    observed: float | None
    """None: not finite."""
    expected: float | None
    ranks: tuple[int, ...]


def native_deviations(
    plan: SmokePlan, native: Mapping[str, SmokeNative], reference: MajorityReference
) -> Iterator[NativeDeviation]:
    """Wrappers that deviate, each with its first step and the ranks that report it."""
    for (layout, api), events in _runs(native).items():
        wrong: dict[int, tuple[int, float | None, float | None]] = {}
        for event in events:
            pairs = zip(event.losses, event.reference or reference.losses, strict=False)
            for step, (observed, expected) in enumerate(pairs):
                if relative_error(observed, expected) > reference.tolerance:
                    wrong[event.rank] = step, observed, expected
                    break
        if wrong:
            step, observed, expected = wrong[min(wrong, key=lambda rank: (wrong[rank][0], rank))]
            yield NativeDeviation(
                api, plan.layouts[layout].name, step, _rounded(observed), _rounded(expected), tuple(sorted(wrong))
            )


def _rounded(loss: float | None) -> float | None:
    return None if loss is None else float(f"{loss:.6g}")


def not_run(plan: SmokePlan, native: Mapping[str, SmokeNative]) -> list[str]:
    """Wrappers that came to no loss, and why."""
    reasons = []
    for (layout, api), events in _runs(native).items():
        texts = {event.rank: event.text for event in events if event.text}
        if texts:
            first = min(texts)
            ranks = ranks_on(plan, sorted(texts))
            reasons.append(filled("{0} in {1}, {2}: {3}", api, plan.layouts[layout].name, ranks, texts[first]))
    return reasons


def _runs(native: Mapping[str, SmokeNative]) -> dict[tuple[int, str], list[NativeResult]]:
    """The events of each wrapper in each layout."""
    runs = lists_by_key(((event.layout, event.api), event) for fact in native.values() for event in fact.native)
    return dict(sorted(runs.items()))
