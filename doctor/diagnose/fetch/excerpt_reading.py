"""Excerpts to events: as a log that lies here is read, with the line numbers of the log on its host.

What a host's kernel said is joined in time with the job's failure: the rest is not the job's.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Mapping, Sequence

import msgspec

from doctor.diagnose.events import Event, FileReading
from doctor.diagnose.fetch.ask_hosts import log_identity, shared_logs
from doctor.diagnose.fetch.saved_logs import LogExcerpt, LogRecord
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.readings import read_dump
from doctor.diagnose.read.scan import scan
from doctor.diagnose.signature import ERROR_ROLES, Signature
from doctor.engine.quantities import span_text
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled

OLDER = "older than asked for"
"""The excerpter's reason for files that ``--since`` leaves out: they are not missed."""
_HARMLESS = (OLDER, "a link", "no regular file")
LOCAL = "localhost"
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


def read_record(record: LogRecord, signatures: Mapping[str, Signature]) -> list[FileReading]:
    """The readings of all logs, and of what the scheduler says. A file that several hosts share is read once."""
    matcher = Matcher(signatures.values())
    shared, done = shared_logs(record.hosts), set()
    readings = []
    for host, logs in record.hosts.items():
        for log in logs.files:
            identity = log_identity(log)
            if identity in done and not log.kernel:
                continue
            done.add(identity)
            if identity in shared:
                readings.append(_read_excerpt("", shared[identity], matcher))
            else:
                readings.append(_read_excerpt("" if host == LOCAL else host, log, matcher))
    readings = join_kernel_logs(readings, signatures)
    year = time.gmtime().tm_year
    for name, text in record.texts.items():
        readings.append(scan(name, [text.encode()], matcher, file=0, year=year))
        readings[-1].summary.accounting = True
    for name, text in record.logs.items():
        readings.append(
            scan(name, text.encode("utf-8", "replace").splitlines(keepends=True), matcher, file=0, year=year)
        )
    return readings


def _read_excerpt(host: str, log: LogExcerpt, matcher: Matcher) -> FileReading:
    if log.dump:
        return _read_dump(host, log)
    data = "".join(line.replace("\n", " ") + "\n" for _, line in log.kept).encode()
    name = f"{host}:{log.path}" if host else log.path
    year = time.gmtime(min(max(log.modified, 0.0), 32e9) or time.time()).tm_year
    reading = scan(name, [data] if data else [], matcher, file=0, year=year)
    summary = reading.summary
    summary.bytes, summary.lines, summary.origin = log.read, log.lines, host
    summary.incomplete, summary.labels = not log.complete, tuple(log.labels)
    summary.notes += log.notes
    summary.kernel = log.kernel
    events = [msgspec.structs.replace(event, line=log.kept[event.line - 1][0]) for event in reading.events]
    if len(log.kept) < log.lines:  # what was printed before is not all here
        for event in events:
            event.values.pop("still_s", None)
    return FileReading(summary, events)


def _read_dump(host: str, log: LogExcerpt) -> FileReading:
    """A dump as one that lies here is read: by an interpreter that knows plain values only."""
    try:
        data = base64.b64decode(log.dump, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    reading = read_dump(f"{host}:{log.path}" if host else log.path, iter([data]), list(log.notes))
    reading.summary.origin, reading.summary.incomplete = host, not log.complete
    return reading


def unread_logs(record: LogRecord) -> list[str]:
    """Logs that a diagnosis may lack, in words: of hosts that did not answer, and that could not be read."""
    reasons = [filled("the logs of {0}: {1}", host, logs.error) for host, logs in record.hosts.items() if logs.error]
    for host, logs in record.hosts.items():
        place = filled(" on {0}", host) if host != LOCAL else ""
        for item in logs.omitted:
            if item.reason not in _HARMLESS:
                files = count_noun(item.count, "log")
                reasons.append(filled("{0}{1}: {2} ({3})", files, place, item.reason, ", ".join(item.examples[:2])))
    return reasons


def collection_notes(record: LogRecord) -> list[str]:
    """What a report says of the collection beside that: hosts without a log, files that were older or no logs."""
    notes = list(record.notes)
    for host, logs in record.hosts.items():
        place = f"{host}: " if host != LOCAL else ""
        if not logs.files and not logs.error:
            older = sum(item.count for item in logs.omitted if item.reason == OLDER)
            beside = filled("; {0} older than asked for", count_noun(older, "file")) if older else ""
            notes.append(filled("{0}no log at {1}{2}", place, ", ".join(record.places), beside))
        if logs.kernel:
            notes.append(filled("{0}the kernel's messages cannot be read: {1}; --sudo reads them", place, logs.kernel))
    count = sum(item.count for logs in record.hosts.values() for item in logs.omitted if item.reason == OLDER)
    if count:
        text = "{0} last written more than {1} ago: not read"
        notes.append(filled(text, count_noun(count, "file"), span_text(record.since)))
    return notes


def join_kernel_logs(readings: Sequence[FileReading], signatures: Mapping[str, Signature]) -> list[FileReading]:
    """The readings, those of kernel logs without what is not of the job's time, or is of other programs."""
    others = [reading for reading in readings if not reading.summary.kernel]
    return [_joined(reading, others, signatures) if reading.summary.kernel else reading for reading in readings]


def _joined(kernel: FileReading, others: Sequence[FileReading], signatures: Mapping[str, Signature]) -> FileReading:
    window = _window(others, signatures)
    pids = {
        event.pid for reading in others if reading.summary.origin == kernel.summary.origin for event in reading.events
    }
    kept = [
        event
        for event in kernel.events
        if window and event.time is not None and window[0] <= event.time <= window[1] and _may_be_of_job(event, pids)
    ]
    dropped = sum(signatures[event.signature].role == "root" for event in kernel.events)
    dropped -= sum(signatures[event.signature].role == "root" for event in kept)
    if dropped:
        why = "not of the job's time, or of other programs" if window else "no log shows the job's time"
        kernel.summary.notes.append(filled("{0} messages of faults left out: {1}", dropped, why))
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
        if event.time is not None and signatures[event.signature].role in ERROR_ROLES
    ]
    return max(min(starts) - 60.0, min(failures, default=max(ends)) - BEFORE_S), max(ends) + AFTER_S


def _may_be_of_job(event: Event, pids: set[str]) -> bool:
    """Of kills for memory only those of the job's processes: by pid, or by the name of the program."""
    if event.signature != "host-oom-kill":
        return True
    match = _KILLED.search(event.text)
    if not match:
        return False
    pid, name = match["pid"] or match["task_pid"], match["name"] or match["task"]
    return pid in pids or bool(_OF_JOBS.match(name))
