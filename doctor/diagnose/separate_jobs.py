"""Separates jobs whose logs lie together, and diagnoses each for itself.

Two jobs are separated by the number of a Slurm job in the names of files, or by time: all logs of the one had ended
before any of the other began, and they have a rank, a host or the name of a file in common. The last matters: one job
on hosts whose clocks differ by hours has nothing in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import msgspec

from doctor.diagnose.attempts import AttemptEnd, attempt_number, ends_in, job_number, with_rows
from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import MAX_EVIDENCE, Cause, Diagnosis, EarlierAttempt
from doctor.diagnose.events import FileReading
from doctor.diagnose.read.file_names import NameHints, read_names
from doctor.diagnose.rules.deciding_lines import DECIDING_LINE
from doctor.diagnose.signature import Signature
from doctor.engine.texts import filled

GAP_S = 600.0
"""Seconds between the last line of one job and the first of another."""
MAX_JOBS = 20
"""Jobs that are diagnosed, the newest; the logs of older ones count as those of the oldest."""
_JOB_NUMBER = re.compile(r"(?:^|[/!:])(?:slurm[-_]|job[-_]?)(\d{1,10})(?=[._/!-]|$)")
Identity = tuple[str, object]
MAX_ATTEMPTS = 20
"""Attempts that are diagnosed, the newest."""
CONNECTS = ("gloo-connect-full-mesh", "nccl-connect-timeout")
"""What ranks print that connect to each other, and get no answer."""
Catalog = Mapping[str, Signature]


class _Log(msgspec.Struct):
    reading: FileReading
    start: float | None
    end: float | None
    identities: frozenset[Identity]
    process: tuple[str, str] | None
    """Host and process id, where its name shows the latter."""
    kind: str
    """Its name without numbers."""


def diagnose_jobs(
    readings: Sequence[FileReading], signatures: Mapping[str, Signature], unread: Sequence[str] = ()
) -> Diagnosis:
    """The diagnosis of the newest job, with those of the earlier ones, the newest first."""
    unread = [*unread, *_not_opened(readings)]
    accounting = [reading for reading in readings if any(job_number(event) for event in reading.events)]
    accounting = [reading for reading in accounting if reading.summary.accounting]
    jobs = with_rows(separate_jobs([reading for reading in readings if reading not in accounting]), accounting)
    diagnoses = [with_earlier_attempts(diagnose(job, signatures, unread), job, signatures, unread) for job in jobs]
    newest, *earlier = diagnoses or [diagnose((), signatures, unread)]
    return msgspec.structs.replace(newest, earlier=tuple(earlier))


def _not_opened(readings: Sequence[FileReading]) -> list[str]:
    """Logs that were not read at all, where their names do not show whose they are."""
    summaries = [reading.summary for reading in readings]
    hints = read_names([summary.name for summary in summaries], [summary.origin for summary in summaries])
    return [
        filled("{0}: {1}", summary.name, summary.notes[-1] if summary.notes else "not read")
        for summary, of_file in zip(summaries, hints, strict=True)
        if summary.incomplete and not summary.lines
        if of_file.rank is None and of_file.local_rank is None and not summary.origin
    ]


class _Group(list[_Log]):
    """Logs, with what decides whether further ones belong to them: kept as it grows, as there may be 100,000."""

    def __init__(self, logs: Iterable[_Log] = ()) -> None:
        super().__init__()
        self.first, self.last = float("inf"), float("-inf")
        self.identities: set[Identity] = set()
        self.kinds: dict[tuple[str, str], set[str]] = {}
        """The kinds of log of each process."""
        self += logs

    def append(self, log: _Log) -> None:
        super().append(log)
        start = log.start or 0.0
        self.first, self.last = min(self.first, start), max(self.last, start if log.end is None else log.end)
        self.identities |= log.identities
        if log.process:
            self.kinds.setdefault(log.process, set()).add(log.kind)

    def __iadd__(self, logs: Iterable[_Log]) -> _Group:  # type: ignore[override,misc]
        for log in logs:
            self.append(log)
        return self


def separate_jobs(readings: Sequence[FileReading]) -> list[list[FileReading]]:
    """The logs of each job, the newest job first. Logs without a time or a process of a job count for the newest."""
    summaries = [reading.summary for reading in readings]
    origins = [summary.origin for summary in summaries]
    names = read_names([summary.name for summary in summaries], origins, every_number=True)
    logs = [_log(reading, hints) for reading, hints in zip(readings, names, strict=True)]
    placed = [log for log in logs if log.start is not None and log.identities]
    groups = [group for numbered in _by_number(placed) for group in _by_time(numbered)]
    if len(groups) < 2:
        return [list(readings)] if readings else []
    groups.sort(key=lambda group: group.last, reverse=True)
    if len(groups) > MAX_JOBS:
        groups[MAX_JOBS - 1 :] = [_Group(log for group in groups[MAX_JOBS - 1 :] for log in group)]
    jobs = [[log.reading for log in group] for group in groups]
    for log in logs:
        if log.start is None or not log.identities:
            _add_to_jobs(log.reading, groups, jobs)
    return jobs


def _log(reading: FileReading, hints: NameHints) -> _Log:
    summary = reading.summary
    ranks = {event.rank for event in reading.events if event.rank is not None} | {hints.rank} - {None}
    kind = re.sub(r"\d+", "", summary.name.rpartition("/")[2])
    identities: set[Identity] = {("rank", rank) for rank in ranks}
    has_process = bool(ranks) or hints.local_rank is not None or hints.device is not None or bool(hints.pid)
    if hints.host and (has_process or hints.launcher):
        identities.add(("host", hints.host))
    if hints.local_rank is not None or hints.launcher:
        identities.add(("file", (hints.host, hints.local_rank, kind)))
    elif hints.pid:
        identities.add(("process", (hints.host, hints.pid, summary.name)))
    process = (hints.host, hints.pid) if hints.pid else None
    return _Log(reading, summary.first_time, summary.last_time, frozenset(identities), process, kind)


def _by_number(logs: Sequence[_Log]) -> Iterable[_Group]:
    """The logs by the number of a job in their names; those without one stand by themselves if only one is named."""
    numbered: dict[str, _Group] = {}
    for log in logs:
        matches = _JOB_NUMBER.findall(log.reading.summary.name)
        numbered.setdefault(matches[-1] if matches else "", _Group()).append(log)
    unnumbered = numbered.pop("", _Group())
    if len(numbered) < 2:
        return [_Group(logs)]
    groups = list(numbered.values())
    for log in unnumbered:
        max(groups, key=lambda group: (_overlap(log, group), group.last)).append(log)
    return groups


def _by_time(logs: Sequence[_Log]) -> list[_Group]:
    clusters: list[_Group] = []
    for log in sorted(logs, key=lambda item: (item.start or 0.0, item.reading.summary.name)):
        if clusters and (log.start or 0.0) <= clusters[-1].last + GAP_S:
            clusters[-1].append(log)
        else:
            clusters.append(_Group([log]))
    jobs: list[_Group] = []
    for cluster in clusters:
        if jobs and not _are_two_jobs(jobs[-1], cluster):
            jobs[-1] += cluster
        else:
            jobs.append(cluster)
    return jobs


def _are_two_jobs(before: _Group, after: _Group) -> bool:
    """They have a rank, host or file in common, and no process with logs of different kinds in the two."""
    kinds = before.kinds
    if any(log.process in kinds and log.kind not in kinds[log.process] for log in after if log.process):
        return False
    return bool(before.identities & after.identities)


def _add_to_jobs(reading: FileReading, groups: Sequence[_Group], jobs: list[list[FileReading]]) -> None:
    """A log of a whole host, such as the kernel's: each job gets the events of its time, the newest all later ones."""
    rest = list(reading.events)
    for group, job in zip(groups[1:], jobs[1:], strict=True):
        first, last = group.first - GAP_S, group.last + GAP_S
        then = [event.time is not None and first <= event.time <= last for event in rest]
        if any(then):
            job.append(FileReading(reading.summary, list(compress(rest, then))))
            rest = [event for event, is_then in zip(rest, then, strict=True) if not is_then]
    jobs[0].append(FileReading(reading.summary, rest, reading.recording))


