"""Waivers: findings that a site accepts, for a reason and until a day: shown and counted, and no failure.

A finding is waived only when all hosts that it blames are: it is one statement, of all of them. What blames no host is
waived for every host or not at all. What is unknown cannot be waived: not known is never healthy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import msgspec

from doctor.config.file import TABLES, ConfigError, ConfigFile, parse_history, read_tables
from doctor.engine.errors import did_you_mean
from doctor.engine.result import Finding, Outcome, Report, Waived
from doctor.engine.sanitize import count_noun, printable_excerpt, quote
from doctor.engine.texts import filled, joined
from doctor.hosts.nodeset import InventoryError, canonical_host, expand_nodeset

__all__ = ["ALL", "REASON", "VARIABLE", "ConfigError", "Skips", "apply_skips", "read_skips"]
VARIABLE = "DOCTOR_SKIP"
ALL = "all"
REASON = filled("{0} names it", VARIABLE)


class Skips(msgspec.Struct, frozen=True):
    """The checks to skip."""

    all: bool = False
    names: frozenset[str] = frozenset()
    text: str = ""
    """Text for the report; empty when no check is skipped."""


def apply_skips_and_waivers(
    report: Report, settings: ConfigFile, environ: Mapping[str, str], known_checks: Collection[str], today: date
) -> Report:
    """``report`` less what DOCTOR_SKIP leaves out, with what ``doctor.toml`` waives set apart.

    Raises: BadSettings.
    """
    skips, waivers = _load_policy(settings, environ, known_checks)
    report = msgspec.structs.replace(report, notes=(*report.notes, *settings.notes))
    return apply_waivers(apply_skips(report, skips), waivers, today)


def validate_skips_and_waivers(settings: ConfigFile, environ: Mapping[str, str], known_checks: Collection[str]) -> None:
    """Raises: BadSettings for what `apply_skips_and_waivers` could not follow, before anything is done."""
    _load_policy(settings, environ, known_checks)
    parse_history(settings)


def _load_policy(
    settings: ConfigFile, environ: Mapping[str, str], known_checks: Collection[str]
) -> tuple[Skips, Waivers]:
    return read_skips(environ, known_checks), parse_waivers(settings.text, settings.path, known_checks)


def today() -> date:
    """The last day that has not ended everywhere: no waiver ends before its day does, and all hosts agree."""
    return datetime.now(timezone(timedelta(hours=-12))).date()


def apply_waivers(report: Report, waivers: Waivers, today: date) -> Report:
    """``report`` with each finding that is waived today set apart, and notes on what is waived no more."""
    if not waivers.entries:
        return report
    matcher = _WaiverMatcher(waivers.entries, today)
    outcomes = tuple(matcher.apply_to(outcome) for outcome in report.outcomes)
    notes = (*report.notes, *matcher.notes(report, printable_excerpt(waivers.path, 200)))
    return msgspec.structs.replace(report, outcomes=outcomes, notes=notes)


class _WaiverMatcher:
    """Which findings are waived, and which waivers serve for something."""

    def __init__(self, waivers: Sequence[Waiver], today: date) -> None:
        self.active = [waiver for waiver in waivers if today <= waiver.until]
        self.expired = [waiver for waiver in waivers if today > waiver.until]
        self.used: set[Waiver] = set()
        self.expired_matches: set[Waiver] = set()
        """Those that would have waived a finding, had they not expired."""

    def apply_to(self, outcome: Outcome) -> Outcome:
        unwaived: list[Finding] = []
        waived = list(outcome.waived)
        for finding in outcome.findings:
            covering = _covering_waivers(finding, [waiver for waiver in self.active if waiver.check == outcome.check])
            if covering:
                self.used.update(covering)
                reasons = joined("; ", dict.fromkeys(waiver.reason for waiver in covering))
                waived.append(Waived(finding, reasons, min(waiver.until for waiver in covering).isoformat()))
            else:
                unwaived.append(finding)
                self.expired_matches.update(
                    _covering_waivers(finding, [waiver for waiver in self.expired if waiver.check == outcome.check])
                )
        return msgspec.structs.replace(outcome, findings=tuple(unwaived), waived=tuple(waived)) if waived else outcome

    def notes(self, report: Report, path: str) -> list[str]:
        total = len(self.active) + len(self.expired)
        notes = [filled("settings: {0}: {1}", path, count_noun(total, "waiver"))]
        missed = [waiver for waiver in self.expired if waiver in self.expired_matches]
        notes += [
            filled("waiver of {0} expired on {1}: {2}", waiver, waiver.until.isoformat(), waiver.reason)
            for waiver in missed
        ]
        idle = [str(waiver) for waiver in self.active if waiver not in self.used and _was_evaluated(waiver, report)]
        notes += [filled("waivers without a finding: {0}", joined("; ", idle))] if idle else []
        return notes


def _covering_waivers(finding: Finding, waivers: Sequence[Waiver]) -> list[Waiver]:
    """The first that covers the finding alone, else those that do so together."""
    alone = next((waiver for waiver in waivers if waiver.covers(finding)), None)
    if alone:
        return [alone]
    blamed = canonical_hosts(finding.hosts)
    some = [waiver for waiver in waivers if waiver.hosts & blamed]
    return some if blamed and blamed <= frozenset().union(*(waiver.hosts for waiver in some)) else []


def _was_evaluated(waiver: Waiver, report: Report) -> bool:
    """The check evaluated all hosts of the waiver, so the waiver is unused."""
    return waiver.hosts <= canonical_hosts(report.hosts) and any(
        outcome.check == waiver.check and outcome.complete and not outcome.unknown and not outcome.crashed
        for outcome in report.outcomes
    )


TABLE = "waive"
KEYS = ("check", "checks", "hosts", "reason", "until")
ALL_HOSTS = "*"
MAX_REASON = 400
"""Characters of a reason."""
MAX_NODE_SET = 100


class Waiver(msgspec.Struct, frozen=True):
    """One check's, on some hosts or on all."""

    check: str
    hosts: frozenset[str]
    """As `doctor.hosts.nodeset.canonical_host` spells them; empty for all."""
    hosts_text: str
    """The hosts as they were written."""
    reason: str
    until: date

    def covers(self, finding: Finding) -> bool:
        """Every host and value of the finding is waived."""
        return not self.hosts or (bool(finding.hosts) and canonical_hosts(finding.hosts) <= self.hosts)

    def __str__(self) -> str:
        return filled("{0} for {1}", self.check, self.hosts_text)


