"""Which records are of this run, and which an earlier one left: such a host may be dead by now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from doctor.collect.merge.records import Look, Unusable
from doctor.engine.sanitize import plain
from doctor.hosts.nodeset import same

APART = timedelta(hours=1)
"""Files of one run are not further apart than this."""


def job(environ: Mapping[str, str]) -> str:
    """Which run of which Slurm job this is; empty outside of one. A requeued job keeps its number."""
    number = environ.get("SLURM_JOB_ID", "")
    return f"{number}.{environ.get('SLURM_RESTART_COUNT') or 0}" if number else ""


def fresh(looks: Sequence[Look], now: str) -> tuple[list[Look], list[Unusable]]:
    """The looks of this run, and those that an earlier one left: such a host may be dead by now."""
    current, stale = [], []
    latest = max(looks, key=lambda look: look.began, default=None)
    for look in looks:
        its, age = (
            plain(str(look.run.given.get("job") or ""), 40),
            latest.began - look.began if latest else timedelta(0),
        )
        why = ""
        if now and its:
            why = f"of Slurm job {its}, this is {now}" if its != now else ""
        elif latest and age > APART:
            hours = age.total_seconds() / 3600
            why = f"{hours:.1f} h older than {latest.place}: left by an earlier run, or a clock is wrong"
        if why:
            stale.append(Unusable(look.name, look.place, why))
        else:
            current.append(look)
    return current, stale


def newest(looks: Sequence[Look]) -> tuple[list[Look], list[str]]:
    """One look of each name, and what to say of names that had several."""
    by_name: dict[str, Look] = {}
    notes = []
    for look in sorted(looks, key=lambda look: look.began):
        older = by_name.pop(same(look.name), None)
        if older:
            notes.append(f"{look.name} left more than one record: {look.place} is judged, {older.place} is older")
        by_name[same(look.name)] = look
    return list(by_name.values()), notes
