"""Rules over the reports of NCCL RAS (`ncclras`): a process that does not answer, a rank behind in its collectives."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from doctor.diagnose.case import Case
from doctor.diagnose.cause import Cause, Confidence, Culprit, Undecidable, first_evidence
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.rules.named import count_ranks

SIGNATURE = "nccl-ras-outlier"
_MAX_NUMBER = 1 << 58


class _Place(msgspec.Struct, frozen=True):
    """A rank or process as a report names it; None and empty are not known."""

    event: Event
    rank: int | None
    host: str
    device: int | None
    pid: str


class _Mismatch(msgspec.Struct):
    """One communicator whose ranks have launched different numbers of one collective."""

    communicator: str
    kind: str = "collective"
    size: int = 0
    ranks: dict[int, int] = {}
    """How many ranks have launched how many operations."""
    listed: dict[int, list[_Place]] = {}
    """Ranks by the operations that they have launched."""


class _Report(msgspec.Struct):
    """One answer of `ncclras`."""

    silent: dict[str, _Place] = {}
    """Processes that did not answer, by their number."""
    dead: set[str] = set()
    mismatches: list[_Mismatch] = []
    world: int = 0
    """Ranks of the largest communicator, where it is the only one of its size."""


def ras_reports(case: Case) -> list[Cause] | Undecidable:
    """What the last report of each file says, compared with the earlier ones.

    Counts of a job that goes on differ in passing: a rank is behind only where a log shows a failure, or where two
    reports show the same count. Which ranks the report lists says nothing: it lists the smaller group.
    """
    by_file: dict[int, list[Event]] = defaultdict(list)
    for event in case.reports:
        if event.signature.startswith("nccl-ras-"):
            by_file[event.file].append(event)
    for events in by_file.values():
        reports = _read(sorted(events, key=lambda event: event.line))
        verdict = _silent(reports) or _behind(case, reports)
        if verdict:
            return verdict
    return []


def _read(events: list[Event]) -> list[_Report]:
    reports = [_Report()]
    dead, mismatch, operation = False, None, 0
    for event in events:
        values = event.values
        if event.signature == "nccl-ras-report":
            reports.append(_Report(silent={}, dead=set(), mismatches=[]))
            dead, mismatch = False, None
        elif event.signature == "nccl-ras-communicator":
            if values.get("ras_communicators") == "1":
                reports[-1].world = max(reports[-1].world, _number(values, "ras_size"))
            mismatch = None
            if "ras_mismatch" in values:
                mismatch = _Mismatch(values.get("ras_hash", ""), ranks={}, listed={})
                reports[-1].mismatches.append(mismatch)
        elif event.signature == "nccl-ras-process":
            dead = (dead or "ras_dead" in values) and "ras_missing" not in values
            if values.get("ras_pid"):
                reports[-1].silent[values["ras_pid"]] = _place(event)
                reports[-1].dead |= {values["ras_pid"]} if dead else set()
        elif mismatch and event.signature == "nccl-ras-operations":
            mismatch.kind = values.get("ras_kind", mismatch.kind)
            if "ras_count" in values:
                operation = _number(values, "ras_operation")
                mismatch.ranks[operation] = _number(values, "ras_count")
        elif event.signature == "nccl-ras-rank":
            if mismatch is None:
                place = _place(event)
                if place.pid:
                    reports[-1].silent[place.pid] = place
            elif "ras_operation" in values:
                own = _number(values, "ras_operation")
                mismatch.ranks[own] = mismatch.ranks.get(own, 0) + 1
                mismatch.listed.setdefault(own, []).append(_place(event))
            elif mismatch.ranks:
                mismatch.listed.setdefault(operation, []).append(_place(event))
    return [report for report in reports if report.silent or report.mismatches]


def _place(event: Event) -> _Place:
    values = event.values
    rank, device = small_number(values.get("ras_rank", "")), small_number(values.get("ras_device", ""))
    return _Place(event, rank, values.get("ras_host", ""), device, values.get("ras_pid", ""))


def _number(values: dict[str, str], name: str) -> int:
    return small_number(values.get(name, ""), _MAX_NUMBER) or 0


def _culprit(report: _Report, place: _Place, size: int) -> Culprit:
    """The rank of a communicator is that in the world only in the one communicator of all ranks."""
    rank = place.rank if report.world and size in (0, report.world) else None
    return Culprit(rank, place.host, place.device)


def _silent(reports: list[_Report]) -> list[Cause]:
    if not reports or not reports[-1].silent:
        return []
    last = reports[-1]
    pids = sorted(last.dead or last.silent)
    again = any(pid in report.silent for report in reports[:-1] for pid in pids)
    confidence: Confidence = "likely" if last.dead or again else "possible"
    culprits = tuple(_culprit(last, last.silent[pid], 0) for pid in pids)
    verb = "is dead (no answer for 60 s)" if last.dead else "does not answer"
    names = " and ".join(f"process {pid} on {last.silent[pid].host}" for pid in pids[:4])
    summary = f"NCCL RAS reports that {names} {verb}"
    events = first_evidence(last.silent[pid].event for pid in pids)
    return [Cause(SIGNATURE, "named by the library", confidence, culprits, summary, events)]


def _behind(case: Case, reports: list[_Report]) -> list[Cause] | Undecidable | None:
    if not reports or not reports[-1].mismatches:
        return None
    last = reports[-1]
    roles = ("root", "victim", "ambiguous", "link")
    failed = any(case.with_role(process, *roles) for process in case.processes)
    for mismatch in last.mismatches:
        if len(mismatch.ranks) < 2:
            continue
        lowest, highest = min(mismatch.ranks), max(mismatch.ranks)
        earlier = [
            other
            for report in reports[:-1]
            for other in report.mismatches
            if other.communicator == mismatch.communicator
        ]
        stuck = any(other.kind == mismatch.kind and lowest in other.ranks for other in earlier)
        if not failed and not stuck:
            continue
        total = sum(mismatch.ranks.values())
        behind = mismatch.listed.get(lowest, [])
        if not behind or 2 * mismatch.ranks[lowest] >= total:
            return Undecidable(
                f"NCCL RAS: {mismatch.ranks[lowest]} of {total} ranks have launched {lowest} {mismatch.kind} operations, "
                f"the others up to {highest}: which of them holds the others is not shown",
                ("ncclras -v", "the flight recorder's dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000)"),
            )
        culprits = tuple(_culprit(last, place, total) for place in behind)
        ranks = count_ranks(place.rank for place in behind if place.rank is not None)
        summary = (
            f"NCCL RAS reports that {ranks} of communicator {mismatch.communicator} launched {lowest} "
            f"{mismatch.kind} operations, the other {total - len(behind)} up to {highest}"
        )
        events = first_evidence(place.event for place in behind)
        return [Cause(SIGNATURE, "behind in sequence", "likely", culprits, summary, events)]
    return None