def _overlap(log: _Log, group: _Group) -> float:
    start, end = log.start or 0.0, log.end or log.start or 0.0
    return min(end, group.last) - max(start, group.first)


def with_earlier_attempts(
    diagnosis: Diagnosis, readings: Sequence[FileReading], catalog: Catalog, unread: Sequence[str] = ()
) -> Diagnosis:
    """The diagnosis of a job with what its logs show of earlier attempts, the newest first.

    Attempts are counted from the last: a file that shows fewer of them shows the newest.
    """
    folders = {number for reading in readings if (number := attempt_number(reading.summary.name)) is not None}
    newest_folder = max(folders, default=0)
    ends = [ends_in(reading.events, catalog, restarted=len(folders) > 1) for reading in readings]
    count = max([len(of_file) for of_file in ends] + [newest_folder - min(folders, default=0)], default=0)
    attempts = []
    later = diagnosis
    for back in range(1, min(count, MAX_ATTEMPTS) + 1):
        parts = [_part(reading, of_file, back) for reading, of_file in zip(readings, ends, strict=True)]
        chosen = [
            part
            for part, reading in zip(parts, readings, strict=True)
            if part and attempt_number(reading.summary.name) in (None, newest_folder - back)
        ]
        if not chosen:
            continue
        cause = diagnose(chosen, catalog, unread)
        is_job = any(len(of_file) >= back and of_file[-back].is_job for of_file in ends)
        attempts.append(EarlierAttempt(cause, is_job, _is_same(cause, later)))
        later = cause if is_job else later
    if not attempts:
        return diagnosis
    return msgspec.structs.replace(_restart_named(diagnosis, attempts[0]), attempts=tuple(attempts))


