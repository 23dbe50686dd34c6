"""Who entered which collective when, before a smoke run was stopped: one row for each call. Pure."""

from __future__ import annotations

import math

import msgspec

from doctor.engine.language import localized
from doctor.engine.smoke_summary import Failure
from doctor.report.layout.formatting import clean
from doctor.report.layout.smoke_section import ranks_in_words

MAX_ROWS = 40
WIDTH, ROW_HEIGHT = 640, 26
AXIS_HEIGHT = 28


class TimelineRow(msgspec.Struct, frozen=True):
    """Ranks in one call; the first of them entered it ``longest`` seconds before the verdict."""

    ranks: str
    call: str
    is_culprit: bool
    longest: float
    shortest: float
    start: float
    """Left end of the bar."""
    entries: tuple[float, ...]
    """Where on the axis each rank entered."""
    top: float


class Timeline(msgspec.Struct, frozen=True):
    """The rows from the earliest entry to the verdict."""

    rows: tuple[TimelineRow, ...]
    hidden: int
    """Rows that are not drawn."""
    seconds: float
    ticks: tuple[tuple[float, str], ...]
    height: float


def hang_timeline(failure: Failure) -> Timeline | None:
    """None where the failure does not tell since when its ranks were where they were."""
    groups: dict[tuple[bool, str], list[int]] = {}
    ages_by_rank = {rank: min(max(age, 0.0), 1e9) for rank, age in failure.ages.items() if math.isfinite(age)}
    for rank in sorted(ages_by_rank):
        key = (rank in failure.culprit_ranks, failure.calls.get(rank) or failure.states.get(rank, ""))
        groups.setdefault(key, []).append(rank)
    if not groups:
        return None
    seconds = max(*ages_by_rank.values(), 0.001)

    def across(age: float) -> float:
        return round(WIDTH * (1 - age / seconds), 1)

    ordered = sorted(groups.items(), key=lambda item: (not item[0][0], -max(ages_by_rank[rank] for rank in item[1])))
    rows = []
    for number, ((is_culprit, call), ranks) in enumerate(ordered[:MAX_ROWS]):
        ages = [ages_by_rank[rank] for rank in ranks]
        entries = tuple(sorted({across(age) for age in ages}))
        rows.append(
            TimelineRow(
                ranks_in_words(ranks),
                clean(call, 200) or localized("no call is known"),
                is_culprit,
                max(ages),
                min(ages),
                entries[0],
                entries[:200],
                number * ROW_HEIGHT,
            )
        )
    ticks = tuple((across(seconds * part / 4), _before(seconds * part / 4)) for part in range(5))
    return Timeline(tuple(rows), len(ordered) - len(rows), seconds, ticks, len(rows) * ROW_HEIGHT + AXIS_HEIGHT)


def _before(seconds: float) -> str:
    return f"-{seconds:.3g} s" if seconds else localized("verdict")
