"""Which rows of a scheduler's accounting belong to the job whose logs are diagnosed: sacct shows many jobs at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from doctor.diagnose.events import Event, FileReading

_IN_NAME = re.compile(r"(?:(?:slurm|jobs?)[-_ ]?(\d{1,10})|(?<!\d)(\d{4,10}))(?![\d:])")
_IN_NOTICE = re.compile(r"(?:\b(?:JOB|STEP) |\bStepId=|\bJobId=|\bjob step )(\d{1,10})\b")


def job_number(event: Event) -> str:
    """The number of the job of a row; tasks of an array, and parts of a heterogeneous job, have one in common."""
    return re.split("[_+]", event.values.get("slurm_job", ""))[0]


def with_rows(jobs: Sequence[Sequence[FileReading]], accounting: Sequence[FileReading]) -> list[list[FileReading]]:
    """The logs of each job with the rows of it, which names of files and Slurm's own notices show.

    Logs that show no number get the rows only where these are of one job: of several jobs in the logs the newest, if
    that job was asked for. Where there are no logs, the rows are all.
    """
    if not accounting or not any(jobs):
        return [[*accounting], *([*job] for job in jobs if job)] if accounting else [[*job] for job in jobs]
    numbers = {job_number(event) for reading in accounting for event in reading.events} - {""}
    result: list[list[FileReading]] = []
    asked_for = any(reading.summary.name.startswith("sacct --jobs ") for reading in accounting)
    nobody = not any(_numbers(job) & numbers for job in jobs)
    for job in jobs:
        named = _numbers(job) & numbers
        alone = len(jobs) == len(numbers) == 1 and not _numbers(job, certain=True)
        alone |= nobody and asked_for and len(numbers) == 1 and job is jobs[0]
        result.append([*job, *(_only(reading, named or (numbers if alone else set())) for reading in accounting)])
    return result


def _numbers(job: Sequence[FileReading], *, certain: bool = False) -> set[str]:
    """``certain``: of Slurm's notices alone; a number in a name may be any other."""
    numbers = {number for reading in job for event in reading.events for number in _IN_NOTICE.findall(event.text)}
    if certain:
        return numbers
    for reading in job:
        for match in _IN_NAME.finditer(reading.summary.name[-300:]):
            numbers.add(match[1] or match[2])
    return numbers


def _only(reading: FileReading, numbers: set[str]) -> FileReading:
    events = [event for event in reading.events if job_number(event) in numbers]
    notes = list(reading.summary.notes)
    if not events:
        notes.append("its rows are of other jobs, or no log shows the number of its job: they were not used")
    return FileReading(msgspec.structs.replace(reading.summary, notes=notes), events)


def ends_of_rows(events: Sequence[Event]) -> list[tuple[int, bool]]:
    """The last row of each job, and of each attempt of one, before the last; whether another job follows."""
    ends: list[tuple[int, bool]] = []
    attempts: set[str] = set()
    before: Event | None = None
    for event in sorted((event for event in events if job_number(event)), key=lambda item: item.line):
        name = event.values["slurm_job"] if "slurm_step" not in event.values else ""
        if before and job_number(event) != job_number(before):
            ends.append((before.line, True))
            attempts = set()
        elif before and name in attempts:
            ends.append((before.line, False))
            attempts = set()
        attempts.add(name)
        attempts.discard("")
        before = event
    return ends
