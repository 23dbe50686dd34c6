"""Which programming error fits what is seen of a layout that is not the reference run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from doctor.engine.texts import filled, joined
from doctor.smoke.model import Layout
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.reference_run import MajorityReference, relative_error
from doctor.smoke.numerics.updates import movement_ratios


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
    times = f"{sum(moved) / max(1, len(moved)):.3g}"
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
        return filled("the reduction weighs the ranks wrongly: the gradient is {0} times as long", f"{ratio:.4g}")
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
