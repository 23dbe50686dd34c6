"""What became of the findings of an earlier run: appeared, gone, stayed, waived, or out of sight. Pure.

Findings are the same when check, template and blamed host are. One that is not found any more is *gone* only where the
check looked at the host again; else it is *unseen*, for what is not known is not mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from doctor.engine.result import Finding, Outcome, Report, Severity, fill
from doctor.report.layout.fold import in_order
from doctor.report.layout.formatting import clean
from doctor.report.layout.host_names import Fleet

Kind = Literal["appeared", "stayed", "waived", "unseen", "gone"]
KINDS: tuple[Kind, ...] = ("appeared", "stayed", "unseen", "waived", "gone")
"""In the order in which they are told."""
Key = tuple[str, str, str]
"""Check, template, host; the host is empty where a finding blames none."""


class Change(msgspec.Struct, frozen=True):
    """What became of findings that say the same."""

    kind: Kind
    check: str
    area: str
    severity: Severity
    hosts: tuple[str, ...]
    message: str
    was: int
    """Findings in the earlier run."""
    now: int
    why: str = ""
    """Why it appeared, where the check did not look before; why it is unseen; the waiver's reason."""


class Blind(msgspec.Struct, frozen=True):
    """Checks that did or did not know, for one reason; no hosts stand for the fleet."""

    checks: tuple[str, ...]
    hosts: tuple[str, ...]
    reason: str


class Difference(msgspec.Struct, frozen=True):
    """Two runs, side by side."""

    old: Report
    new: Report
    changes: tuple[Change, ...]
    hosts_came: tuple[str, ...]
    hosts_went: tuple[str, ...]
    checks_came: tuple[str, ...]
    checks_went: tuple[str, ...]
    darkened: tuple[Blind, ...]
    """Unknown now, and not before."""
    cleared: tuple[Blind, ...]
    """Unknown before, and looked at now."""

    def of(self, kind: Kind) -> tuple[Change, ...]:
        return tuple(one for one in self.changes if one.kind == kind)


def compare(old: Report, new: Report) -> Difference:
    """What ``new`` says of what ``old`` said."""
    before, now = _Side(old), _Side(new)
    return Difference(
        old,
        new,
        tuple(_changes(before, now)),
        tuple(host for host in new.hosts if host not in before.hosts),
        tuple(host for host in old.hosts if host not in now.hosts),
        tuple(sorted(now.outcomes.keys() - before.outcomes.keys())),
        tuple(sorted(before.outcomes.keys() - now.outcomes.keys())),
        _blind(now, before, now),
        _blind(before, now, now),
    )


class _Side:
    """One of the two reports, by key."""

    def __init__(self, report: Report) -> None:
        self.fleet, self.hosts = Fleet(report.hosts), set(report.hosts)
        self.outcomes = {one.check: one for one in in_order(report.outcomes)}
        self.looked = {one.check: set(one.looked) for one in report.outcomes}
        self.found = _by_key((one, found) for one in self.outcomes.values() for found in one.findings)
        self.waived = _by_key((one, put.finding) for one in self.outcomes.values() for put in one.waived)

    def blind(self, check: str, host: str) -> str:
        """Why the check did not look at the host, in words; empty when it did."""
        outcome = self.outcomes.get(check)
        if outcome is None:
            return "the check was not run"
        for place in dict.fromkeys((host, "")):
            if place in outcome.unknown:
                return outcome.unknown[place].text or "unknown"
            if place in outcome.crashed:
                return "the check crashed"
        if host in self.looked[check] or (host not in self.hosts and outcome.complete):
            return ""
        skipped = outcome.skipped.get(host) or outcome.skipped.get("")
        return f"not looked at: {skipped}" if skipped else "not looked at"


def _by_key(found: Iterable[tuple[Outcome, Finding]]) -> dict[Key, list[Finding]]:
    keys: dict[Key, list[Finding]] = {}
    for outcome, finding in found:
        for host in dict.fromkeys(finding.hosts) or ("",):
            keys.setdefault((outcome.check, finding.template, host), []).append(finding)
    return keys


def _changes(before: _Side, now: _Side) -> Iterator[Change]:
    """Every change, those that say the same of several hosts together."""
    groups: dict[tuple[Kind, str, str, str], list[tuple[str, int, int]]] = {}
    for key in dict.fromkeys((*now.found, *before.found)):
        check, _, host = key
        kind, why = _became(key, before, now)
        finding = (now.found.get(key) or before.found[key])[0]
        fleet = now.fleet if key in now.found else before.fleet
        message = clean(fill(finding.template, fleet.words(finding.values)), 2000)
        sizes = (host, len(before.found.get(key, ())), len(now.found.get(key, ())))
        groups.setdefault((kind, check, message, clean(why)), []).append(sizes)
    order = {check: number for number, check in enumerate([*now.outcomes, *before.outcomes])}
    for (kind, check, message, why), members in sorted(
        groups.items(), key=lambda one: (KINDS.index(one[0][0]), order[one[0][1]])
    ):
        outcome = now.outcomes.get(check) or before.outcomes[check]
        fleet = before.fleet if kind in ("gone", "unseen") else now.fleet
        hosts = fleet.ordered(host for host, _, _ in members)
        was, found = sum(one[1] for one in members), sum(one[2] for one in members)
        yield Change(kind, check, outcome.area, outcome.severity, hosts, message, was, found, why)


def _became(key: Key, before: _Side, now: _Side) -> tuple[Kind, str]:
    check, _, host = key
    if key in now.found:
        if key in before.found:
            return "stayed", ""
        if key in before.waived:
            return "appeared", "it was waived before"
        if host and host not in before.hosts and host in now.hosts:
            return "appeared", "the host was not in the run before"
        unseen = before.blind(check, host)
        return "appeared", f"not known before: {unseen}" if unseen else ""
    if key in now.waived:
        put = next(one for one in now.outcomes[check].waived if one.finding in now.waived[key])
        return "waived", f"until {put.until}: {put.reason}"
    if host and host in before.hosts and host not in now.hosts:
        return "unseen", "the host is not in this run"
    unseen = now.blind(check, host)
    return ("unseen", unseen) if unseen else ("gone", "")


def _blind(dark: _Side, light: _Side, now: _Side) -> tuple[Blind, ...]:
    """What is unknown on the one side, where both looked; by reason and hosts, most checks first."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for check, outcome in dark.outcomes.items():
        for host, reason in outcome.unknown.items():
            if _lit(light, check, host):
                hosts.setdefault((check, clean(reason.text)), []).append(host)
    checks: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (check, text), named in hosts.items():
        checks.setdefault((now.fleet.ordered(named), text), []).append(check)
    found = [Blind(tuple(names), where, reason) for (where, reason), names in checks.items()]
    return tuple(sorted(found, key=lambda one: (-len(one.checks), one.reason, one.hosts)))


def _lit(side: _Side, check: str, host: str) -> bool:
    outcome = side.outcomes.get(check)
    if outcome is None or (host and host not in side.hosts):
        return False
    return host not in outcome.unknown and host not in outcome.crashed


def counts(difference: Difference) -> Mapping[Kind, int]:
    """Findings of each kind, as they are now; of those that are not there any more, as they were."""
    return {kind: sum(one.now or one.was for one in difference.of(kind)) for kind in KINDS}
