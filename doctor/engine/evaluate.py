"""Turns raw records into facts, and facts into outcomes. Pure: runs nothing, opens nothing, prints nothing."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from doctor.engine.check import Check, Need, Skip
from doctor.engine.fact import (
    NO_ANSWER,
    NOT_COLLECTED,
    OWN_ROUND,
    Absent,
    DeviceList,
    Fact,
    Output,
    PerHost,
    ProbeAnswer,
    Unreadable,
    not_reached,
)
from doctor.engine.record import HostRecord
from doctor.engine.result import NO_HOST, Finding, Outcome, Reason
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined

MAX_REASON = 1000
"""Characters of the reason why a fact could not be read."""


class FactCache:
    """Every fact of every host, read once; of hosts that answered alike, once for all of them."""

    def __init__(self, records: Mapping[str, HostRecord]) -> None:
        self.records = records
        self._values: dict[type[Fact], dict[str, Fact | Absent]] = defaultdict(dict)
        self._by_answer: dict[tuple[type[Fact], object], Fact | Absent] = {}
        self._by_outputs: dict[type[Fact], dict[int, Fact | Absent]] = defaultdict(dict)
        self._not_reached: dict[tuple[str, str], Fact | Absent] = {}
        self._completed: dict[tuple[int, int], tuple[Fact, Fact]] = {}
        self._columns: dict[type[Fact], tuple[Sequence[str], list[Fact | Absent]]] = {}
        self._fleets: dict[type[Fact], PerHost[Any]] = {}
        self._unread: dict[int, Reason] = {}

    def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
        values = self._values[fact]
        value = values.get(host)
        if value is None:
            value = self._read(host, fact)
            if fact.probe.inventory is not None and isinstance(value, Fact):
                value = self._with_unanswered(value, self.get(host, fact.probe.inventory), host)
            values[host] = value
        return value

    def _with_unanswered(self, value: Fact, inventory: Fact | Absent, host: str) -> Fact:
        """The value, with those of the host's devices unread that the record has no answer of."""
        if not isinstance(inventory, DeviceList):
            return value
        key = (id(value), id(inventory))  # both stay, and are shared by hosts that answered alike
        if key not in self._completed:
            unanswered = inventory.unanswered(self.records[host].outputs.get(value.output_name(), {}))
            unread = dict.fromkeys(unanswered, NO_ANSWER) | value.unread
            self._completed[key] = (value, msgspec.structs.replace(value, unread=unread) if unanswered else value)
        return self._completed[key][1]

    def _read(self, host: str, fact: type[Fact]) -> Fact | Absent:
        record = self.records[host]
        if record.visit.failure and fact.probe.kind != "visit":  # one reason for all facts of a host
            key = (record.visit.failure, record.visit.text)
            if key not in self._not_reached:
                self._not_reached[key] = read_fact(record, fact)
            return self._not_reached[key]
        outputs = record.outputs.get(fact.output_name())
        by_outputs = self._by_outputs[
            fact
        ]  # by object of the records, which stay: none is looked through for each host
        if (value := by_outputs.get(id(outputs))) is not None:
            return value
        if outputs is None and fact.needs and fact.probe.kind not in ("visit", *OWN_ROUND):
            return _not_planned_reason(fact, (self.get(host, need) for need in fact.needs))
        if not outputs or not fact.is_shared or fact.probe.kind in ("visit", *OWN_ROUND):
            return read_fact(record, fact)
        answer = (fact, tuple([part for name, output in outputs.items() for part in _answer(name, output)]))
        if answer not in self._by_answer:
            self._by_answer[answer] = read_fact(record, fact)
        return by_outputs.setdefault(id(outputs), self._by_answer[answer])

    def fleet(self, fact: type[Fact]) -> PerHost[Any]:
        """The fact of every host that it could be read on: always the same object."""
        if fact not in self._fleets:
            values = {host: self.get(host, fact) for host in self.records}
            self._fleets[fact] = PerHost({host: value for host, value in values.items() if isinstance(value, Fact)})
        return self._fleets[fact]

    def column(self, fact: type[Fact], hosts: Sequence[str]) -> list[Fact | Absent]:
        """The fact of each of the hosts, or why there is none; kept for the hosts of the last call."""
        if fact not in self._columns or self._columns[fact][0] is not hosts:
            self._columns[fact] = hosts, [self.get(host, fact) for host in hosts]
        return self._columns[fact][1]

    def why_unread(self, fact: Fact) -> Reason:
        """Why parts of a fact of this cache are not known."""
        if id(fact) not in self._unread:
            text = joined("; ", [_unread_part(part, why) for part, why in sorted(fact.unread.items())])
            self._unread[id(fact)] = Reason(strip_control_chars(text))
        return self._unread[id(fact)]


