"""What belongs to an earlier attempt of a run, and what a run overcame: neither is why it failed.

Of a scheduler's accounting only rows of the job whose logs are diagnosed count: sacct shows many jobs at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.diagnose.events import FOLDED, Event, FileReading, FileSummary
from doctor.diagnose.signature import ERROR_ROLES, Signature, Trait
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled

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


Catalog = Mapping[str, Signature]
_ROWS_APART = 12
"""Lines between two rows of one list of failures, at most."""
_ROW_LINES = 3
"""Lines of a row behind that with the exit code, at most."""
_REPORT_LINES = 6
"""Lines of one report of mpirun, at most."""
_MPIRUN = "mpirun"
TORCHRUN_START, TORCHRUN_ROW = "torchrun-start", "torchrun-failed-worker"
HOST_START = "host-started"
PROGRAM_START = "program-start"
"""What one process of a program prints once, as it starts."""
TORCHRUN_HEADING = "torchrun-root-cause-block"
"""Behind it is the row of the worker that torchrun saw fail first."""
_IN_ORDER = "process-ended-well"
"""A good end that processes also print where another error ended the program: it undoes none."""
_ENDING_S = 120.0
"""Seconds that ranks take to end after a signal asks them to; Slurm's KillWait is 30 (slurm.conf(5))."""
_ATTEMPT = re.compile(r"^(?P<run>.*/)?attempt_(?P<number>\d{1,6})/")
_DIGITS = re.compile(r"\d+")
_STAMP_SECONDS = 1.0
"""What stamps of one file may be apart because some have no fractions."""
_STARTING = ("init", "connect")
"""Phases that are over once steps are made."""
_UNCAUGHT = re.compile(r"\[rank\d{1,6}\]: ")
"""How torch begins each line of the traceback with which a process ends."""


class AttemptEnd(NamedTuple):
    """Where an earlier attempt, or an earlier job, ends in a file to which the next one is appended."""

    line: int
    """The last of its lines."""
    is_job: bool
    """Another job follows, not another attempt of the same one."""


def ends_in(events: Sequence[Event], catalog: Catalog, *, restarted: bool = False) -> list[AttemptEnd]:
    """Where attempts before the last one end, in order. ``restarted``: files of the ranks show that there was one.

    torchrun names a restart only at a level that it does not show. It shows a failed worker, and after the last
    attempt its list of failures; a failed worker that no list follows, but a good end or another one, was restarted.
    """
    rows = ends_of_rows(events)
    events = [event for event in events if "slurm_job" not in event.values]

    def lines(trait: Trait) -> list[int]:
        return [e.line for e in events if trait in catalog[e.signature].traits]

    jobs = [_with_aftermath(line, events, catalog) for line in _ends_of_jobs(events)]
    jobs += [line for line, is_job in rows if is_job]
    launches = _ends_of_launches(events, catalog)
    restarts: list[int] = []
    later, ends = [e.line for e in events if e.signature == TORCHRUN_HEADING], lines("good-end")
    failed = [e.line for e in events if e.signature == TORCHRUN_ROW and "failed (" in e.text]
    for line in failed:
        after = min((end for end in later if end > line), default=None)
        again = min((end for end in (*ends, *failed) if end > line), default=None)
        if (after is None and restarted) or (again is not None and (after is None or again < after)):
            restarts.append(line)
    last = max((event.line for event in events), default=0)
    requeued = [_with_aftermath(line, events, catalog) for line in lines("restart")]
    restarts += [line for line in requeued if line < last]
    restarts += [line for line, is_job in rows if not is_job]
    restarts += _ends_before_starts(events, catalog)
    return sorted(AttemptEnd(line, line in jobs) for line in {*restarts, *jobs, *launches})


