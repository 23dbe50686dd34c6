"""Whether every parameter moves when it should. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import Course
from doctor.smoke.numerics.reference_run import Twins

MISSING = "smoke-update-missing"


def updates_missing(course: Course, twin: Twins) -> Iterator[Defect]:
    """Tensors that stayed exactly as they were while the serial twin's moved."""
    moved = {name for name, square in twin.update.items() if square}
    still = {
        rank: tuple(name for name, square in said.update.items() if square == 0 and name in moved)
        for rank, said in sorted(course.ended.items())
    }
    by_names: dict[tuple[str, ...], list[int]] = {}
    for rank, names in still.items():
        if names:
            by_names.setdefault(names, []).append(rank)
    whole = [rank for rank, names in still.items() if names and len(names) == len(course.ended[rank].update)]
    if whole:
        everybody = len(whole) == len(course.ended)
        template = "{who} moved no parameter in {steps} steps, though {gradient}"
        yield _still(course, "all", () if everybody else tuple(whole), template, ("all",))
        return
    names = tuple(dict.fromkeys(name for names in by_names for name in names))
    if names:
        holders = [rank for rank, said in course.ended.items() if set(said.update) & set(names)]
        ranks = tuple(rank for rank, own in still.items() if own)
        template = "{tensors} did not move in {steps} steps on {who}; the serial twin's did"
        yield _still(course, " ".join(names), () if len(ranks) == len(holders) else ranks, template, names)


def _still(course: Course, kind: str, ranks: tuple[int, ...], template: str, names: tuple[str, ...]) -> Defect:
    values = {"tensors": list(names), "steps": len(course.steps), "gradient": _gradient(course)}
    return Defect(MISSING, kind, course, 0, ranks, template, values, root=True)


def _gradient(course: Course) -> str:
    norms = [said.grad for said in course.steps[0].values() if said.grad] if course.steps else []
    return f"the gradient had a norm of {max(norms):.3g}" if norms else "the serial twin's did"


def shares(course: Course, twin: Twins) -> dict[str, float]:
    """How far each tensor moved, as a multiple of the serial twin's way, where that can be told."""
    model = course.models[0]
    found = {}
    for name, want in twin.update.items():
        parts = [course.ended[rank].update.get(name, 0.0) for rank in model if rank in course.ended]
        known = [part for part in parts if part is not None]
        if want and len(known) == len(model):
            found[name] = math.sqrt(sum(known) / want)
    return found
