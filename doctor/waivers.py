"""Waivers: findings that a site puts up with, for a reason and until a day: shown and counted, and no failure.

    [[waive]]
    check = "pid-limit-low"
    hosts = "node[01-04]"        # without it, or with "*": every host
    reason = "small hosts, replaced in spring"
    until = 2026-12-31           # the last day on which it holds

A finding is waived only when all hosts that it blames are: it is one statement, of all of them. What blames no host is
waived for every host or not at all. What is unknown cannot be waived: not known is never healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec

from doctor.hostnames import InventoryError, expand, quote, same, shown
from doctor.model import Finding, Outcome, Report, Waived
from doctor.settings import BadSettings, Settings, find, nearest, tables
from doctor.skips import Skips, leave_out, skipped

__all__ = ["BadSettings", "Skips", "Waiver", "Waivers", "apply", "parse", "refuse", "settle", "skipped", "today"]

TABLE = "waive"
KEYS = ("check", "checks", "hosts", "reason", "until")
EVERY = "*"
LONGEST = 400
"""Characters of a reason."""


class Waiver(msgspec.Struct, frozen=True):
    """One check's, on some hosts or on all."""

    check: str
    hosts: frozenset[str]
    """As `doctor.hostnames.same` spells them; empty for all."""
    where: str
    """The hosts as they were written."""
    reason: str
    until: date

    def covers(self, finding: Finding) -> bool:
        """All that the finding blames is waived."""
        return not self.hosts or (bool(finding.hosts) and _spelled(finding.hosts) <= self.hosts)

    def __str__(self) -> str:
        return f"{self.check} for {self.where}"


class Waivers(msgspec.Struct, frozen=True):
    """What a file waives."""

    path: str = ""
    each: tuple[Waiver, ...] = ()


def settle(
    report: Report, config: str | Path | None, environ: Mapping[str, str], known: Collection[str], today: date
) -> Report:
    """``report`` less what DOCTOR_SKIP leaves out, with what ``doctor.toml`` waives set apart.

    Raises: BadSettings.
    """
    skips, settings, waivers = _read(config, environ, known)
    report = msgspec.structs.replace(report, notes=(*report.notes, *settings.notes))
    return apply(leave_out(report, skips), waivers, today)


def refuse(config: str | Path | None, environ: Mapping[str, str], known: Collection[str]) -> None:
    """Raises: BadSettings for what `settle` could not follow, before anything is done."""
    _read(config, environ, known)


def _read(
    config: str | Path | None, environ: Mapping[str, str], known: Collection[str]
) -> tuple[Skips, Settings, Waivers]:
    settings = find(config, environ)
    return skipped(environ, known), settings, parse(settings.text, settings.path, known)


def today() -> date:
    """The last day that has not ended everywhere: no waiver ends before its day does, and all hosts agree."""
    return datetime.now(timezone(timedelta(hours=-12))).date()


def parse(text: str, path: str, known: Collection[str]) -> Waivers:
    """The waivers of a ``doctor.toml``; ``known`` are the names of all checks. Raises: BadSettings."""
    found = tables(Settings(path, text), (TABLE,)).get(TABLE, [])
    name = shown(path, 200)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadSettings(f"{name}: {TABLE}: expected tables that begin with [[{TABLE}]]")
    read = [_Table(one, f"{name}: [[{TABLE}]] {number}", known).waivers() for number, one in enumerate(found, 1)]
    return Waivers(path, tuple(waiver for some in read for waiver in some))