class Waivers(msgspec.Struct, frozen=True):
    """The waivers of a file."""

    path: str = ""
    entries: tuple[Waiver, ...] = ()


def parse_waivers(text: str, path: str, known_checks: Collection[str]) -> Waivers:
    """The waivers of a ``doctor.toml``; ``known_checks`` are the names of all checks. Raises: BadSettings."""
    entries = read_tables(ConfigFile(path, text), TABLES).get(TABLE, [])
    name = printable_excerpt(path, 200)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(filled("{0}: {1}: expected tables that begin with [[{2}]]", name, TABLE, TABLE))
    read = [
        _WaiverTable(entry, f"{name}: [[{TABLE}]] {number}", known_checks).waivers()
        for number, entry in enumerate(entries, 1)
    ]
    return Waivers(path, tuple(waiver for some in read for waiver in some))


class _WaiverTable:
    """One ``[[waive]]``; ``location`` identifies it in messages."""

    def __init__(self, table: Mapping[str, Any], place: str, known_checks: Collection[str]) -> None:
        self.table, self.location, self.known_checks = table, place, known_checks

    def waivers(self) -> list[Waiver]:
        for key in self.table:
            if key not in KEYS:
                raise ConfigError(
                    filled("{0}: {1}: no such key{2}", self.location, quote(key), did_you_mean(key, KEYS))
                )
        checks, (where, hosts) = self.checks(), self.hosts()
        reason, until = self.reason(), self.until()
        return [Waiver(check, hosts, where, reason, until) for check in checks]

    def invalid_value(self, key: str, expected: str) -> ConfigError:
        got = quote(str(self.table[key])) if key in self.table else "is missing"
        return ConfigError(filled("{0}: {1}: {2}; expected {3}", self.location, key, got, expected))

    def checks(self) -> Sequence[str]:
        if "check" in self.table and "checks" in self.table:
            raise ConfigError(filled("{0}: check and checks are both set; expected one of them", self.location))
        key = "checks" if "checks" in self.table else "check"
        names = self.table.get(key) if key == "checks" else [self.table.get(key)]
        if not isinstance(names, list) or not names or not all(isinstance(value, str) and value for value in names):
            raise self.invalid_value(
                key, 'names of checks, for example ["a", "b"]' if key == "checks" else "the name of a check"
            )
        for name in names:
            if name not in self.known_checks:
                hint = did_you_mean(name, self.known_checks) or "; site checks need --checks DIR"
                raise ConfigError(filled("{0}: {1}: no check is named {2}{3}", self.location, key, quote(name), hint))
        return list(dict.fromkeys(names))

    def hosts(self) -> tuple[str, frozenset[str]]:
        text = self.table.get("hosts", ALL_HOSTS)
        if not isinstance(text, str):
            raise self.invalid_value(
                "hosts", filled('a node set, for example "node[01-04]", or "{0}" for all', ALL_HOSTS)
            )
        if text.strip() == ALL_HOSTS:
            return "every host", frozenset()
        try:
            hosts = frozenset(map(canonical_host, expand_nodeset(text, f"{self.location}: hosts")))
        except InventoryError as error:
            raise ConfigError(str(error)) from None
        where = " ".join(text.split())
        # A node set that is cut is none, and what redacts a report would not know the names in it.
        return (where if len(where) <= MAX_NODE_SET else filled("{0} hosts", len(hosts))), hosts

    def reason(self) -> str:
        text = self.table.get("reason")
        if not isinstance(text, str) or not text.strip():
            raise self.invalid_value("reason", "why the finding is accepted")
        return printable_excerpt(" ".join(text.split()), MAX_REASON)

    def until(self) -> date:
        day = self.table.get("until")
        if not isinstance(day, date) or isinstance(day, datetime):
            raise self.invalid_value("until", "its last day, without quotes, for example 2026-12-31")
        return day


