"""Ranks that hold one model together draw the same masks and the same dropout, or do not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges, majority_split, names_held_alike
from doctor.engine.texts import enumerated, filled
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace, field_values
from doctor.smoke.numerics.reference_run import MajorityReference
from doctor.smoke.numerics.shards import Misread, blocks_of

DIFFERS = "smoke-mask-differs"
REPEATED = "smoke-mask-repeated"


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
        for name in dict.fromkeys(used for event in events.values() for used in event.rng)
        # 0 where a rank did not use the generator, or has none (no NumPy).
        if (split := majority_split({rank: event.rng.get(name) or 0 for rank, event in events.items()}))
    }
    if against:
        # The generators in which the same ranks stand apart.
        same = [name for name, split in draws.items() if split.tie or set(split.differing) & set(against.differing)]
        blamed = [name for name in same if name != "dropout"] or same
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


def repeated_draws(
    trace: LayoutTrace, reference: MajorityReference, steps: Sequence[dict[int, TrainingStep]]
) -> Iterator[Defect]:
    """Ranks that drew the same numbers for different data: told once, at the first step. ``steps`` are well read."""
    for step, events in enumerate(steps):
        pairs: dict[tuple[int, ...], list[str]] = {}
        for group in trace.replicas:
            for alike, names in names_held_alike(field_values(events, group, "rng")).items():
                pairs.setdefault(alike, []).extend(names)
        if pairs:
            ranks = sorted({rank for alike in pairs for rank in alike})
            rows = {rank: reference.data(step, blocks_of(trace, rank, reference.blocks)) for rank in ranks}
            sure = rows if reference.sound else {}
            late = [rank for rank, data in sure.items() if data and events[rank].masks != data[1]]
            yield _defect(
                trace, step, ranks, late, sorted({name for pair_names in pairs.values() for name in pair_names})
            )
            return


def _defect(trace: LayoutTrace, step: int, ranks: Sequence[int], late: Sequence[int], by: list[str]) -> Defect:
    """``late``: those of the ranks whose masks are not those of their own data."""
    others = set(ranks) - set(late)
    everybody = len(late) > 1 and set(late) == {rank for rank in trace.ranks if trace.coordinates(rank)[1]}
    template = "{who}: {by} are those of {origin}, for other data, from step {step} on"
    if everybody:
        template = "on all data-parallel ranks {by} are those of the first one, for other data, from step {step} on"
    origin = f"rank {format_ranges(others)}" if late and others else "each other"
    values = {"by": describe_generators(by), "generators": by, "origin": origin}
    blamed = () if everybody else tuple(late or ranks)
    return Defect(REPEATED, "all" if everybody else "draws", step, blamed, template, values, root=True, trace=trace)


def correctly_read_steps(trace: LayoutTrace, wrong: Iterable[Misread]) -> list[dict[int, TrainingStep]]:
    """The steps, without ranks that read other data than planned: they draw for other blocks, too."""
    elsewhere = {(misread.rank, misread.step) for misread in wrong}
    if not elsewhere:
        return list(trace.steps)
    return [
        {rank: event for rank, event in events.items() if (rank, step) not in elsewhere}
        for step, events in enumerate(trace.steps)
    ]


def describe_generators(generators: Sequence[str]) -> str:
    """Generators in words: ``python's draws and numpy's draws``."""
    phrases = [filled("{0}'s draws", name) for name in generators]
    return phrases[0] if len(phrases) == 1 else enumerated(phrases)
