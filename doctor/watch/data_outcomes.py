"""The ranks' digests as outcomes of the smoke run's checks, and the report of a watched run with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.analysis.values.value_defect import ValueDefect, describe
from doctor.engine.check import Check
from doctor.engine.record import Run
from doctor.engine.result import Finding, Outcome, Report
from doctor.engine.texts import filled
from doctor.engine.watch_summary import WatchResult
from doctor.session.replay import replay
from doctor.session.saved_parts import saved_part
from doctor.watch.data.data_report import DataReport
from doctor.watch.data_folder import saved_report

INFERRED = " (inferred: {inferred})"
"""Behind the message of a finding."""


def notes_of(data: DataReport) -> tuple[str, ...]:
    """Assumptions, possibly intended differences, and unchecked parts."""
    compared = filled("what the ranks computed was compared in {0} steps", data.steps)
    if data.steps == 1:
        compared = "what the ranks computed was compared in 1 step"
    unseen = [filled("not examined: {0}", text) for text in data.unseen]
    return (compared, *data.inferred, *(defect.text for defect in data.notes), *unseen)


def data_headlines(data: DataReport | None, hosts: Mapping[int, str]) -> list[str]:
    """Such as ``smoke-mask-differs: one of ranks 0-1 on w1``, for each cause. ``hosts``: of each rank seen."""
    lines = []
    for cause in data.causes if data else ():
        places = sorted({hosts[rank] for rank in cause.ranks or hosts if rank in hosts})
        who = f"{describe(cause.ranks, cause.tie)} on {', '.join(places)}"
        lines.append(filled("{0}: {1}", cause.check, who))
    return list(dict.fromkeys(lines))


def with_data(report: Report, data: DataReport, catalog: Sequence[Check], hosts: Mapping[int, str]) -> Report:
    """The report with an outcome for each check of the catalog that a defect is of. ``hosts``: of each rank seen.

    A consequence of another check's defect says so (`Finding.because_of`): it stands where that check is ignored.
    """
    checks = {check.name: check for check in catalog}
    findings_by_check: dict[str, list[Finding]] = {}
    for defect in data.causes:
        if defect.check in checks:
            findings_by_check.setdefault(defect.check, []).append(_finding(defect, hosts))
    for defect, cause in data.consequences:
        if defect.check in checks and defect.check != cause:
            findings_by_check.setdefault(defect.check, []).append(_finding(defect, hosts).because_of(cause))
    kept = [outcome for outcome in report.outcomes if outcome.check not in findings_by_check]
    failed_outcomes = [_outcome(checks[name], findings, hosts) for name, findings in findings_by_check.items()]
    return msgspec.structs.replace(report, outcomes=(*failed_outcomes, *kept))


def _outcome(check: Check, findings: Sequence[Finding], hosts: Mapping[int, str]) -> Outcome:
    return Outcome(
        check=check.name,
        severity=check.severity,
        area=check.area,
        claim=check.claim,
        findings=tuple(findings),
        evaluated_hosts=tuple(dict.fromkeys(hosts.values())),
        complete=True,
    )


def _finding(defect: ValueDefect, hosts: Mapping[int, str]) -> Finding:
    blamed = [hosts[rank] for rank in defect.ranks if rank in hosts] or list(hosts.values())
    values = {
        **defect.values,
        "who": describe(defect.ranks, defect.tie),
        "ranks": list(defect.ranks),
        "tie": defect.tie,
    }
    template = defect.template
    if defect.inferred:
        template, values["inferred"] = template + INFERRED, defect.inferred
    finding = Finding(template, hosts=tuple(dict.fromkeys(blamed)), **{**values, "step": defect.step})
    return finding.as_warning(defect.level == "warning")


def evaluate_watch(
    run: Run, selected: Sequence[Check], catalog: Sequence[Check], data: DataReport | None = None
) -> Report:
    """The report of the run, with ``selected`` of the checks in ``catalog``.

    ``data``: what the ranks' digests show; None reads it from the digests that the run has kept.
    """
    report = replay(run, selected)
    watched = saved_part(run.watch, "watch")
    if not isinstance(watched, WatchResult):
        return report
    if data is None and watched.digests:
        data = saved_report(watched.digests)
    return with_data(report, data, catalog, watched.hosts) if data else report