def _restart_named(diagnosis: Diagnosis, before: EarlierAttempt) -> Diagnosis:
    """A restart whose ranks connect to no peer, although the attempt before it had connected, has its cause there.

    From torch 2.6 on, the ranks of a restart read the addresses of the failed attempt in the store that torchrun keeps:
    see the check ``launch-restart-shares-store``. An attempt that could not connect either speaks for the network.
    """
    earlier = before.diagnosis
    refused = [
        waiting.first
        for waiting in diagnosis.waiting
        if waiting.signature in CONNECTS and "Connection refused" in waiting.first.text
    ]
    connected = not any(waiting.signature in CONNECTS for waiting in earlier.waiting) and not any(
        cause.signature in CONNECTS for cause in earlier.causes
    )
    stronger = any(cause.rule != DECIDING_LINE for cause in diagnosis.causes)
    if stronger or before.is_job or not refused or not earlier.causes or not connected:
        return diagnosis
    first = earlier.causes[0].summary
    summary = filled(
        "{0}; torchrun started the ranks again, and they connect to addresses of the failed attempt", first
    )
    evidence = tuple(refused[:MAX_EVIDENCE])
    cause = Cause("torch-restart-shares-store", "restart", "likely", (), summary, evidence)
    return msgspec.structs.replace(diagnosis, causes=(cause,), undecidable=None)


def _part(reading: FileReading, ends: Sequence[AttemptEnd], back: int) -> FileReading | None:
    """What a file shows of the attempt that is ``back`` before its last one; None where it shows nothing of it."""
    if attempt_number(reading.summary.name) is not None:
        return reading
    if len(ends) < back:
        return None
    last = ends[-back].line
    first = ends[-back - 1].line if len(ends) > back else 0
    events = [event for event in reading.events if first < event.line <= last]
    summary = msgspec.structs.replace(reading.summary, first_line=first + 1, last_line=last)
    return FileReading(summary, events)


def _is_same(earlier: Diagnosis, later: Diagnosis) -> bool:
    """The same causes on the same ranks; where no rank is known, on the same hosts and devices."""
    return bool(earlier.causes) and [_key(cause) for cause in earlier.causes] == [_key(c) for c in later.causes]


def _key(cause: Cause) -> tuple[str, list[object]]:
    places: list[object] = [(c.host, c.device) if c.rank is None else c.rank for c in cause.culprits]
    return cause.signature, places
