"""Turns raw records into facts, and facts into outcomes. Pure: runs nothing, opens nothing, prints nothing."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from doctor.engine.check import Check, Need, Skip
from doctor.engine.fact import Absent, Answer, Fact, PerHost, Unreadable, not_reached
from doctor.engine.record import HostRecord, Run
from doctor.engine.result import Finding, Outcome, Reason, Report
from doctor.engine.sanitize import plain


class Book:
    """Every fact of every host, read once."""

    def __init__(self, records: Mapping[str, HostRecord]) -> None:
        self.records = records
        self._read: dict[tuple[str, type[Fact]], Fact | Absent] = {}

    def look(self, host: str, fact: type[Fact]) -> Fact | Absent:
        """The fact's value, or why there is none."""
        key = (host, fact)
        if key not in self._read:
            self._read[key] = learn(self.records[host], fact)
        return self._read[key]

    def fleet(self, fact: type[Fact]) -> PerHost[Any]:
        """The fact of every host that it could be read on."""
        values = {host: self.look(host, fact) for host in self.records}
        return PerHost({host: value for host, value in values.items() if isinstance(value, Fact)})


def learn(record: HostRecord, fact: type[Fact]) -> Fact | Absent:
    """One fact out of one host's record: its value, `Absent`, or `Unreadable`."""
    answer = Answer(record.outputs.get(fact.__name__, {}), _what(fact), record.visit)
    try:
        if fact.probe.kind != "visit":
            _must_have_answered(record, fact)
        return fact.read(answer)
    except Absent as why:
        return why
    except Exception as error:  # noqa: BLE001 - the rim: whatever a tool printed, it ends as an outcome
        return Unreadable(plain(f"{answer.what}: not understood: {type(error).__name__}: {error}"))


def _must_have_answered(record: HostRecord, fact: type[Fact]) -> None:
    if record.visit.trouble:
        raise not_reached(record.visit.trouble, record.visit.text)
    if fact.__name__ not in record.outputs:
        if fact.probe.kind == "smoke":
            raise Absent("no smoke run was made; doctor smoke makes one")
        if fact.needs:
            raise _not_planned(record, fact)
        raise Unreadable("was not asked for in this run")


def _not_planned(record: HostRecord, fact: type[Fact]) -> Absent:
    """Why the second round did not ask a host: what it goes by could not be read, or there was nothing to ask for."""
    reasons = [found for need in fact.needs if isinstance(found := learn(record, need), Absent)]
    reasons.sort(key=lambda why: not isinstance(why, Unreadable))
    return reasons[0] if reasons else Absent(fact.unasked)


def _what(fact: type[Fact]) -> str:
    probe = fact.probe
    if probe.kind == "run" and len(probe.text) < 60 and "\n" not in probe.text:
        return probe.text
    return probe.requires or (probe.paths[0] if len(probe.paths) == 1 else f"the fact {fact.__name__}")


class _Outcome:
    """An outcome while it is made."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.findings: list[Finding] = []
        self.looked: list[str] = []
        self.unknown: dict[str, Reason] = {}
        self.skipped: dict[str, str] = {}
        self.crashed: dict[str, str] = {}
        self.complete = False

    def call(self, host: str, arguments: Mapping[str, Any]) -> None:
        """Runs the check; ``host`` is empty for the fleet."""
        try:
            for finding in self.check.function(**arguments):
                self.findings.append(finding.on(host) if host else finding)
            self.complete = True
            self.looked += [host] if host else []
        except Skip as why:
            self.skipped[host] = str(why)
        except Absent as why:
            self.refuse(host, why)
        except Exception:  # noqa: BLE001 - the rim: a check that breaks is an outcome, and the run goes on
            self.crashed[host] = traceback.format_exc(limit=-4)

    def refuse(self, host: str, why: Absent) -> None:
        if isinstance(why, Unreadable):
            self.unknown[host] = Reason(str(why), why.because)
        else:
            self.skipped[host] = str(why)

    def note_unread(self, host: str, fact: Fact) -> None:
        if fact.unread:
            text = "; ".join(f"{part}: {why}" for part, why in sorted(fact.unread.items()))
            self.unknown.setdefault(host, Reason(plain(text)))

    def freeze(self) -> Outcome:
        check = self.check
        return Outcome(
            check.name,
            check.severity,
            check.area,
            check.claim,
            tuple(self.findings),
            tuple(self.looked),
            self.unknown,
            self.skipped,
            self.crashed,
            self.complete,
        )


Intent = Mapping[type, object]
"""What the job should be, by type; a value that is Absent or Unreadable stands for not given, or not usable."""


def judge_one(check: Check, hosts: Sequence[str], book: Book, intent: Intent) -> Outcome:
    """One check over the whole fleet."""
    outcome = _Outcome(check)
    arguments: dict[str, Any] = {}
    for need in check.needs:
        if need.is_fact:
            continue
        value = intent.get(need.type, Absent(f"no {need.type.__name__} was given"))
        if isinstance(value, Absent):
            if need.optional and not isinstance(value, Unreadable):
                value = None
            else:
                outcome.refuse("", value)
                return outcome.freeze()
        arguments[need.parameter] = value
    if not _fleet_arguments(check, hosts, book, outcome, arguments):
        return outcome.freeze()
    if not check.per_host:
        outcome.call("", arguments)
        return outcome.freeze()
    for host in hosts:
        own = _host_arguments(check, host, book, outcome)
        if own is not None:
            outcome.call(host, {**arguments, **own})
    if not hosts:
        outcome.skipped[""] = "no host was looked at"
    return outcome.freeze()


def _fleet_arguments(
    check: Check, hosts: Sequence[str], book: Book, outcome: _Outcome, arguments: dict[str, Any]
) -> bool:
    """Fills in the `PerHost` parameters; False when one of them has no host at all."""
    for need in (need for need in check.needs if need.fleet):
        values: dict[str, Fact] = {}
        for host in hosts:
            fact = book.look(host, need.type)
            if isinstance(fact, Fact):
                values[host] = fact
                outcome.note_unread(host, fact)
            elif not _may_be_missing(need, fact):
                outcome.refuse(host, fact)
        if not values and not need.optional:
            if not hosts:
                outcome.skipped[""] = "no host was looked at"
            return False
        arguments[need.parameter] = PerHost(values) if values else None
        if not check.per_host:
            outcome.looked = [host for host in hosts if host in values or host in outcome.looked]
    return True


def _host_arguments(check: Check, host: str, book: Book, outcome: _Outcome) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {}
    refused: list[Absent] = []
    for need in check.needs:
        if not need.is_fact or need.fleet:
            continue
        fact = book.look(host, need.type)
        if isinstance(fact, Absent):
            if not _may_be_missing(need, fact):
                refused.append(fact)
            arguments[need.parameter] = None
        else:
            arguments[need.parameter] = fact
            outcome.note_unread(host, fact)
    if refused:
        # Unknown wins over not applicable: one part that is not there must not hide another that did not answer.
        outcome.refuse(host, next((why for why in refused if isinstance(why, Unreadable)), refused[0]))
        return None
    return arguments


def _may_be_missing(need: Need, why: Absent) -> bool:
    return need.optional and not isinstance(why, Unreadable)


def judge(run: Run, checks: Iterable[Check], intent: Intent, notes: Sequence[str] = ()) -> Report:
    """All checks over one run, in the order given."""
    book = Book(run.hosts)
    hosts = tuple(run.hosts)
    outcomes = tuple(judge_one(check, hosts, book, intent) for check in checks)
    return Report(run.source, hosts, outcomes, run.started, run.seconds, (*run.notes, *notes))