def canonical_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Each host as `canonical_host` spells it; a check may blame what is no host name."""
    names: set[str] = set()
    for host in hosts:
        try:
            names.add(canonical_host(host))
        except ValueError:
            names.add(host)
    return frozenset(names)


def read_skips(environ: Mapping[str, str], known_checks: Collection[str]) -> Skips:
    """What DOCTOR_SKIP names: checks among ``known_checks``, parted by commas or white space, or ``all``.

    Raises: BadSettings for an unknown name. Otherwise a typo would keep a check active, unnoticed until it
    fails.
    """
    names = [word for word in re.split(r"[,\s]+", environ.get(VARIABLE, "")) if word]
    if ALL in names:
        return Skips(all=True, text=f"{VARIABLE}={ALL}")
    for word in names:
        if word not in known_checks:
            raise ConfigError(filled("{0}: no check is named {1}{2}", VARIABLE, quote(word), _hint(word, known_checks)))
    return Skips(names=frozenset(names), text=f"{VARIABLE}={','.join(sorted(set(names)))}" if names else "")


def _hint(word: str, known_checks: Collection[str]) -> str:
    return did_you_mean(word, (*known_checks, ALL)) or "; `doctor list` lists all checks; site checks need --checks DIR"


def apply_skips(report: Report, skips: Skips) -> Report:
    """``report`` as if the checks had not been called; a note names them."""
    skipped_checks = [outcome.check for outcome in report.outcomes if skips.all or outcome.check in skips.names]
    if not skipped_checks:
        return report
    outcomes = tuple(
        Outcome(outcome.check, outcome.severity, outcome.area, outcome.claim, skipped={"": REASON})
        if outcome.check in set(skipped_checks)
        # Whoever leaves out what was selected is content with what comes with every selection: the hosts answer.
        else msgspec.structs.replace(outcome, implied=False)
        for outcome in report.outcomes
    )
    note = "all checks were skipped" if skips.all else filled("skipped: {0}", ", ".join(skipped_checks))
    return msgspec.structs.replace(report, outcomes=outcomes, notes=(*report.notes, filled("{0}: {1}", VARIABLE, note)))
