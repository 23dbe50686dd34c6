"""Rule "named by the cluster": a driver, monitor or scheduler says which process, pod or task ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    MAX_CULPRITS,
    Cause,
    Confidence,
    Culprit,
    culprit_of_rank,
    first_evidence,
    names_of,
    sorted_culprits,
)
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.rules.deciding_lines import decides_report, deciding_line
from doctor.diagnose.rules.failed_workers import signature_of_exit
from doctor.diagnose.rules.local_fault import GRACE_S, is_unspecific
from doctor.diagnose.rules.named import absent_ranks
from doctor.engine.texts import filled

RULE = "named by the cluster"
LEADER = "jax-leader-lost"
"""Of JAX: the process with rank 0 serves all others, which say that they do not reach it."""
_NAMES = ("culprit_rank", "culprit_host", "culprit_pid", "culprit_pod")


class ClusterReport(msgspec.Struct):
    """A line that says who ended, with what lines near it add."""

    event: Event
    values: dict[str, list[str]]
    """By name, the nearest first."""


def named_by_cluster(case: Case) -> list[Cause]:
    """One cause for each signature. Who ended without an error of its own is named where nothing says more."""
    reports: dict[str, list[ClusterReport]] = {}
    variants = _variants(case)
    decided = {name for cause in variants for name in case.signatures[cause.signature].explains}
    for event in case.reports:
        signature = case.signatures[event.signature]
        if event.signature in decided or (signature.is_of_launch and case.went_on(event)):
            continue
        if signature.reports and not _ended_itself(case, event) and not _is_wrong(case, event):
            unspecific, report = is_unspecific(case, event.signature), _with_fields(case, event)
            if unspecific and not report.values and case.went_on(event):
                continue  # an exit code without the name of its process may be a helper's
            signal = signature_of_exit(event.values.get("exit_code", "")) if unspecific else ""
            reports.setdefault(signal or event.signature, []).append(report)
    kept = {
        name: [row for row in rows if not any(_explains(case, other, name, row) for other in reports.items())]
        for name, rows in reports.items()
    }
    kept = {name: rows for name, rows in kept.items() if rows}
    tied = {name for other in kept for name in case.signatures[other].explains if name in kept}
    causes = [*variants, *(_cause(case, name, rows) for name, rows in kept.items())]
    return [msgspec.structs.replace(cause, confidence="possible") for cause in causes] if tied else causes


def _variants(case: Case) -> list[Cause]:
    """Of what is reported: the cause that a line beside it decides, with its address or errno."""
    reported = {event.signature for event in case.reports if case.signatures[event.signature].reports}
    explained = reported & {name for row in case.signatures.values() if row.decides for name in row.explains}
    causes = deciding_line(case) if explained else []
    return [
        cause
        for cause in causes
        if any(decides_report(case, line, report) for line in cause.evidence for report in case.reports)
    ]


def _explains(case: Case, other: tuple[str, list[ClusterReport]], name: str, report: ClusterReport) -> bool:
    """Whether what ``report`` says follows from what another signature reports: of its own host, or of one that ended
    earlier. Of two hosts whose order no line shows, each may have ended of its own; not so a process without a reason.
    """
    signature, causes = other
    earlier = any(_is_before(cause.event, report.event) for cause in causes)
    if name not in case.signatures[signature].explains:
        return earlier and signature in case.signatures[name].explains and signature != name
    if earlier or not all(_are_apart(cause, report) for cause in causes):
        return True
    return is_unspecific(case, report.event.signature) and not all(
        _is_before(report.event, cause.event) for cause in causes
    )


def _are_apart(one: ClusterReport, other: ClusterReport) -> bool:
    first, second = ({*report.values.get("culprit_host", ())} for report in (one, other))
    return bool(first and second and first.isdisjoint(second))


def _is_before(one: Event, other: Event) -> bool:
    """By the times of the lines: a driver logs events in the order of their arrival, not of their occurrence."""
    times = [event.time for event in (one, other) if event.time is not None and not event.inferred_time]
    return len(times) == 2 and times[0] + GRACE_S < times[1]


def _ended_itself(case: Case, report: Event) -> bool:
    """Whether a process that ended without a reason had reported before that it waited, as a watchdog does."""
    pid = report.values.get("culprit_pid") if is_unspecific(case, report.signature) else ""
    return any(item.pid == pid and case.waits(item) for item in case.processes if pid)


def _is_wrong(case: Case, report: Event) -> bool:
    """Whether the same process prints beside it what shows that the line does not mean what it says alone."""
    beside = case.signatures[report.signature].wrong_beside
    return any(
        event.signature in beside and (event.file, event.pid) == (report.file, report.pid)
        for event in (chain(case.reports, case.events) if beside else ())
    )


def _with_fields(case: Case, report: Event) -> ClusterReport:
    """The report, and the fields that stand near it in the same file, such as the pod that a description is about."""
    values = {name: [report.values[name]] for name in _NAMES if report.values.get(name)}
    fields = [event for event in case.reports if event.file == report.file and _is_near(case, event, report)]
    explained = case.signatures[report.signature].explains
    apart = (e for e in case.reports if e.file == report.file and e.signature not in explained)
    others = [e.line for e in apart if case.signatures[e.signature].reports]
    at = report.line
    fields = [f for f in fields if not any(min(at, f.line) < line < max(at, f.line) for line in others)]
    for event in sorted(fields, key=lambda event: (abs(event.line - report.line), event.line)):
        for name in _NAMES:
            if event.values.get(name) and (name not in report.values):
                values.setdefault(name, []).append(event.values[name])
    return ClusterReport(report, values)


def _is_near(case: Case, field: Event, report: Event) -> bool:
    signature = case.signatures[field.signature]
    before, behind = signature.field_lines
    return report.signature in signature.field_of and -before <= field.line - report.line <= behind


def _cause(case: Case, name: str, reports: list[ClusterReport]) -> Cause:
    signature = case.signatures[name]
    culprits = tuple(dict.fromkeys(culprit for report in reports for culprit in _culprits(case, report)))
    ordered_culprits = sorted_culprits(culprits)
    who = names_of(ordered_culprits)
    more = filled(" and {0} more", len(culprits) - 4) if len(culprits) > 4 else ""
    summary = filled("{0}{1}: {2}", who, more, signature.title) if culprits else signature.title
    confidence: Confidence = signature.reports or "likely"
    if all(case.went_on(report.event) for report in reports):
        confidence, summary = "possible", filled("{0}; the process went on after it", summary)
    elif is_unspecific(case, reports[0].event.signature) and len(culprits) > 1:
        confidence = "possible"  # those behind the first may have lost it
    if signature.reports == "likely" and len(culprits) > MAX_CULPRITS:
        confidence = "possible"
    return Cause(name, RULE, confidence, ordered_culprits, summary, first_evidence(report.event for report in reports))


def _culprits(case: Case, report: ClusterReport) -> Iterator[Culprit]:
    values = report.values
    host = next(iter(values.get("culprit_host", ())), "")
    ranks = [rank for text in values.get("culprit_rank", ()) if (rank := small_number(text)) is not None]
    ranks = ranks or absent_ranks([report.event.values.get("connected_ranks", "")], case.world_size)
    if report.event.signature == LEADER:
        ranks = [0]
    elif not values and report.event.rank is not None and case.signatures[report.event.signature].is_of_launch:
        ranks = [report.event.rank]  # by the label of srun or mpirun before the line
    pod, pid = next(iter(values.get("culprit_pod", ())), ""), next(iter(values.get("culprit_pid", ())), "")
    label = f"pod {pod}" if pod else f"pid {pid}" if pid else ""
    process = next((item for item in case.processes if pid and item.pid == pid and item.rank is not None), None)
    if process and not ranks:
        ranks = [process.rank or 0]
    if ranks:
        yield from (culprit_of_rank(case, rank, host) for rank in ranks)
    elif case.role(report.event) == "link" or (host and not label):
        yield from (Culprit(host=end) for end in values.get("culprit_host", ()))
    elif host or label:
        yield Culprit(host=host, label=label)
