"""Compares the findings of two runs: appeared, gone, stayed, waived, or unseen. Pure.

Findings are the same when check, template and blamed host are. One that no longer appears is *gone* only where the
check evaluated the host again; else it is *unseen*, since what is unknown is not fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding, Outcome, Report, Severity, fill_template
from doctor.engine.texts import filled
from doctor.report.diff.values import ValueChange
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.formatting import clean
from doctor.report.layout.host_names import Fleet

Kind = Literal["appeared", "stayed", "waived", "unseen", "gone"]
KINDS: tuple[Kind, ...] = ("appeared", "stayed", "unseen", "waived", "gone")
"""In the order of the report."""
Key = tuple[str, str, str]
"""Check, template, host; the host is empty where a finding names none."""


class FindingChange(msgspec.Struct, frozen=True):
    """The change of findings with the same text."""

    kind: Kind
    check: str
    area: str
    severity: Severity
    hosts: tuple[str, ...]
    message: str
    count_before: int
    """Findings in the earlier run."""
    count_now: int
    reason: str = ""
    """Why it appeared, where the check did not run before; why it is unseen; the waiver's reason."""
    localized_message: str = ""
    """The message in the language of this process."""


class UnknownChange(msgspec.Struct, frozen=True):
    """Checks that became known or unknown for one reason; no hosts means the fleet."""

    checks: tuple[str, ...]
    hosts: tuple[str, ...]
    reason: str


class ReportDifference(msgspec.Struct, frozen=True):
    """Two runs, side by side."""

    old: Report
    new: Report
    changes: tuple[FindingChange, ...]
    hosts_added: tuple[str, ...]
    hosts_removed: tuple[str, ...]
    checks_added: tuple[str, ...]
    checks_removed: tuple[str, ...]
    became_unknown: tuple[UnknownChange, ...]
    """Unknown now, and not before."""
    became_known: tuple[UnknownChange, ...]
    """Unknown before, and evaluated now."""
    values: tuple[ValueChange, ...] = ()
    """Settings and versions that both runs have read, and that differ."""

    def changes_of(self, kind: Kind) -> tuple[FindingChange, ...]:
        return tuple(change for change in self.changes if change.kind == kind)


def compare(old: Report, new: Report, values: tuple[ValueChange, ...] = ()) -> ReportDifference:
    """Compares ``new`` with ``old``. ``values``: what `doctor.report.diff.values` found in their runs."""
    before, now = _ReportIndex(old), _ReportIndex(new)
    return ReportDifference(
        old,
        new,
        tuple(_changes(before, now)),
        tuple(host for host in new.hosts if host not in before.hosts),
        tuple(host for host in old.hosts if host not in now.hosts),
        tuple(sorted(now.outcomes.keys() - before.outcomes.keys())),
        tuple(sorted(before.outcomes.keys() - now.outcomes.keys())),
        _unknown_only_in(now, before, now),
        _unknown_only_in(before, now, now),
        values,
    )


class _ReportIndex:
    """One of the two reports, by key."""

    def __init__(self, report: Report) -> None:
        self.fleet, self.hosts = Fleet(report.hosts), set(report.hosts)
        self.outcomes = {outcome.check: outcome for outcome in sort_by_area(report.outcomes)}
        self.evaluated_hosts = {outcome.check: set(outcome.evaluated_hosts) for outcome in report.outcomes}
        self.findings_by_key = _by_key(
            (outcome, finding) for outcome in self.outcomes.values() for finding in outcome.findings
        )
        self.waived_by_key = _by_key(
            (outcome, waived.finding) for outcome in self.outcomes.values() for waived in outcome.waived
        )

    def unknown_reason(self, check: str, host: str) -> str:
        """Why the check did not evaluate the host; empty when it did."""
        outcome = self.outcomes.get(check)
        if outcome is None:
            return "the check was not run"
        for blamed in dict.fromkeys((host, "")):
            if blamed in outcome.unknown:
                return outcome.unknown[blamed].text or "unknown"
            if blamed in outcome.crashed:
                return "the check crashed"
        if host in self.evaluated_hosts[check] or (host not in self.hosts and outcome.complete):
            return ""
        skipped = outcome.skipped.get(host) or outcome.skipped.get("")
        return filled("not checked: {0}", skipped) if skipped else "not checked"