@lru_cache(maxsize=1 << 12)
def _unread_part(part: str, why: str) -> str:
    return filled("{0}: {1}", part, why)


def _answer(name: str, output: Output) -> tuple[object, ...]:
    """What a fact is read from: how long a command took is no part of it, but for one that did not end."""
    if output.ended == "exited" and not (output.code or output.err or output.cut):
        return name, output.out
    seconds = output.seconds if output.ended == "timeout" else 0
    return name, output.out, (output.ended, output.code, output.err, output.cut, seconds)


def read_fact(record: HostRecord, fact: type[Fact]) -> Fact | Absent:
    """One fact out of one host's record: its value, `Absent`, or `Unreadable`."""
    outputs = record.outputs.get(fact.output_name(), {})
    answer = ProbeAnswer(outputs, _probe_label(fact), record.visit, fact.probe.always_answered)
    try:
        if fact.probe.kind != "visit":
            _require_answer(record, fact)
        if fact.probe.kind == "read" and "" in outputs:
            answer.text()  # why no file was read
        return fact.read(answer)
    except Absent as why:
        return _printable(why)
    except Exception as error:  # noqa: BLE001 - the rim: every output of a tool ends as an outcome
        return Unreadable(
            strip_control_chars(filled("{0}: cannot be parsed: {1}: {2}", answer.label, type(error).__name__, error))
        )


def _printable(why: Absent) -> Absent:
    """The reason without what it holds of the host's own text that no report may show, and without its frames."""
    if not str(why).isprintable() or len(str(why)) > MAX_REASON:
        text = strip_control_chars(str(why), MAX_REASON)
        return Unreadable(text, why.root_cause) if isinstance(why, Unreadable) else Absent(text)
    return why.with_traceback(None)


def _require_answer(record: HostRecord, fact: type[Fact]) -> None:
    if record.visit.failure:
        raise not_reached(record.visit.failure, record.visit.text)
    if fact.output_name() not in record.outputs:
        if fact.probe.kind == "smoke":
            raise Absent("no smoke run; run doctor smoke for one")
        if fact.probe.kind == "network-test":
            raise Absent("no network test; run doctor net for one")
        if fact.needs:
            raise _not_planned_reason(fact, (read_fact(record, need) for need in fact.needs))
        raise Unreadable(NOT_COLLECTED)
    answer = record.outputs[fact.output_name()].get("")
    may_be_absent = fact.probe.may_be_absent or fact.is_trial  # there is none with the others where records are merged
    if answer is not None and answer.ended == "absent" and not may_be_absent:
        raise Unreadable("the host's answer is that it is absent, which every host has")


def _not_planned_reason(fact: type[Fact], needed: Iterable[Fact | Absent]) -> Absent:
    """Why a host has no probe in the second round: its input could not be read, or there was nothing to test."""
    reasons = [reason for reason in needed if isinstance(reason, Absent)]
    reasons.sort(key=lambda why: not isinstance(why, Unreadable))
    return reasons[0] if reasons else Absent(fact.not_planned_reason)


def _probe_label(fact: type[Fact]) -> str:
    probe = fact.probe
    if probe.kind == "run" and len(probe.text) < 60 and "\n" not in probe.text:
        return probe.text
    return probe.requires or (probe.paths[0] if len(probe.paths) == 1 else filled("the fact {0}", fact.__name__))


