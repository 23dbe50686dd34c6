"""One thing that is wrong with the training, in one layout, and how it is put into words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from doctor.analysis.values.splits import format_ranges
from doctor.analysis.values.value_defect import BEFORE_FIRST_STEP, ValueDefect
from doctor.engine.result import Finding
from doctor.engine.texts import filled, joined
from doctor.smoke.model import RankPlacement, SmokePlan
from doctor.smoke.numerics.layout_trace import LayoutTrace

CameBy = Literal["", "all_reduce", "all_gather", "broadcast", "message"]
"""The operation by which a number came to a rank; empty where the rank made it by itself."""


class Defect(ValueDefect, frozen=True, kw_only=True):
    """A defect that one check found in one layout; defects of one kind are reported once for all layouts."""

    trace: LayoutTrace
    vague: bool = False
    """Other layouts may show more of the same fault."""
    of_group: bool = False
    """Its ranks share what is wrong, and one of them is the cause, or who sent to them."""
    came_by: CameBy = ""
    """What is wrong came to its ranks by this, so that it may have changed on its way."""
    senders: tuple[int, ...] = ()
    """Ranks that can have sent it so."""


def merge_defects(defects: Iterable[Defect]) -> list[list[Defect]]:
    """The defects of one check, those that are one fault seen in several layouts together, the clearest first."""
    groups: list[list[Defect]] = []
    # A layout with more ranks to compare names fewer of them.
    for defect in sorted(
        defects, key=lambda candidate: (candidate.tie, candidate.vague, len(candidate.ranks), candidate.trace.number)
    ):
        for group in groups:
            ours, ranks = group[0].ranks, defect.ranks
            same = set(ours) <= set(ranks) if ours and ranks else ours == ranks
            if defect.kind == group[0].kind and same:
                group.append(defect)
                break
        else:
            groups.append([defect])
    return groups


def finding(defects: Sequence[Defect], total: int) -> Finding:
    """Defects that are one fault, in words; ``total`` layouts were trained."""
    first, plan = defects[0], defects[0].trace.plan
    ranks = sorted({*first.ranks, *first.senders}) or first.trace.ranks
    in_order = sorted(defects, key=lambda candidate: candidate.trace.number)
    names = list(dict.fromkeys(defect.trace.layout.name for defect in in_order))
    return Finding(
        joined("", (first.template, " (in {where})")),
        hosts=list(dict.fromkeys(map(plan.host_of, ranks))),
        who=describe_ranks(first.trace, first.ranks),
        ranks=list(ranks),
        step=max(first.step, 0),
        before=first.step == BEFORE_FIRST_STEP,
        where=describe_layouts(names, total),
        layouts=names,
        tie=first.tie,
        **first.values,
    )


def describe_layouts(names: Sequence[str], total: int) -> str:
    """Layouts in words: ``dp4 and dp2 tp2, 2 of 6 layouts``."""
    if len(names) == total:
        return filled("all {0} layouts", total) if total > 1 else names[0]
    listed = joined("", (", ".join(names[:3]), filled(" and {0} more", len(names) - 3) if len(names) > 3 else ""))
    return filled("{0}; {1} of {2} layouts", listed, len(names), total)


def describe_ranks(trace: LayoutTrace, ranks: Sequence[int]) -> str:
    """Ranks in words, with where each runs and what it is in the layout: ``rank 3 (w2; dp1 tp1)``."""
    if not ranks or len(ranks) == trace.layout.world:
        return "every rank"
    if len(ranks) == 1:
        return filled("rank {0} ({1})", ranks[0], describe_placement(trace, ranks[0]))
    if len(ranks) <= 4:
        return "ranks " + ", ".join(filled("{0} ({1})", rank, describe_placement(trace, rank)) for rank in ranks)
    return filled("ranks {0}", format_ranges(ranks))


def describe_placement(trace: LayoutTrace, rank: int) -> str:
    """Host, device and coordinates: ``w2, NPU 3; dp1 tp1``."""
    plan, layout = trace.plan, trace.layout
    sizes = zip(("pp", "dp", "tp"), (layout.pp, layout.dp, layout.tp), trace.coordinates(rank), strict=True)
    coordinates = " ".join(f"{word}{at}" for word, size, at in sizes if size > 1)
    return placement_text(plan.places[rank], plan.backend) + (f"; {coordinates}" if coordinates else "")


def placement_text(place: RankPlacement, backend: str) -> str:
    """Host and device: ``w2, NPU 3``."""
    return place.host + (f", {'NPU' if backend == 'hccl' else 'GPU'} {place.device}" if place.device >= 0 else "")


def sent_by(plan: SmokePlan, senders: Sequence[int]) -> str:
    """What stands behind a number that came to a rank from others, and may have changed on its way."""
    return filled("; it changed there, or on its way from {0}", ranks_on(plan, senders)) if senders else ""


def ranks_on(plan: SmokePlan, ranks: Sequence[int]) -> str:
    """Ranks in words, with their hosts: ``rank 3 (w2)``."""
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return filled("rank {0} ({1})", ranks[0], plan.host_of(ranks[0]))
    hosts = list(dict.fromkeys(plan.host_of(rank) for rank in ranks))
    return filled("ranks {0} ({1}{2})", format_ranges(ranks), ", ".join(hosts[:4]), " ..." if len(hosts) > 4 else "")