def _ends_of_launches(events: Sequence[Event], catalog: Catalog) -> list[int]:
    """The last lines of what mpirun or srun say of ranks that ended, where they start again in the same file.

    mpirun says it once, as the last that it prints: another such report, or a good end behind it, is of the next start.
    srun says it of each task when that ends: another start is shown by a task that ends twice, with a line of the
    program between.
    """
    ends: list[int] = []
    tasks: set[str] = set()
    last = 0
    went_on = False
    for event in sorted(events, key=lambda item: item.line):
        traits = catalog[event.signature].traits
        if "launch-end" in traits:
            listed = event.values.get("culprit_ranks", "") or event.values.get("ended_ranks", "")
            ranks = {*listed.split(",")} if listed else {_MPIRUN}
            again = tasks & ranks and (went_on or (not listed and event.line > last + _REPORT_LINES))
            if again:
                ends.append(last)
            tasks, last, went_on = ranks if again else tasks | ranks, event.line, False
        elif _MPIRUN in tasks and "good-end" in traits:
            ends.append(last)
            tasks, went_on = set(), False
        elif "about-others" not in traits and "ends-all" not in traits and catalog[event.signature].role != "wrapper":
            went_on = bool(tasks)
        elif tasks and not went_on and _MPIRUN not in tasks:
            last = event.line
    return ends


def _ends_before_starts(events: Sequence[Event], catalog: Catalog) -> list[int]:
    """The last failures before a line that a program prints once as it starts, where it had printed it before, too."""
    ends: list[int] = []
    started: set[tuple[str, int | None]] = set()
    failure = 0
    for event in sorted(events, key=lambda item: item.line):
        if event.signature == PROGRAM_START:
            start = _DIGITS.sub("", event.text)[:120], event.rank
            if start in started and failure:
                ends.append(failure)
                started, failure = set(), 0
            started.add(start)
        elif catalog[event.signature].role in ERROR_ROLES:
            failure = event.line
    return ends


def _with_aftermath(line: int, events: Sequence[Event], catalog: Catalog) -> int:
    """The last line of what ranks and launchers print while they end, after this line."""
    ended = [event for event in events if event.line == line]
    follows = {name for event in ended for name in (event.signature, *catalog[event.signature].explains)}
    time = max((event.time for event in ended if event.time is not None), default=None)
    for event in events:
        if event.line <= line:
            continue
        traits = catalog[event.signature].traits
        of_launcher = "about-others" in traits and event.signature != TORCHRUN_ROW
        late = time is not None and event.time is not None and event.time > time + _ENDING_S
        if late or not (event.line <= ended[-1].line + _ROW_LINES or of_launcher or event.signature in follows):
            break
        line = event.line
    return line


def _ends_of_jobs(events: Sequence[Event]) -> list[int]:
    """Where torchrun's agents ended for good, and an agent follows that is none of them.

    An agent that has printed its list of failures ends. Another follows where torchrun prints how it starts, or where a
    second list has a rank of the same agent: its host, and the rank of its first worker, tell an agent from those of
    other nodes whose output is in the same file.
    """
    ends: list[int] = []
    agents: set[tuple[str, int]] = set()
    ranks: set[int] = set()
    last_row = row_start = before_row = list_end = heading = 0
    host = ""
    for event in sorted(events, key=lambda item: item.line):
        if event.signature == TORCHRUN_START and heading:
            ends.append(last_row)
            agents, heading, list_end = set(), 0, 0
        is_row = event.signature == TORCHRUN_ROW and "failed (" not in event.text
        if not is_row and event.signature != TORCHRUN_HEADING:
            continue
        if event.line > last_row + _ROWS_APART:
            list_end, ranks = last_row, set()
        if event.signature == TORCHRUN_HEADING:
            heading = event.line
        elif "time" in event.values:
            row_start, before_row = event.line, last_row
        host = event.host or host
        if event.rank is not None and event.local_rank is not None:
            if event.rank in ranks:
                list_end, ranks = before_row if row_start > before_row else last_row, set()
            agent = (host, event.rank - event.local_rank)
            if agent in agents and list_end and heading:
                ends.append(list_end)
                agents, heading = set(), heading if heading > list_end else 0
            agents.add(agent)
            ranks.add(event.rank)
            list_end = 0
        last_row = event.line
    return ends


def newest_attempt(events: list[Event], catalog: Catalog, *, restarted: bool = False) -> list[Event]:
    """The events after the last restart in the file, and of the last job in it."""
    last = max((end.line for end in ends_in(events, catalog, restarted=restarted)), default=0)
    return [event for event in events if event.line > last]


