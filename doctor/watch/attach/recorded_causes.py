"""What `doctor diagnose` reads from the recorders of a running job: torch's flight recorder, NCCL RAS, HCCL's logs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from doctor.diagnose.diagnosis import Cause, Diagnosis
from doctor.diagnose.fetch.saved_logs import LogRecord
from doctor.diagnose.run import diagnose_found, diagnose_record
from doctor.diagnose.signature import Signature, load_signatures
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.watch.attach.odd_ranks import JobFinding
from doctor.watch.attach.rank_report import HostReport
from doctor.watch.loss.heartbeat_lines import HEARTBEAT

MAX_DUMPS = 1024
_OF_ANY_JOB = re.compile(r"/tmp/[nh]ccl_trace_rank_\d+$|.*/\.cache/torch/comm_lib_trace_rank_\d+$")
"""Where the recorder of each job of a user writes that has no place of its own (torch, FlightRecorder.cpp)."""
_COMMUNICATOR = re.compile(r"communicator ([0-9a-f]{8,32})")
_MANAGED_BY = re.compile(r"managed by process (\d{1,10})\b")

ReadOnHosts = Callable[[Sequence[str]], "LogRecord"]
"""Reads files, by their paths, on the hosts that have them."""


class RecordedCause(msgspec.Struct, frozen=True):
    """A cause that a recorder of the job shows."""

    text: str
    """One sentence."""
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    """Hosts and the numbers of their devices."""
    is_sure: bool = True
    """Not only the best of several explanations."""
    may_pass: bool = False
    """A job that goes on may show it in passing."""
    members: tuple[int, ...] = ()
    """The processes of the communicator that it speaks of, by their pids; empty: not known."""

    @property
    def named(self) -> set[int]:
        return {*self.members, *self.pids}


def recorded_causes(
    reports: Mapping[str, HostReport], job: JobFinding, read_on_hosts: ReadOnHosts | None
) -> list[RecordedCause]:
    """The causes that the recorders show of one of the jobs in ``reports``, from the files of its own processes.

    ``read_on_hosts``: None where the files lie on this host. A file that two jobs may have written, such as
    ``/tmp/nccl_trace_rank_0``, is not read, and a cause that is not sure says so. What lies at such a place is never
    sure: a job that wrote it may have ended since.
    """
    dumps = {(entry.host, path) for entry in job.ranks for path in entry.report.dumps}
    logs = {(entry.host, path) for entry in job.ranks for path in entry.report.heartbeat_logs}
    answers = [report.ras for report in reports.values() if report.ras.strip()]
    if not (dumps or logs or answers):
        return []
    signatures = load_signatures()
    hosts = {entry.host for entry in job.ranks}
    of_others = _files_of_others(reports, job)

    def read(source: str, files: Collection[tuple[str, str]], only: str = "") -> list[RecordedCause]:
        shared = sorted(path for host, path in of_others.intersection(files))
        paths = sorted({path for host, path in files if path not in shared})[:MAX_DUMPS]
        text = "{0}: {1} was not read: another job may have written it"
        unread = [RecordedCause(filled(text, source, printable(path, 200)), is_sure=False) for path in shared[:1]]
        if not paths:
            return unread
        try:
            diagnosis = _diagnosis(paths, hosts, read_on_hosts, signatures)
        except InputError as error:
            return [*unread, RecordedCause(filled("{0}: {1}", source, error), is_sure=False)]
        chosen = [cause for cause in diagnosis.causes if not only or cause.signature == only]
        causes = [_recorded(source, cause, may_pass=not only) for cause in chosen[:3]]
        doubtful = [path for path in paths if _OF_ANY_JOB.match(path)]
        return [*unread, *(_doubted(cause, doubtful[0]) if doubtful else cause for cause in causes)]

    beside = {pid for report in reports.values() for pid in report.beside}
    of_job = {entry.report.pid for entry in job.ranks}
    of_ras = [cause for cause in _ras_causes(answers, signatures) if cause.named & of_job or not cause.named & beside]
    return [*read("flight recorder", dumps), *read("HCCL", logs, HEARTBEAT), *of_ras]


def _files_of_others(reports: Mapping[str, HostReport], job: JobFinding) -> set[tuple[str, str]]:
    """The hosts and paths of recordings of processes that are not of this job."""
    own = {(entry.host, entry.report.pid) for entry in job.ranks}
    others = ((host, rank) for host, report in reports.items() for rank in report.ranks if (host, rank.pid) not in own)
    beside = {(host, path) for host, report in reports.items() for path in report.beside_dumps}
    return beside | {(host, path) for host, rank in others for path in (*rank.dumps, *rank.heartbeat_logs)}


def _diagnosis(
    paths: Sequence[str], hosts: Collection[str], read_on_hosts: ReadOnHosts | None, signatures: Mapping[str, Signature]
) -> Diagnosis:
    if read_on_hosts is None:
        return diagnose_found(paths, signatures)
    record = read_on_hosts(paths)
    logs = {host: logs for host, logs in record.hosts.items() if host in hosts}
    return diagnose_record(msgspec.structs.replace(record, hosts=logs, job_hosts=tuple(logs)), signatures)


def _ras_causes(answers: Iterable[str], signatures: Mapping[str, Signature]) -> list[RecordedCause]:
    """What NCCL's RAS says, asked twice on each host."""
    texts = list(answers)
    if not texts:
        return []
    with tempfile.TemporaryDirectory(prefix="doctor-ras-") as folder:
        for number, answer in enumerate(texts):
            Path(folder, f"ncclras-{number}.log").write_text(answer, "utf-8", "replace")
        causes = diagnose_found([folder], signatures).causes[:3]
    recorded = (_recorded("NCCL RAS", cause, may_pass=False) for cause in causes)
    return [msgspec.structs.replace(cause, members=_members(cause.text, texts)) for cause in recorded]


def _members(text: str, answers: Iterable[str]) -> tuple[int, ...]:
    """The processes that RAS names in what it says of the communicator in ``text``."""
    named = _COMMUNICATOR.search(text)
    parts = (part for answer in answers for part in re.split(r"(?m)^(?=#\d)", answer))
    found = {int(pid) for part in parts if named and named[1] in part[:200] for pid in _MANAGED_BY.findall(part)}
    return tuple(sorted(found))


def _doubted(cause: RecordedCause, path: str) -> RecordedCause:
    """What a file shows that another job, which has ended since, may have written."""
    text = filled("{0}; {1} is where any job of this user writes: one that has ended may have", cause.text, path)
    return msgspec.structs.replace(cause, text=text, is_sure=False)


def _recorded(source: str, cause: Cause, *, may_pass: bool) -> RecordedCause:
    culprits = cause.culprits
    named = "" if cause.summary.startswith(source) else f"{source}: "
    return RecordedCause(
        filled("{0}{1} ({2})", named, cause.summary, cause.confidence),
        tuple(entry.rank for entry in culprits if entry.rank is not None),
        tuple(map(int, re.findall(r"\bprocess (\d{1,10})\b", cause.summary))) if source == "NCCL RAS" else (),
        tuple((entry.host, entry.device) for entry in culprits if entry.rank is None and entry.device is not None),
        cause.confidence != "possible",
        may_pass,
    )
