"""Rules over the reports of NCCL RAS (`ncclras`): a process that does not answer, a rank behind in its collectives."""

from __future__ import annotations

import msgspec

from doctor.analysis.collectives.calls import lag
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import RECORDER, Cause, Confidence, Culprit, Undecidable, first_evidence
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.rules.named import count_ranks
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled, joined

SIGNATURE = "nccl-ras-outlier"
_MAX_NUMBER = 1 << 58


class _Mismatch(msgspec.Struct):
    """One communicator whose ranks have launched different numbers of one collective."""

    communicator: str
    kind: str = "collective"
    ranks: dict[int, int] = {}
    """How many ranks have launched how many operations."""
    listed: dict[int, list[Event]] = {}
    """Lines of ranks by the operations that they have launched."""


class _Report(msgspec.Struct):
    """One answer of `ncclras`."""

    silent: dict[str, Event] = {}
    """Lines of processes that did not answer, by their number."""
    dead: set[str] = set()
    mismatches: list[_Mismatch] = []
    world: int = 0
    """Ranks of the largest communicator, where it is the only one of its size."""


def ras_reports(case: Case) -> list[Cause] | Undecidable:
    """What the last report of each file says, compared with the earlier ones.

    Counts of a job that goes on differ in passing: a rank is behind only where a log shows a failure, or where two
    reports show the same count. Which ranks the report lists says nothing: it lists the smaller group.
    """
    by_file = lists_by_key((event.file, event) for event in case.reports if event.signature.startswith("nccl-ras-"))
    for events in by_file.values():
        reports = _read(sorted(events, key=lambda event: event.line))
        verdict = _silent(reports) or _behind(case, reports)
        if verdict:
            return verdict
    return []


def _read(events: list[Event]) -> list[_Report]:
    """The reports, in order; those without a difference or a silent process are left out."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return [report for report in reader.reports if report.silent or report.mismatches]


class _Reader:
    """Puts the lines of one file together: what a line means depends on the headings before it."""

    def __init__(self) -> None:
        self.reports = [_Report()]
        self.dead = False
        self.mismatch: _Mismatch | None = None
        self.operation = 0

    def read(self, event: Event) -> None:
        values = event.values
        if event.signature == "nccl-ras-report":
            self.reports.append(_Report(silent={}, dead=set(), mismatches=[]))
            self.dead, self.mismatch = False, None
        elif event.signature == "nccl-ras-communicator":
            self._communicator(values)
        elif event.signature == "nccl-ras-process":
            self.dead = (self.dead or "ras_dead" in values) and "ras_missing" not in values
            self._process(event)
        elif event.signature == "nccl-ras-operations" and self.mismatch:
            self.mismatch.kind = values.get("ras_kind", self.mismatch.kind)
            if "ras_count" in values:
                self.operation = _number(values, "ras_operation")
                self.mismatch.ranks[self.operation] = _number(values, "ras_count")
        elif event.signature == "nccl-ras-rank":
            self._rank(event)

    def _communicator(self, values: dict[str, str]) -> None:
        report = self.reports[-1]
        if values.get("ras_communicators") == "1":
            report.world = max(report.world, _number(values, "ras_size"))
        self.mismatch = None
        if "ras_mismatch" in values:
            self.mismatch = _Mismatch(values.get("ras_hash", ""), ranks={}, listed={})
            report.mismatches.append(self.mismatch)

    def _process(self, event: Event) -> None:
        pid = event.values.get("ras_pid")
        if pid:
            self.reports[-1].silent[pid] = event
            if self.dead:
                self.reports[-1].dead.add(pid)

    def _rank(self, event: Event) -> None:
        pid = event.values.get("ras_pid")
        if self.mismatch is None and pid:
            self.reports[-1].silent[pid] = event
        elif self.mismatch and "ras_operation" in event.values:
            count = _number(event.values, "ras_operation")
            self.mismatch.ranks[count] = self.mismatch.ranks.get(count, 0) + 1
            self.mismatch.listed.setdefault(count, []).append(event)
        elif self.mismatch and self.mismatch.ranks:
            self.mismatch.listed.setdefault(self.operation, []).append(event)


def _number(values: dict[str, str], name: str) -> int:
    return small_number(values.get(name, ""), _MAX_NUMBER) or 0


def _culprit(report: _Report, event: Event, size: int) -> Culprit:
    """The rank of a communicator is that in the world only in the one communicator of all ranks."""
    rank, device = (small_number(event.values.get(name, "")) for name in ("ras_rank", "ras_device"))
    in_world = report.world and size in (0, report.world)
    return Culprit(rank if in_world else None, event.values.get("ras_host", ""), device)


def _silent(reports: list[_Report]) -> list[Cause]:
    if not reports or not reports[-1].silent:
        return []
    last = reports[-1]
    pids = sorted(last.dead or last.silent)
    again = any(pid in report.silent for report in reports[:-1] for pid in pids)
    confidence: Confidence = "likely" if last.dead or again else "possible"
    culprits = tuple(_culprit(last, last.silent[pid], 0) for pid in pids)
    names = joined(
        " and ", (filled("process {0} on {1}", pid, last.silent[pid].values.get("ras_host", "")) for pid in pids[:4])
    )
    text = "NCCL RAS reports as dead (no answer for 60 s): {0}" if last.dead else "NCCL RAS got no answer from {0}"
    events = first_evidence(last.silent[pid] for pid in pids)
    return [Cause(SIGNATURE, "named by the library", confidence, culprits, filled(text, names), events)]


def _behind(case: Case, reports: list[_Report]) -> list[Cause] | Undecidable | None:
    if not reports or not reports[-1].mismatches:
        return None
    last, earlier = reports[-1], [mismatch for report in reports[:-1] for mismatch in report.mismatches]
    failed = any(case.waits(process) or case.with_role(process, "root") for process in case.processes)
    for mismatch in last.mismatches:
        where = lag(mismatch.ranks)
        if where is None:
            continue
        kind, group = mismatch.kind, mismatch.communicator
        alike = (other for other in earlier if (other.kind, other.communicator) == (kind, group))
        if not failed and not any(where.lowest in other.ranks for other in alike):
            continue
        behind = mismatch.listed.get(where.lowest, [])
        lowest = where.lowest
        launched = filled("1 {0} operation", kind) if lowest == 1 else filled("{0} {1} operations", lowest, kind)
        if not behind or not where.named:
            text = (
                "NCCL RAS: {0} of {1} ranks launched {2}, the others up to {3}: which of them holds the "
                "others is not shown"
            )
            named = filled(text, where.behind, where.total, launched, where.highest)
            return Undecidable(named, ("ncclras -v", RECORDER))
        culprits = tuple(_culprit(last, event, where.total) for event in behind)
        numbers = (small_number(event.values.get("ras_rank", "")) for event in behind)
        ranks = count_ranks(rank for rank in numbers if rank is not None)
        others = where.total - len(behind)
        text = "NCCL RAS reports that {0} of communicator {1} launched {2}, the other {3} up to {4}"
        summary = filled(text, ranks, mismatch.communicator, launched, others, where.highest)
        return [Cause(SIGNATURE, "behind in sequence", "likely", culprits, summary, first_evidence(behind))]
    return None