def older_attempts(names: Sequence[str]) -> list[bool]:
    """For each file, whether its path shows an earlier attempt than that of other files of the same run.

    >>> older_attempts(["a/attempt_0/1/stderr.log", "a/attempt_1/1/stderr.log", "a/train.log"])
    [True, False, False]
    """
    matches = [_ATTEMPT.match(name) for name in names]
    newest: dict[str, int] = {}
    for match in matches:
        if match:
            newest[match["run"] or ""] = max(newest.get(match["run"] or "", 0), int(match["number"]))
    return [match is not None and int(match["number"]) < newest[match["run"] or ""] for match in matches]


def attempt_number(name: str) -> int | None:
    """The attempt that torchrun's folder shows, counted from 0.

    >>> attempt_number("logs/none_x1/attempt_2/0/stderr.log"), attempt_number("train.log")
    (2, None)
    """
    match = _ATTEMPT.match(name)
    return int(match["number"]) if match else None


def overcome(events: list[Event], catalog: Catalog) -> list[Event]:
    """Without the errors after which the same log shows that the run ended well: the program went on after them.

    Not where a launcher reports in the same log that a rank failed: then the others may have ended well.
    """
    ends = [event for event in events if "good-end" in catalog[event.signature].traits]
    last = max((event.line for event in ends if event.signature != _IN_ORDER), default=0)
    reports = (e for e in newest_attempt(events, catalog) if "failure-report" in catalog[e.signature].traits)
    if not last or not all(_is_of_earlier_step(report, ends) for report in reports):
        return events
    return [event for event in events if event.line > last or catalog[event.signature].role in ("evidence", "benign")]


def _is_of_earlier_step(report: Event, ends: Sequence[Event]) -> bool:
    """Whether the task that Slurm says ended, by its label, ends well further down: it is of the next step."""
    ranks = re.findall(r"\d{1,6}", report.values.get("ended_ranks", ""))
    return any(str(end.rank) in ranks and end.line > report.line for end in ends)


def overcome_beside(files: Mapping[int, str], events: list[Event], catalog: Catalog) -> list[Event]:
    """The same of one process whose standard output and standard error are two files of one folder.

    ``files`` are names by index. For processes without a failure in the report of a launcher.
    """
    ending = {event.file for event in events if "good-end" in catalog[event.signature].traits}
    ended = {files[file].rpartition("/")[0] for file in ending}

    def went_on(event: Event) -> bool:
        folder, _, name = files[event.file].rpartition("/")
        return name.startswith("stderr") and event.file not in ending and folder in ended

    return [e for e in events if catalog[e.signature].role in ("evidence", "benign") or not went_on(e)]


def may_be_outlived(signature: Signature) -> bool:
    """What a program may handle, and go on: a fault of its own, an exception over a peer that was lost, a connection.

    Who trains waits for no connection of the start any more: it was tried again. Nor is an error of the start, which a
    line wraps, its own: such a line is quoted.
    """
    waits = signature.role in ("ambiguous", "link", "wrapper")
    return signature.role == "root" or (waits and (signature.phase in _STARTING or "unspecific" in signature.traits))


def outlived(events: Sequence[Event], catalog: Catalog, shared: Collection[int], blamed: bool = False) -> list[Event]:
    """The faults of one process behind which the same process shows progress in the same file, and the lost links of a
    server that goes on to answer.

    They need not have ended it. They may: what a process printed before stands behind its error where its output was
    kept back until it ended. ``shared``: files of several processes, in which a label must tell whose both lines are.
    ``blamed``: a launcher says that this process failed; then only what waited at the start is behind it.
    """
    steps = [event for event in events if "progress" in catalog[event.signature].traits]

    def goes_on(fault: Event, step: Event) -> bool:
        same = fault.file not in shared or (
            (fault.rank is not None or bool(fault.pid)) and (fault.rank, fault.pid) == (step.rank, step.pid)
        )
        same = same or ("served" in step.values and catalog[fault.signature].role == "link")
        timed = not (fault.inferred_time or step.inferred_time)
        earlier = timed and (step.time or 0.0) <= (fault.time or 0.0) - _STAMP_SECONDS
        return same and not earlier and step.file == fault.file and step.line > fault.line

    faults = []
    for event in (event for event in events if not _UNCAUGHT.match(event.text)):
        row = catalog[event.signature]
        waits = row.role in ("ambiguous", "link") and row.phase in _STARTING
        faults += [event] if (waits if blamed else may_be_outlived(row)) else []
    return [fault for fault in faults if any(goes_on(fault, step) for step in steps)]