class _Table:
    """One ``[[waive]]``; ``place`` says which in messages."""

    def __init__(self, table: Mapping[str, Any], place: str, known: Collection[str]) -> None:
        self.table, self.place, self.known = table, place, known

    def waivers(self) -> list[Waiver]:
        for key in self.table:
            if key not in KEYS:
                raise BadSettings(f"{self.place}: {quote(key)}: no such key{nearest(key, KEYS)}")
        checks, (where, hosts) = self.checks(), self.hosts()
        reason, until = self.reason(), self.until()
        return [Waiver(check, hosts, where, reason, until) for check in checks]

    def wrong(self, key: str, wanted: str) -> BadSettings:
        got = quote(str(self.table[key])) if key in self.table else "is not there"
        return BadSettings(f"{self.place}: {key}: {got}; expected {wanted}")

    def checks(self) -> Sequence[str]:
        if "check" in self.table and "checks" in self.table:
            raise BadSettings(f"{self.place}: check and checks are both there; expected one of them")
        key = "checks" if "checks" in self.table else "check"
        names = self.table.get(key) if key == "checks" else [self.table.get(key)]
        if not isinstance(names, list) or not names or not all(isinstance(one, str) and one for one in names):
            raise self.wrong(key, 'names of checks, as in ["a", "b"]' if key == "checks" else "the name of a check")
        for one in names:
            if one not in self.known:
                hint = nearest(one, self.known) or "; those of --checks DIR are known with it"
                raise BadSettings(f"{self.place}: {key}: no check is named {quote(one)}{hint}")
        return list(dict.fromkeys(names))

    def hosts(self) -> tuple[str, frozenset[str]]:
        text = self.table.get("hosts", EVERY)
        if not isinstance(text, str):
            raise self.wrong("hosts", f'a node set as in "node[01-04]", or "{EVERY}" for all')
        if text.strip() == EVERY:
            return "every host", frozenset()
        try:
            return shown(text, 100), frozenset(map(same, expand(text, f"{self.place}: hosts")))
        except InventoryError as error:
            raise BadSettings(str(error)) from None

    def reason(self) -> str:
        text = self.table.get("reason")
        if not isinstance(text, str) or not text.strip():
            raise self.wrong("reason", "why the finding is put up with")
        return shown(" ".join(text.split()), LONGEST)

    def until(self) -> date:
        day = self.table.get("until")
        if not isinstance(day, date) or isinstance(day, datetime):
            raise self.wrong("until", "the last day on which it holds, without quotes, as in 2026-12-31")
        return day


def apply(report: Report, waivers: Waivers, today: date) -> Report:
    """``report`` with each finding that is waived today set apart, and notes on what is waived no more."""
    if not waivers.each:
        return report
    judge = _Judge(waivers.each, today)
    outcomes = tuple(judge.outcome(one) for one in report.outcomes)
    notes = (*report.notes, *judge.notes(report, shown(waivers.path, 200)))
    return msgspec.structs.replace(report, outcomes=outcomes, notes=notes)


class _Judge:
    """Which findings are waived, and which waivers serve for something."""

    def __init__(self, waivers: Sequence[Waiver], today: date) -> None:
        self.live = [one for one in waivers if today <= one.until]
        self.expired = [one for one in waivers if today > one.until]
        self.used: set[Waiver] = set()
        self.missed: set[Waiver] = set()
        """Those that would have waived a finding, had they not expired."""

    def outcome(self, outcome: Outcome) -> Outcome:
        left: list[Finding] = []
        waived = list(outcome.waived)
        for finding in outcome.findings:
            found = _covering(finding, [one for one in self.live if one.check == outcome.check])
            if found:
                self.used.update(found)
                reasons = "; ".join(dict.fromkeys(one.reason for one in found))
                waived.append(Waived(finding, reasons, min(one.until for one in found).isoformat()))
            else:
                left.append(finding)
                self.missed.update(_covering(finding, [one for one in self.expired if one.check == outcome.check]))
        return msgspec.structs.replace(outcome, findings=tuple(left), waived=tuple(waived)) if waived else outcome

    def notes(self, report: Report, path: str) -> list[str]:
        total = len(self.live) + len(self.expired)
        notes = [f"settings: {path}: {total} waiver{'' if total == 1 else 's'}"]
        missed = [one for one in self.expired if one in self.missed]
        notes += [f"waiver of {one} expired on {one.until.isoformat()}: {one.reason}" for one in missed]
        idle = [str(one) for one in self.live if one not in self.used and _was_judged(one, report)]
        notes += [f"nothing to waive any more: {'; '.join(idle)}"] if idle else []
        return notes


def _covering(finding: Finding, waivers: Sequence[Waiver]) -> list[Waiver]:
    """The first that covers the finding alone, else those that do so together."""
    alone = next((one for one in waivers if one.covers(finding)), None)
    if alone:
        return [alone]
    blamed = _spelled(finding.hosts)
    some = [one for one in waivers if one.hosts & blamed]
    return some if blamed and blamed <= frozenset().union(*(one.hosts for one in some)) else []


def _was_judged(waiver: Waiver, report: Report) -> bool:
    """The check looked at all there is to waive, so that the waiver can go."""
    return waiver.hosts <= _spelled(report.hosts) and any(
        one.check == waiver.check and one.complete and not one.unknown and not one.crashed for one in report.outcomes
    )


def _spelled(hosts: Iterable[str]) -> frozenset[str]:
    """Each host as `same` spells it; a check may blame what is no host name."""
    found: set[str] = set()
    for host in hosts:
        try:
            found.add(same(host))
        except ValueError:
            found.add(host)
    return frozenset(found)
