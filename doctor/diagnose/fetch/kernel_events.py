"""What a host's kernel said, joined in time with the job's failure: the rest is not the job's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from doctor.diagnose.events import Event, FileReading
from doctor.diagnose.signature import Signature

BEFORE_S = 7200.0
"""Seconds before the first failure in which a fault of the host may have led to it: the longest timeouts are 30 min."""
AFTER_S = 300.0
"""Seconds after the last line of the job."""
_KILLED = re.compile(
    r"Killed process (?P<pid>\d{1,10})[ ,:]*\(?(?P<name>[^\s,)]{1,64})"
    r"|task=(?P<task>[^,]{1,64}),pid=(?P<task_pid>\d{1,10})"
)
_OF_JOBS = re.compile(r"^(?:python|pt_|torchrun|msrun|mpi|orte|prte|ray|slurmstepd|deepspeed|accelerate)")
"""Names of programs that are, or start, the processes of a job."""
_FAILED = ("root", "victim", "ambiguous", "link")


def join_kernel_logs(readings: Sequence[FileReading], signatures: Mapping[str, Signature]) -> list[FileReading]:
    """The readings, those of kernel logs without what is not of the job's time, or is of other programs."""
    others = [reading for reading in readings if not reading.summary.kernel]
    return [_joined(reading, others, signatures) if reading.summary.kernel else reading for reading in readings]


def _joined(kernel: FileReading, others: Sequence[FileReading], signatures: Mapping[str, Signature]) -> FileReading:
    window = _window(others, signatures)
    pids = {
        event.pid for reading in others if reading.summary.origin == kernel.summary.origin for event in reading.events
    }
    kept = [event for event in kernel.events if window and _is_within(event, window) and _may_be_of_job(event, pids)]
    dropped = sum(signatures[event.signature].role == "root" for event in kernel.events)
    dropped -= sum(signatures[event.signature].role == "root" for event in kept)
    if dropped:
        why = "not of the job's time, or of other programs" if window else "no log shows the job's time"
        kernel.summary.notes.append(f"{dropped} messages of faults left out: {why}")
    return FileReading(kernel.summary, kept)


def _window(others: Sequence[FileReading], signatures: Mapping[str, Signature]) -> tuple[float, float] | None:
    starts = [reading.summary.first_time for reading in others if reading.summary.first_time is not None]
    ends = [reading.summary.last_time for reading in others if reading.summary.last_time is not None]
    if not starts or not ends:
        return None
    failures = [
        event.time
        for reading in others
        for event in reading.events
        if event.time is not None and signatures[event.signature].role in _FAILED
    ]
    return max(min(starts) - 60.0, min(failures, default=max(ends)) - BEFORE_S), max(ends) + AFTER_S


def _is_within(event: Event, window: tuple[float, float]) -> bool:
    return event.time is not None and window[0] <= event.time <= window[1]


def _may_be_of_job(event: Event, pids: set[str]) -> bool:
    """Of kills for memory only those of the job's processes: by pid, or by the name of the program."""
    if event.signature != "host-oom-kill":
        return True
    match = _KILLED.search(event.text)
    if not match:
        return False
    pid, name = match["pid"] or match["task_pid"], match["name"] or match["task"]
    return pid in pids or bool(_OF_JOBS.match(name))
