"""Which records are of this run, and which an earlier one left: such a host may be dead by now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from doctor.collect.merge.records import NodeFileRecord, UnusableFile
from doctor.engine.sanitize import strip_control_chars
from doctor.hosts.nodeset import canonical_host

MAX_AGE_DIFFERENCE = timedelta(hours=1)
"""Files of one run are not further apart than this."""


def slurm_job_run(environ: Mapping[str, str]) -> str:
    """Which run of which Slurm job this is; empty outside of one. A requeued job keeps its number."""
    number = environ.get("SLURM_JOB_ID", "")
    return f"{number}.{environ.get('SLURM_RESTART_COUNT') or 0}" if number else ""


def split_stale(records: Sequence[NodeFileRecord], this_job: str) -> tuple[list[NodeFileRecord], list[UnusableFile]]:
    """The records of this run, and those of an earlier run, whose hosts may be down."""
    current, stale = [], []
    latest = max(records, key=lambda record: record.began, default=None)
    for look in records:
        record_job, age = (
            strip_control_chars(str(look.run.probe_inputs.get("job") or ""), 40),
            latest.began - look.began if latest else timedelta(0),
        )
        why = ""
        if this_job and record_job:
            why = f"of Slurm job {record_job}, this is {this_job}" if record_job != this_job else ""
        elif latest and age > MAX_AGE_DIFFERENCE:
            hours = age.total_seconds() / 3600
            why = f"{hours:.1f} h older than {latest.location}: from an earlier run, or a clock is wrong"
        if why:
            stale.append(UnusableFile(look.name, look.location, why))
        else:
            current.append(look)
    return current, stale


def newest_by_name(records: Sequence[NodeFileRecord]) -> tuple[list[NodeFileRecord], list[str]]:
    """One record for each name, and notes on names with several."""
    by_name: dict[str, NodeFileRecord] = {}
    notes = []
    for record in sorted(records, key=lambda look: look.began):
        older = by_name.pop(canonical_host(record.name), None)
        if older:
            notes.append(
                f"{record.name} has more than one record: {record.location} is used, {older.location} is older"
            )
        by_name[canonical_host(record.name)] = record
    return list(by_name.values()), notes
