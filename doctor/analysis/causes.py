"""Which findings follow from which: the one place where a cause takes its consequences with it. Pure.

Three things tell of a cause, and all are resolved here, over the findings of one report:

- ``follows_from`` of a check: checks that may hold the cause of its findings, each with the values that must agree. A
  finding follows from such a check where that has, on each host of it, a finding whose values hold all of the named
  values. It stays a finding, and is shown under its cause. What is more than the cause explains, such as a second NPU
  or host, keeps a finding on its own. Of a finding that names hosts in `CUT_PARTS`, such as both ends of a pair, those
  of all parts but one are enough.
- ``explained_by`` of a check that tries something: checks that read the cause on the hosts. A finding is explained
  where an error of theirs is on one of its hosts, and the rest of its hosts are among that one's ``peers``, if it has
  any. It is unknown then: what remains is seen once the cause is removed.
- `Finding.because_of`: an analysis that compared the evidence itself has told cause from consequence. Such a finding
  is unknown beside an error of one of the checks that it names.

Beside them, what was tried settles what could not be read: a host whose rules are unknown, and whose connections on the
job's ports were tried and all passed (`TRIALS`), is judged by these.

A cause that was ignored, waived, skipped or unknown has no finding in the report: it explains nothing, so that its
consequence stands. Nor does a warning make anything unknown: beside it, what was proved stays, else the run would be
neither failed nor healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.check import Relations
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding, Outcome, Reason, Report, Severity, can_be_left_over, value_in_sentence
from doctor.engine.texts import filled, remember

EVERYONE = "every other host"
"""The value ``peers`` of a finding that concerns all of them."""
MAX_REASON = 300
"""Characters of the reason why a host is unknown."""
TRIALS = (
    "net-unreachable",
    "net-port-blocked",
    "net-port-unavailable",
    "net-large-packets-lost",
    "net-answered-by-other",
)
"""The checks that together say that connections on the job's ports pass."""


def resolve_causes(report: Report, checks: Iterable[Any]) -> Report:
    """``report`` with explained findings withdrawn, and `Finding.follows_from` of the others filled in.

    ``checks`` are those of the report; one without a relation declares nothing. Apply waivers and skips before.
    """
    failing_checks = {outcome.check for outcome in report.outcomes if outcome.findings}
    declared = [check for check in checks if check.name in failing_checks]
    explanations = _Explanations(
        report.outcomes, {check.name: getattr(check, "explained_by", {}) for check in declared}
    )
    outcomes = [explanations.outcome(outcome) if outcome.findings else outcome for outcome in settled(report.outcomes)]
    relations = {check.name: relation for check in declared if (relation := getattr(check, "follows_from", None))}
    linker = _Linker(outcomes, relations)
    return msgspec.structs.replace(report, outcomes=tuple(linker.outcome(outcome) for outcome in outcomes))