class _OutcomeBuilder:
    """An outcome while it is made."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.findings: list[Finding] = []
        self.evaluated_hosts: list[str] = []
        self.unknown: dict[str, Reason] = {}
        self.skipped: dict[str, str] = {}
        self.crashed: dict[str, str] = {}
        self.complete = False

    def call(self, host: str, arguments: Mapping[str, Any]) -> list[Finding]:
        """Runs the check; ``host`` is empty for the fleet. What it finds, without the host."""
        findings: list[Finding] = []
        try:
            for finding in self.check.function(**arguments):
                findings.append(finding)
                self.findings.append(finding.with_host(host) if host else finding)
            self.complete = True
            self.evaluated_hosts += [host] if host else []
        except Skip as why:
            self.skipped[host] = str(why)
        except Absent as why:
            self.mark_unavailable(host, why)
        except Exception:  # noqa: BLE001 - the rim: a check that breaks is an outcome, and the run goes on
            self.crashed[host] = traceback.format_exc(limit=-4)
        return findings

    def mark_unavailable(self, host: str, why: Absent) -> None:
        if isinstance(why, Unreadable):
            self.unknown[host] = Reason(str(why), why.root_cause, why.by_trial)
        else:
            self.skipped[host] = str(why)

    def repeat(self, host: str, model: str, findings: Sequence[Finding], evaluated: bool) -> None:
        """What the check made of ``model``, whose findings these are, is made of a host with the same facts."""
        self.findings += [finding.with_host(host) for finding in findings]
        self.evaluated_hosts += [host] if evaluated else []
        for reasons in (self.unknown, self.skipped, self.crashed):
            if model in reasons:
                reasons[host] = reasons[model]  # type: ignore[assignment]

    def build(self) -> Outcome:
        check = self.check
        return Outcome(
            check.name,
            check.severity,
            check.area,
            check.claim,
            tuple(self.findings),
            tuple(self.evaluated_hosts),
            self.unknown,
            self.skipped,
            self.crashed,
            self.complete,
            implied=check.implied,
        )


Intent = Mapping[type, object]
"""The job's intended settings by type; Absent means not given, Unreadable means not usable.

