"""One thing that is wrong with the training, in one layout, and how it is put into words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from doctor.engine.result import Finding
from doctor.smoke.model import Plan
from doctor.smoke.numerics.layout_trace import BEGIN, Course


class Defect(msgspec.Struct, frozen=True):
    """What one check has against one layout."""

    check: str
    kind: str
    """Which of the check's faults: defects of one kind are told once for all layouts."""
    course: Course
    step: int
    """The first; `BEGIN` for before the first one."""
    ranks: tuple[int, ...]
    """Who is to blame; empty when all ranks do the same wrong thing."""
    template: str
    values: dict[str, Any] = {}
    root: bool = False
    """Nothing that is wrong elsewhere can bring it about."""
    tie: bool = False
    """No majority says which of the ranks is the wrong one."""
    vague: bool = False
    """Other layouts may tell more of the same fault."""


def merged(defects: Iterable[Defect]) -> list[list[Defect]]:
    """The defects of one check, those that are one fault seen in several layouts together, the clearest first."""
    found: list[list[Defect]] = []
    # A layout with more ranks to compare names fewer of them.
    for one in sorted(defects, key=lambda one: (one.tie, one.vague, len(one.ranks), one.course.number)):
        for known in found:
            if one.kind == known[0].kind and _same_ranks(known[0].ranks, one.ranks):
                known.append(one)
                break
        else:
            found.append([one])
    return found


def _same_ranks(known: tuple[int, ...], ranks: tuple[int, ...]) -> bool:
    return set(known) <= set(ranks) if known and ranks else known == ranks


def finding(defects: Sequence[Defect], total: int) -> Finding:
    """Defects that are one fault, in words; ``total`` layouts were trained."""
    first, plan = defects[0], defects[0].course.plan
    ranks = first.ranks or tuple(first.course.ranks)
    names = list(dict.fromkeys(one.course.layout.name for one in sorted(defects, key=lambda one: one.course.number)))
    return Finding(
        first.template + " (in {where})",
        hosts=[plan.host_of(rank) for rank in _first_of_each_host(plan, ranks)],
        who=who(first.course, first.ranks),
        ranks=list(ranks),
        step=max(first.step, 0),
        before=first.step == BEGIN,
        where=where(names, total),
        layouts=names,
        tie=first.tie,
        **first.values,
    )


def _first_of_each_host(plan: Plan, ranks: Iterable[int]) -> list[int]:
    return list({plan.host_of(rank): rank for rank in sorted(ranks, reverse=True)}.values())[::-1]


def where(names: Sequence[str], total: int) -> str:
    """Layouts in words: ``dp4 and dp2 tp2, 2 of 6 layouts``."""
    if len(names) == total:
        return f"all {total} layouts" if total > 1 else names[0]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown}; {len(names)} of {total} layouts"


def who(course: Course, ranks: Sequence[int]) -> str:
    """Ranks in words, with where each runs and what it is in the layout: ``rank 3 (w2; dp1 tp1)``."""
    if not ranks or len(ranks) == course.layout.world:
        return "every rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]} ({place(course, ranks[0])})"
    if len(ranks) <= 4:
        return "ranks " + ", ".join(f"{rank} ({place(course, rank)})" for rank in ranks)
    return f"ranks {spans(ranks)}"


def place(course: Course, rank: int) -> str:
    """Host, device and coordinates: ``w2, NPU 3; dp1 tp1``."""
    plan, layout = course.plan, course.layout
    where = plan.places[rank]
    device = f", {'NPU' if plan.backend == 'hccl' else 'GPU'} {where.device}" if where.device >= 0 else ""
    sizes = zip(("pp", "dp", "tp"), (layout.pp, layout.dp, layout.tp), course.place(rank), strict=True)
    seat = " ".join(f"{word}{at}" for word, size, at in sizes if size > 1)
    return f"{where.host}{device}" + (f"; {seat}" if seat else "")


def ranks_on(plan: Plan, ranks: Sequence[int]) -> str:
    """Ranks in words, with their hosts: ``rank 3 (w2)``."""
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]} ({plan.host_of(ranks[0])})"
    hosts = list(dict.fromkeys(plan.host_of(rank) for rank in ranks))
    return f"ranks {spans(ranks)} ({', '.join(hosts[:4])}{' ...' if len(hosts) > 4 else ''})"


def spans(numbers: Iterable[int]) -> str:
    """Numbers in words, runs folded: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs) or "none"
