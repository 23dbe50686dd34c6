"""Whether every parameter moves when it should. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.reference_run import MajorityReference

UPDATE_MISSING = "smoke-update-missing"


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
    values = {"tensors": list(names), "steps": len(trace.steps), "gradient": _gradient(trace)}
    return Defect(UPDATE_MISSING, kind, 0, ranks, template, values, root=True, trace=trace)


def _gradient(trace: LayoutTrace) -> str:
    norms = [event.grad for event in trace.steps[0].values() if event.grad] if trace.steps else []
    return filled("the gradient had a norm of {0}", f"{max(norms):.3g}") if norms else "the reference run's did"


def movement_ratios(trace: LayoutTrace, reference: MajorityReference) -> dict[str, float]:
    """How far each tensor moved, as a multiple of the reference run's way, where that can be told."""
    model = trace.models[0]
    ratios = {}
    for name, expected in reference.update.items():
        parts = [trace.ended[rank].update.get(name, 0.0) for rank in model if rank in trace.ended]
        squares = [part for part in parts if part is not None]
        if expected and len(squares) == len(model):
            ratios[name] = math.sqrt(sum(squares) / expected)
    return ratios