Of a type that is not among them, its ``absent`` says why.
"""


def evaluate_check(check: Check, hosts: Sequence[str], fact_cache: FactCache, intent: Intent) -> Outcome:
    """Evaluates one check on the whole fleet."""
    outcome = _OutcomeBuilder(check)
    if check.single_host and len(hosts) == 1 and len(fact_cache.records) <= 1:
        reason = check.single_host if isinstance(check.single_host, str) else check.single_host(intent)
        if reason:
            outcome.skipped[hosts[0] if check.per_host else ""] = reason
            return outcome.build()
    arguments: dict[str, object] = {}
    for need in check.needs:
        if need.is_fact:
            continue
        value = intent.get(need.type) or getattr(
            need.type, "absent", Absent(filled("no {0} was given", need.type.__name__))
        )
        if isinstance(value, Absent):
            if need.optional and not isinstance(value, Unreadable):
                value = None
            else:
                outcome.mark_unavailable("", value)
                return outcome.build()
        arguments[need.parameter] = value
    if not _fleet_arguments(check, hosts, fact_cache, outcome, arguments):
        return outcome.build()
    if not check.per_host:
        outcome.call("", arguments)
        return outcome.build()
    _evaluate_hosts(check, hosts, fact_cache, outcome, arguments)
    if not hosts:
        outcome.skipped[""] = NO_HOST
    return outcome.build()


def _evaluate_hosts(
    check: Check, hosts: Sequence[str], fact_cache: FactCache, outcome: _OutcomeBuilder, arguments: dict[str, object]
) -> None:
    """Calls the check for each host; of hosts with the same facts, once for all of them, as it sees nothing else."""
    alike: dict[tuple[int, ...], tuple[str, list[Finding], bool]] = {}
    for host, *facts in zip(hosts, *(fact_cache.column(need.type, hosts) for need in check.host_needs), strict=True):
        numbers = tuple(map(id, facts))  # the cache keeps the facts
        has_reason = host in outcome.unknown or host in outcome.skipped
        if numbers in alike and not has_reason:
            outcome.repeat(host, *alike[numbers])
            continue
        host_arguments = _host_arguments(check, host, facts, fact_cache, outcome)
        findings = [] if host_arguments is None else outcome.call(host, {**arguments, **host_arguments})
        if not has_reason:
            alike[numbers] = host, findings, outcome.evaluated_hosts[-1:] == [host]


def _fleet_arguments(
    check: Check, hosts: Sequence[str], fact_cache: FactCache, outcome: _OutcomeBuilder, arguments: dict[str, object]
) -> bool:
    """Fills in the `PerHost` parameters; False when one of them has no host at all.

    A host that lacks one of them is not evaluated, although it has others.
    """
    lacking: set[str] = set()
    for need in (need for need in check.needs if need.fleet):
        values: dict[str, Fact] = {}
        for host, fact in zip(hosts, fact_cache.column(need.type, hosts), strict=True):
            if isinstance(fact, Fact):
                values[host] = fact
                if fact.unread and not need.advisory:
                    outcome.unknown.setdefault(host, fact_cache.why_unread(fact))
            elif not _may_be_absent(need, fact):
                outcome.mark_unavailable(host, fact)
                lacking.add(host)
        if not values and not need.optional:
            if not hosts:
                outcome.skipped[""] = NO_HOST
            return False
        complete = len(hosts) == len(fact_cache.records)
        fleet = fact_cache.fleet(need.type) if complete else PerHost(values)
        arguments[need.parameter] = fleet if values else None
        if not check.per_host and not need.advisory:
            evaluated = {*values, *outcome.evaluated_hosts}
            outcome.evaluated_hosts = [host for host in hosts if host in evaluated]
    lacking.update(outcome.skipped)
    outcome.evaluated_hosts = [host for host in outcome.evaluated_hosts if host not in lacking]
    return True


def _host_arguments(
    check: Check, host: str, facts: Sequence[Fact | Absent], fact_cache: FactCache, outcome: _OutcomeBuilder
) -> dict[str, object] | None:
    arguments: dict[str, object] = {}
    unavailable: list[Absent] = []
    needs = list(zip(check.host_needs, facts, strict=True))
    may_lack = any(isinstance(fact, Fact) and (need.apart or not need.optional) for need, fact in needs)
    for need, fact in needs:
        arguments[need.parameter] = fact if isinstance(fact, Fact) else None
        if isinstance(fact, Fact):
            if fact.unread and not need.advisory:
                outcome.unknown.setdefault(host, fact_cache.why_unread(fact))
        elif need.apart and may_lack:
            if isinstance(fact, Unreadable):
                outcome.mark_unavailable(host, fact)
        elif need.apart or not _may_be_absent(need, fact):
            unavailable.append(fact)
    if unavailable:
        # Unknown wins over not applicable: one part that is not there must not hide another that did not answer.
        unreadable = (why for why in unavailable if isinstance(why, Unreadable))
        why = _nothing_to_judge(check, facts) or next(unreadable, unavailable[0])
        outcome.mark_unavailable(host, why)
        return None
    return arguments


def _nothing_to_judge(check: Check, facts: Sequence[Fact | Absent]) -> Absent | None:
    """Why the host has nothing of what the check is about; None where it has, or that is not known."""
    about = [fact for need, fact in zip(check.host_needs, facts, strict=True) if need.about]
    absent = [fact for fact in about if isinstance(fact, Absent) and not isinstance(fact, Unreadable)]
    return absent[0] if absent and len(absent) == len(about) else None


def _may_be_absent(need: Need, why: Absent) -> bool:
    return need.optional and (need.advisory or not isinstance(why, Unreadable))