def _by_key(pairs: Iterable[tuple[Outcome, Finding]]) -> dict[Key, list[Finding]]:
    keys: dict[Key, list[Finding]] = {}
    for outcome, finding in pairs:
        for host in dict.fromkeys(finding.hosts) or ("",):
            keys.setdefault((outcome.check, finding.template, host), []).append(finding)
    return keys


def _changes(before: _ReportIndex, now: _ReportIndex) -> Iterator[FindingChange]:
    """Every change, those that say the same of several hosts together."""
    groups: dict[tuple[Kind, str, str, str, Severity], list[tuple[str, int, int]]] = {}
    localized_messages: dict[str, str] = {}
    for key in dict.fromkeys((*now.findings_by_key, *before.findings_by_key)):
        check, _, host = key
        kind, why = _classify(key, before, now)
        finding = (now.findings_by_key.get(key) or before.findings_by_key[key])[0]
        fleet = now.fleet if key in now.findings_by_key else before.fleet
        message = clean(fill_template(finding.template, fleet.format_values(finding.values)), 2000)
        localized_messages[message] = fleet.message(finding, 2000)
        sizes = (host, len(before.findings_by_key.get(key, ())), len(now.findings_by_key.get(key, ())))
        severity = (now.outcomes.get(check) or before.outcomes[check]).severity_of(finding)
        groups.setdefault((kind, check, message, clean(why), severity), []).append(sizes)
    order = {check: number for number, check in enumerate([*now.outcomes, *before.outcomes])}
    for (kind, check, message, why, severity), members in sorted(
        groups.items(), key=lambda item: (KINDS.index(item[0][0]), order[item[0][1]])
    ):
        outcome = now.outcomes.get(check) or before.outcomes[check]
        fleet = before.fleet if kind in ("gone", "unseen") else now.fleet
        hosts = fleet.ordered(host for host, _, _ in members)
        count_before, count_now = sum(member[1] for member in members), sum(member[2] for member in members)
        yield FindingChange(
            kind,
            check,
            outcome.area,
            severity,
            hosts,
            message,
            count_before,
            count_now,
            why,
            localized_messages[message],
        )


def _classify(key: Key, before: _ReportIndex, now: _ReportIndex) -> tuple[Kind, str]:
    check, _, host = key
    if key in now.findings_by_key:
        if key in before.findings_by_key:
            return "stayed", ""
        if key in before.waived_by_key:
            return "appeared", "it was waived before"
        if host and host not in before.hosts and host in now.hosts:
            return "appeared", "the host was not in the run before"
        reason = before.unknown_reason(check, host)
        return "appeared", filled("unknown before: {0}", reason) if reason else ""
    if key in now.waived_by_key:
        waived = next(
            candidate for candidate in now.outcomes[check].waived if candidate.finding in now.waived_by_key[key]
        )
        return "waived", filled("until {0}: {1}", waived.until, waived.reason)
    if host and host in before.hosts and host not in now.hosts:
        return "unseen", "the host is not in this run"
    reason = now.unknown_reason(check, host)
    return ("unseen", reason) if reason else ("gone", "")


def _unknown_only_in(
    unknown_side: _ReportIndex, known_side: _ReportIndex, now: _ReportIndex
) -> tuple[UnknownChange, ...]:
    """What is unknown in one run, where both evaluated it; by reason and hosts, most checks first."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for check, outcome in unknown_side.outcomes.items():
        for host, reason in outcome.unknown.items():
            if _is_known(known_side, check, host):
                hosts.setdefault((check, clean(reason.text)), []).append(host)
    checks = lists_by_key(((now.fleet.ordered(named), text), check) for (check, text), named in hosts.items())
    changes = [UnknownChange(tuple(names), where, reason) for (where, reason), names in checks.items()]
    return tuple(sorted(changes, key=lambda change: (-len(change.checks), change.reason, change.hosts)))


def _is_known(side: _ReportIndex, check: str, host: str) -> bool:
    outcome = side.outcomes.get(check)
    if outcome is None or (host and host not in side.hosts):
        return False
    return host not in outcome.unknown and host not in outcome.crashed


def counts(difference: ReportDifference) -> Mapping[Kind, int]:
    """Findings of each kind, as they are now; of those that are not there any more, as they were."""
    return {
        kind: sum(change.count_now or change.count_before for change in difference.changes_of(kind)) for kind in KINDS
    }
