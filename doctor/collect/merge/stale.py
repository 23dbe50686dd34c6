"""Which records are of this run, and which an earlier one left: such a host may be dead by now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from doctor.collect.merge.node_records import NodeFileRecord, UnusableFile
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.hosts.nodeset import canonical_host

MAX_AGE_DIFFERENCE = timedelta(hours=1)
"""Files of one run are not further apart than this."""


def slurm_job_run(environ: Mapping[str, str]) -> str:
    """The Slurm job of this process, and its run; empty outside of one. A requeued job keeps its number."""
    number = environ.get("SLURM_JOB_ID", "")
    return f"{number}.{environ.get('SLURM_RESTART_COUNT') or 0}" if number else ""


def split_stale(records: Sequence[NodeFileRecord], this_job: str) -> tuple[list[NodeFileRecord], list[UnusableFile]]:
    """The records of this run, and those of an earlier run, whose hosts may be down."""
    current, stale = [], []
    latest = max(records, key=lambda record: record.began, default=None)
    for look in records:
        record_job, age = (
            strip_control_chars(look.run.probe_inputs.job, 40),
            latest.began - look.began if latest else timedelta(0),
        )
        why = ""
        if this_job and record_job:
            why = filled("of Slurm job {0}, this is {1}", record_job, this_job) if record_job != this_job else ""
        elif latest and age > MAX_AGE_DIFFERENCE:
            hours = age.total_seconds() / 3600
            why = filled(
                "{0} h older than {1}: from an earlier run, or a clock is wrong", f"{hours:.1f}", latest.location
            )
        if why:
            stale.append(UnusableFile(look.name, look.location, why))
        else:
            current.append(look)
    return current, stale


def one_by_name(records: Sequence[NodeFileRecord]) -> tuple[list[NodeFileRecord], list[UnusableFile], list[str]]:
    """One record for each name, the names whose records disagree, and notes on those with several that agree.

    Of two records that disagree, the host's own cannot be determined: one may be another user's, or older than a fault.
    """
    by_name: dict[str, list[NodeFileRecord]] = {}
    for record in sorted(records, key=lambda record: record.began):
        by_name.setdefault(canonical_host(record.name), []).append(record)
    chosen, unusable, notes = [], [], []
    for alike in by_name.values():
        newest = alike[-1]
        other = next((record for record in alike if _answers(record) != _answers(newest)), None)
        if other:
            fact = _first_difference(_answers(other), _answers(newest))
            text = filled(
                "disagrees with {0} about {1} ({2}); expected one record of a host", other.location, newest.name, fact
            )
            unusable.append(UnusableFile(newest.name, newest.location, text))
            continue
        chosen.append(newest)
        notes += [
            filled(
                "{0} has more than one record: {1} is used, {2} says the same",
                newest.name,
                newest.location,
                older.location,
            )
            for older in alike[:-1]
        ]
    return chosen, unusable, notes


def _answers(record: NodeFileRecord) -> dict[str, object]:
    """All that the host said, by fact; not how long it took."""
    outputs = record.record.outputs
    answers: dict[str, object] = {
        fact: {key: msgspec.structs.replace(output, seconds=0) for key, output in by_key.items()}
        for fact, by_key in outputs.items()
    }
    return {**answers, "visit": (record.record.visit.failure, record.record.visit.name.lower())}


def _first_difference(first: Mapping[str, object], second: Mapping[str, object]) -> str:
    return next(strip_control_chars(fact, 60) for fact in (*first, *second) if first.get(fact) != second.get(fact))
