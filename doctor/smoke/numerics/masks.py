"""Ranks that hold one model together draw the same masks and the same dropout, or do not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.facts.smoke import Stepped
from doctor.smoke.numerics.defect import Defect, spans
from doctor.smoke.numerics.layout_trace import Course, Split, split
from doctor.smoke.numerics.reference_run import Twins
from doctor.smoke.numerics.rng_draws import drawn, generators, names
from doctor.smoke.numerics.shards import blocks_of

DIFFERS = "smoke-mask-differs"


def masks_wrong(
    course: Course, twin: Twins, steps: Sequence[dict[int, Stepped]], repeats: Iterable[Defect] = ()
) -> Iterator[Defect]:
    """Ranks that draw something else than they should, each with its first step. ``steps`` are well read."""
    # Who draws another rank's numbers is told by that check.
    seen = {rank for one in repeats for rank in one.ranks or course.ranks}
    for step, said in enumerate(steps):
        for group in course.models:
            for one in _disagree(course, twin, step, {rank: said[rank] for rank in group if rank in said}):
                # The first step is the telling one: what is drawn later may depend on it.
                if not seen.issuperset(one.ranks):
                    seen.update(one.ranks)
                    yield one
        yield from _other_than_twin(course, twin, step, said, seen)


def _disagree(course: Course, twin: Twins, step: int, said: dict[int, Stepped]) -> Iterator[Defect]:
    """Ranks of one model that should have drawn the same."""
    masks = {rank: one.masks for rank, one in said.items() if one.masks}
    ours = twin.data(step, blocks_of(course, min(said), twin.blocks)) if said and twin.sound else None
    against = split(masks, ours[1] if ours else None)
    draws = {name: found for name in generators(said.values()) if (found := split(drawn(said, name)))}
    if against:
        blamed = _by(draws, against)
        template = "{who} masks other positions than the rest of its model ({group}) from step {step} on{by}"
        if against.tie:
            template = "the ranks {group}, which hold one model, mask different positions from step {step} on{by}"
        yield _differs(course, step, "masks", against, said, template, blamed)
        return
    for name, found in draws.items():
        template = "{who} draws other {generator} numbers than the rest of its model ({group}) from step {step} on"
        if found.tie:
            template = "the ranks {group}, which hold one model, draw different {generator} numbers from step {step} on"
        yield _differs(course, step, f"draws {name}", found, said, template, [name])


def _by(draws: dict[str, Split], against: Split) -> list[str]:
    """The generators that explain the masks: those in which the same ranks stand apart."""
    same = [name for name, found in draws.items() if found.tie or set(found.against) & set(against.against)]
    return [name for name in same if name != "dropout"] or same


def _differs(
    course: Course, step: int, kind: str, found: Split, said: dict[int, Stepped], template: str, generators: list[str]
) -> Defect:
    return Defect(
        DIFFERS,
        kind,
        course,
        step,
        found.against,
        template,
        {
            "group": spans(said),
            "agree": len(found.agree),
            "generators": generators,
            "generator": generators[0] if generators else "unknown",
            "by": f": {names(generators)} differ" if generators else "",
        },
        root=True,
        tie=found.tie,
    )


def _other_than_twin(
    course: Course, twin: Twins, step: int, said: dict[int, Stepped], seen: set[int]
) -> Iterator[Defect]:
    """Ranks that agree inside their model, or are alone in it, and draw something else than the serial twin."""
    if not twin.sound:
        return
    wrong = []
    for rank, one in sorted(said.items()):
        ours = twin.data(step, blocks_of(course, rank, twin.blocks))
        if rank not in seen and ours and one.masks and one.masks != ours[1]:
            wrong.append(rank)
    if wrong:
        seen.update(wrong)
        template = "{who} masks other positions than the serial twin from step {step} on, for the same data{by}"
        values = {"group": spans(wrong), "agree": 0, "generators": [], "generator": "unknown", "by": ""}
        yield Defect(DIFFERS, "masks", course, step, tuple(wrong), template, values, root=True, vague=True)
