"""The losses and gradients of a layout against the serial twin's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.facts.smoke import Stepped
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.explain import Off, likely, only
from doctor.smoke.numerics.gradients import size
from doctor.smoke.numerics.layout_trace import Course, pick
from doctor.smoke.numerics.reference_run import Twins, relative

DIFFERS = "smoke-loss-differs"


def loss_of(course: Course, said: dict[int, Stepped]) -> float | None:
    """The loss over all data of a step: the mean over data-parallel ranks, each with as many rows."""
    parts: list[float] = []
    for model in course.models:
        told: list[float] = list(pick(said, model, "loss").values())
        if not told:
            return None
        parts.append(sum(told) / len(told))
    return sum(parts) / len(parts)


def error(course: Course, twin: Twins) -> float:
    """The largest relative difference of a loss from the twin's."""
    pairs = zip((loss_of(course, said) for said in course.steps), twin.losses, strict=False)
    return max((relative(saw, want) for saw, want in pairs if saw is not None and want is not None), default=0.0)


def off(course: Course, twin: Twins) -> Off | None:
    """Where the layout leaves the twin; None when it does not, within its tolerance."""
    for step, said in course.after():
        if step >= len(twin.losses):
            return None
        for what, saw, want in (
            ("loss", loss_of(course, said), twin.losses[step]),
            ("gradient", size(course, said), twin.grads[step]),
        ):
            if saw is not None and want is not None and relative(saw, want) > twin.tolerance:
                return Off(step, what, saw, want)
    return None


def losses_wrong(courses: Sequence[Course], twin: Twins) -> Iterator[Defect]:
    """One defect for each layout that is not the twin, with what most likely does that."""
    found = {course.number: here for course in courses if (here := off(course, twin))}
    sound = [course.layout for course in courses if course.number not in found]
    where = only([course.layout for course in courses if course.number in found], sound)
    known: list[tuple[float, str]] = []
    # Layouts that begin with one and the same wrong loss have one cause, and the plainest of them tells it best.
    for course in sorted(courses, key=lambda one: one.layout.tp * one.layout.pp):
        if course.number in found:
            here = found[course.number]
            alike = [told for saw, told in known if not here.step and relative(here.saw, saw) <= twin.tolerance]
            why = alike[0] if alike else likely(course, twin, here)
            if not here.step and here.what == "loss":
                known.append((here.saw, why))
            yield _defect(course, here, why, where)


def _defect(course: Course, here: Off, why: str, where: str) -> Defect:
    template = "the loss of step {step} is {saw}, the serial twin's {want}"
    if here.what == "gradient":
        template = "the gradient's norm in step {step} is {saw}, the serial twin's {want}; the loss is right"
    values = {
        "saw": float(f"{here.saw:.6g}"),
        "want": float(f"{here.want:.6g}"),
        "share": float(f"{here.share:.2g}"),
        "likely": why,
        "only": where,
    }
    template += "{only}; most likely {likely}"
    return Defect(DIFFERS, f"{here.what} {why}", course, here.step, (), template, values)