def settled(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """What is unknown, and decided by connections that were tried and passed, does not apply there any more."""
    passed = {outcome.check: _passed_hosts(outcome) for outcome in outcomes if outcome.check in TRIALS}
    hosts = set.intersection(*passed.values()) if len(passed) == len(TRIALS) else set[str]()
    return [_without_settled(outcome, hosts) if outcome.unknown and hosts else outcome for outcome in outcomes]


def _passed_hosts(outcome: Outcome) -> set[str]:
    """The hosts that a check has judged wholly, and found nothing on; none where it speaks of the fleet."""
    findings = (*outcome.findings, *(waived.finding for waived in outcome.waived))
    named = {host for finding in findings for host in finding.hosts or ("",)}
    others = {*named, *outcome.unknown, *outcome.skipped, *outcome.crashed}
    return set(outcome.evaluated_hosts) - others if outcome.complete and "" not in others else set()


def _without_settled(outcome: Outcome, hosts: Collection[str]) -> Outcome:
    tried = {host: why for host, why in outcome.unknown.items() if why.by_trial and host in hosts}
    unknown = {host: why for host, why in outcome.unknown.items() if host not in tried}
    text = "connections on the job's ports were tried, to the host and from it, and all passed; not evaluated: {0}"
    skipped = {host: filled(text, why.text) for host, why in tried.items()}
    return msgspec.structs.replace(outcome, unknown=unknown, skipped={**outcome.skipped, **skipped})


class _Explanations:
    """The findings that are unknown because of errors of other checks, with the names of those checks."""

    def __init__(self, outcomes: Iterable[Outcome], relations: Mapping[str, Relations]) -> None:
        self.relations = relations
        self.errors: dict[str, list[Finding]] = {}
        for outcome in outcomes:
            severe = (finding for finding in outcome.findings if outcome.severity_of(finding) is Severity.ERROR)
            self.errors.setdefault(outcome.check, []).extend(severe)
        self.errors_by_host = {check: _by_host(findings) for check, findings in self.errors.items()}
        self._causes: dict[int, str | None] = {}
        """By identity of a finding: the check that explains it; None while its causes are looked for."""

    def outcome(self, outcome: Outcome) -> Outcome:
        standing, unknown = [], dict(outcome.unknown)
        for finding in outcome.findings:
            cause = self.cause(outcome.check, finding)
            if not cause:
                standing.append(finding)
                continue
            for host in finding.hosts or ("",):
                unknown.setdefault(host, _reason(cause, finding))
        if len(standing) == len(outcome.findings):
            return outcome
        return msgspec.structs.replace(outcome, findings=tuple(standing), unknown=unknown)

    def cause(self, check: str, finding: Finding) -> str | None:
        """The first check whose errors explain the finding; empty where there is none. In a circle one stands."""
        key = id(finding)
        if key not in self._causes:
            self._causes[key] = None
            explaining = (
                cause
                for cause, errors in self._candidates(check, finding)
                if cause != check and any(self.cause(cause, error) is not None for error in errors)
            )
            self._causes[key] = next(explaining, "")
        return self._causes[key]

    def _candidates(self, check: str, finding: Finding) -> Iterator[tuple[str, Iterable[Finding]]]:
        for cause in finding.explained_by:
            yield cause, self.errors.get(cause, ())
        for cause, conditions in self.relations.get(check, {}).items():
            by_host = self.errors_by_host.get(cause, {})
            errors = (error for host in finding.hosts for error in by_host.get(host, ()))
            if _holds(finding, conditions):
                yield cause, (error for error in errors if _covers(error, finding))


def _reason(cause: str, finding: Finding) -> Reason:
    """Why the finding is unknown. One that is too long is left out: a part of it is no sentence, in no language."""
    text = str(finding)
    remember(text, finding.template, {name: value_in_sentence(value) for name, value in finding.values.items()})
    whole = filled("{0} explains it: {1}", cause, text)
    return Reason(whole if len(whole) <= MAX_REASON else filled("{0} explains it", cause), cause)


def _holds(finding: Finding, conditions: Iterable[str]) -> bool:
    """Whether the finding has each value: ``name=value``."""
    pairs = (condition.partition("=") for condition in conditions)
    return all(str(finding.values.get(name)) == value for name, _, value in pairs)


def _covers(error: Finding, finding: Finding) -> bool:
    """Whether the hosts of the finding are those of the error, or its peers; they have one in common."""
    rest = set(finding.hosts) - set(error.hosts)
    peers = error.values.get("peers", [])
    named = {peers} if isinstance(peers, str) else set(peers) if isinstance(peers, (list, tuple)) else set()
    return not rest or EVERYONE in named or rest <= named


class _Linker:
    def __init__(self, outcomes: Iterable[Outcome], relations: Mapping[str, Relations]) -> None:
        self.relations = relations
        causes = {cause for relation in relations.values() for cause in relation}
        self.by_host: dict[str, dict[str, list[Finding]]] = {
            outcome.check: _by_host(outcome.findings) for outcome in outcomes if outcome.check in causes
        }
        self._values: dict[tuple[int, str], frozenset[str]] = {}

    def outcome(self, outcome: Outcome) -> Outcome:
        if outcome.check not in self.relations or not outcome.findings:
            return outcome
        findings = [finding.following(self.root(outcome.check, finding)) for finding in outcome.findings]
        return msgspec.structs.replace(outcome, findings=tuple(findings))

    def root(self, check: str, finding: Finding) -> str:
        """The check that holds the first cause of a finding; empty where there is none, or only a circle."""
        visited = {check}
        root = ""
        while check:
            check, finding = next(self.causes(check, finding), ("", finding))
            if check in visited:
                return ""
            visited.add(check)
            root = check or root
        return root

    def causes(self, check: str, finding: Finding) -> Iterator[tuple[str, Finding]]:
        """The checks that this finding follows from, each with one of the findings that explain it."""
        for cause, names in self.relations.get(check, {}).items():
            by_host = self.by_host.get(cause)
            if not by_host:
                continue
            of_job = self.explaining(by_host.get("", ()), finding, names) if names else None
            explanations = {
                host: of_job or self.explaining(by_host.get(host, ()), finding, names)
                for host in finding.hosts or ("",)
            }
            explaining = [explanation for explanation in explanations.values() if explanation is not None]
            rest = {host for host, explanation in explanations.items() if explanation is None}
            if explaining and can_be_left_over(finding, rest):
                yield cause, explaining[0]

    def explaining(self, candidates: Iterable[Finding], finding: Finding, names: Sequence[str]) -> Finding | None:
        return next((candidate for candidate in candidates if self.agree(candidate, finding, names)), None)

    def agree(self, cause: Finding, finding: Finding, names: Sequence[str]) -> bool:
        """Every named value of ``finding`` is among those of ``cause``."""
        for name in names:
            name_here, _, others = name.partition("=")
            values = self.values(finding, name_here)
            if not values or not values <= self.values(cause, others or name_here):
                return False
        return True

    def values(self, finding: Finding, name: str) -> frozenset[str]:
        key = (id(finding), name)
        if key not in self._values:
            plural = f"{name}s"
            self._values[key] = _texts(finding.values.get(plural if plural in finding.values else name))
        return self._values[key]


def _by_host(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    return lists_by_key((host, finding) for finding in findings for host in finding.hosts or ("",))


def _texts(value: Any) -> frozenset[str]:
    """A value's parts as texts: the items of a list, the keys of a mapping."""
    if value is None or value == "":
        return frozenset()
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return frozenset(map(str, value))
    return frozenset((str(value),))
