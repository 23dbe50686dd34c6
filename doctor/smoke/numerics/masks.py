"""Ranks that hold one model together draw the same masks and the same dropout, or do not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges, majority_split
from doctor.engine.texts import filled
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.reference_run import MajorityReference
from doctor.smoke.numerics.rng_repeats import describe_generators, draws_by_rank, used_generators
from doctor.smoke.numerics.shards import blocks_of

DIFFERS = "smoke-mask-differs"


def mask_defects(
    trace: LayoutTrace,
    reference: MajorityReference,
    steps: Sequence[dict[int, TrainingStep]],
    repeats: Iterable[Defect] = (),
) -> Iterator[Defect]:
    """Ranks that draw something else than they should, each with its first step. ``steps`` are well read."""
    # A rank that draws another rank's numbers is reported by the check of ``repeats``.
    reported = {rank for repeat in repeats for rank in repeat.ranks or trace.ranks}
    for step, events in enumerate(steps):
        for group in trace.models:
            for defect in _disagree(trace, reference, step, {rank: events[rank] for rank in group if rank in events}):
                # The first step is the telling one: what is drawn later may depend on it.
                if not reported.issuperset(defect.ranks):
                    reported.update(defect.ranks)
                    yield defect
        yield from _differs_from_reference(trace, reference, step, events, reported)


def _disagree(
    trace: LayoutTrace, reference: MajorityReference, step: int, events: dict[int, TrainingStep]
) -> Iterator[Defect]:
    """Ranks of one model that should have drawn the same."""
    masks = {rank: event.masks for rank, event in events.items() if event.masks}
    ours = reference.data(step, blocks_of(trace, min(events), reference.blocks)) if events and reference.sound else None
    against = majority_split(masks, *([ours[1]] if ours else ()))
    draws = {
        name: split
        for name in used_generators(events.values())
        if (split := majority_split(draws_by_rank(events, name)))
    }
    if against:
        blamed = _explaining_generators(draws, against)
        template = "{who} masks other positions than the rest of its model ({group}) from step {step} on{by}"
        if against.tie:
            template = "the ranks {group}, which hold one model, mask different positions from step {step} on{by}"
        yield _differs(trace, step, "masks", against, events, template, blamed)
        return
    for name, split in draws.items():
        template = "{who} draws other {generator} numbers than the rest of its model ({group}) from step {step} on"
        if split.tie:
            template = "the ranks {group}, which hold one model, draw different {generator} numbers from step {step} on"
        yield _differs(trace, step, filled("draws {0}", name), split, events, template, [name])


def _explaining_generators(draws: dict[str, Split[int]], against: Split[int]) -> list[str]:
    """The generators that explain the masks: those in which the same ranks stand apart."""
    same = [name for name, split in draws.items() if split.tie or set(split.differing) & set(against.differing)]
    return [name for name in same if name != "dropout"] or same


def _differs(
    trace: LayoutTrace,
    step: int,
    kind: str,
    split: Split[int],
    events: dict[int, TrainingStep],
    template: str,
    generators: list[str],
) -> Defect:
    values = {
        "group": format_ranges(events),
        "agree": len(split.agreeing),
        "generators": generators,
        "generator": generators[0] if generators else "unknown",
        "by": filled(": {0} differ", describe_generators(generators)) if generators else "",
    }
    return Defect(DIFFERS, kind, step, split.differing, template, values, root=True, tie=split.tie, trace=trace)


def _differs_from_reference(
    trace: LayoutTrace, reference: MajorityReference, step: int, events: dict[int, TrainingStep], reported: set[int]
) -> Iterator[Defect]:
    """Ranks that agree inside their model, or are alone in it, and draw something else than the reference run."""
    if not reference.sound:
        return
    wrong = []
    for rank, event in sorted(events.items()):
        ours = reference.data(step, blocks_of(trace, rank, reference.blocks))
        if rank not in reported and ours and event.masks and event.masks != ours[1]:
            wrong.append(rank)
    if wrong:
        reported.update(wrong)
        template = "{who} masks other positions than the reference run from step {step} on, for the same data{by}"
        values = {"group": format_ranges(wrong), "agree": 0, "generators": [], "generator": "unknown", "by": ""}
        yield Defect(DIFFERS, "masks", step, tuple(wrong), template, values, root=True, vague=True, trace=trace)
