"""The soak stage minute by minute, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.language import localized, phrase
from doctor.engine.smoke_summary import SoakMinute
from doctor.report.layout.formatting import byte_rate, clean, count_noun, duration, short_time

MOST_LINES = 8
"""Minutes that are shown, evenly, unless all are."""
MOST_SENSORS = 3


def minute_lines(minutes: Sequence[SoakMinute], full: bool) -> list[str]:
    """What each minute had: results, the rate of all_reduce, the time of the same work, heat, errors of links."""
    step = 1 if full or len(minutes) <= MOST_LINES else len(minutes) / MOST_LINES
    chosen_minutes = [minutes[int(step * place)] for place in range(len(minutes) if step == 1 else MOST_LINES)]
    return [_line(minute) for minute in chosen_minutes]


def _line(minute: SoakMinute) -> str:
    results = count_noun(minute.wrong, "wrong result") if minute.wrong else localized("no wrong result")
    parts = [count_noun(minute.calls, "collective"), results]
    if minute.busbw > 0:
        parts.append(phrase("all_reduce {rate}", rate=byte_rate(minute.busbw)))
    if minute.work > 0:
        slowest = phrase(
            "work {time}, slowest {slowest} (rank {rank})",
            time=short_time(minute.work),
            slowest=short_time(minute.slowest_work),
            rank=minute.slowest_rank,
        )
        parts.append(slowest)
    hottest = sorted(minute.temperatures, key=lambda entry: -entry.celsius)[:MOST_SENSORS]
    parts += [f"{clean(entry.host, 100)} {entry.celsius:.0f} °C" for entry in hottest]
    parts += [
        f"{clean(entry.host, 100)} {clean(entry.counter, 80)} +{entry.count}"
        for entry in minute.link_errors[:MOST_SENSORS]
    ]
    return phrase(
        "from {start} to {end}: {figures}",
        start=duration(minute.start),
        end=duration(minute.start + minute.seconds),
        figures=localized(", ").join(parts),
    )