def not_ended_well(
    outlived: Sequence[Event], events: Sequence[Event], summaries: Sequence[FileSummary], catalog: Catalog
) -> list[Event]:
    """The faults behind which the process does not show in the same file that it ended well; the others are notes."""
    ends = [event for event in events if "good-end" in catalog[event.signature].traits]
    rest = [fault for fault in outlived if not any(end.file == fault.file and end.line > fault.line for end in ends)]
    for index in {fault.file for fault in outlived}:
        note_overcome(summaries[index], [fault for fault in outlived if fault.file == index], rest, catalog)
    return rest


def since_hosts_started(readings: Sequence[FileReading], catalog: Catalog) -> list[list[Event]]:
    """The events of each log, of a host's without those before its kernel started for the last time before the job.

    What the kernel said earlier is over: the start has reset the devices. A journal holds several starts (journalctl
    without ``-b``); after one that came later than the job's first line, the fault may be why the host was started.
    """
    starts = [[e for e in reading.events if e.signature == HOST_START and e.time is not None] for reading in readings]
    begins = [log.summary.first_time for log, host_starts in zip(readings, starts, strict=True) if not host_starts]
    begin = min((time for time in begins if time is not None), default=0.0)
    kept: list[list[Event]] = []
    for reading, host_starts in zip(readings, starts, strict=True):
        line = max((event.line for event in host_starts if (event.time or 0.0) <= begin), default=0)
        count = sum(e.line < line and catalog[e.signature].role == "root" for e in reading.events)
        note = filled("{0} before the host was started: line {1}, before the job", count_noun(count, "error"), line)
        reading.summary.notes += [note] if count and note not in reading.summary.notes else []
        kept.append([event for event in reading.events if event.line >= line])
    return kept


def note_overcome(summary: FileSummary, before: Sequence[Event], kept: Sequence[Event], catalog: Catalog) -> None:
    """Notes at a file the faults in it after which its process went on and ended well."""
    lines = sorted({e.line for e in before if e not in kept and catalog[e.signature].role == "root"})
    if lines:
        listed = ", ".join(map(str, lines[:8]))
        note = filled(
            "{0} after which the process went on and ended well: line {1}", count_noun(len(lines), "error"), listed
        )
        summary.notes += [note] if note not in summary.notes else []


def note_left_out(readings: Sequence[FileReading], catalog: Catalog) -> list[str]:
    """Marks the files from which a collector left lines out as incomplete: what they lack, and where it is."""
    advice = {}
    for reading in readings:
        for event in reading.events:
            if "lines-left-out" in catalog[event.signature].traits:
                reading.summary.incomplete = True
                advice[event.signature] = catalog[event.signature].fix[0]
    return list(advice.values())


AROUND = 200
"""Lines before the first and behind the last of the evidence in a file."""


def lacks_lines(events: Sequence[Event], catalog: Catalog, unread: Sequence[str], evidence: Sequence[Event]) -> bool:
    """Whether a log was not opened, or a collector left lines out around what decides."""
    gaps = [event for event in events if "lines-left-out" in catalog[event.signature].traits]
    unopened = {*unread} - {catalog[gap.signature].fix[0] for gap in gaps}
    errors = {(e.file, e.line) for e in events if catalog[e.signature].role in ERROR_ROLES | {"wrapper"}}
    return bool(unopened) or any(_is_around(gap, catalog[gap.signature], errors, evidence) for gap in gaps)


def _is_around(gap: Event, row: Signature, errors: Collection[tuple[int, int]], evidence: Sequence[Event]) -> bool:
    """Like lines that are folded are what the line shows; an option of the launcher holds for the whole log."""
    if row.id == FOLDED:
        return (gap.file, gap.line) in errors
    lines = [event.line for event in evidence if event.file == gap.file]
    return row.phase == "init" or (bool(lines) and min(lines) - AROUND <= gap.line <= max(lines) + AROUND)
