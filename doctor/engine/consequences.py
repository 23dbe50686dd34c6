"""Which findings follow from which: relations that checks declare, applied to the findings of a report. Pure.

A check declares ``follows_from``: the checks that may hold the cause of its findings, each with the values that must
agree. A finding follows from such a check where that has, on each host of it, a finding whose values hold all of the
named values. What is more than the cause explains, such as a second NPU or host, keeps a finding on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.result import Finding, Outcome, Report

Relations = Mapping[str, Sequence[str]]
"""Checks that may hold the cause, most likely first, each with the values that must agree: ``("npu",)``; or
``("address=ip",)``, where the cause has another name for it. A value in the plural (``npus``) is read first."""


def with_consequences(report: Report, checks: Iterable[Any]) -> Report:
    """``report`` with `Finding.follows_from` filled in.

    ``checks`` are those of the report; one without ``follows_from`` declares nothing. Waived findings explain nothing.
    """
    found = {outcome.check for outcome in report.outcomes if outcome.findings}
    of_found = ((check.name, getattr(check, "follows_from", None)) for check in checks if check.name in found)
    relations = {name: relation for name, relation in of_found if relation}
    linker = _Linker(report.outcomes, relations)
    outcomes = tuple(linker.outcome(outcome) for outcome in report.outcomes)
    return msgspec.structs.replace(report, outcomes=outcomes)


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
            explanations = [
                of_job or self.explaining(by_host.get(host, ()), finding, names) for host in finding.hosts or ("",)
            ]
            if all(explanations) and explanations[0] is not None:
                yield cause, explanations[0]

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
    by_host: dict[str, list[Finding]] = {}
    for finding in findings:
        for host in finding.hosts or ("",):
            by_host.setdefault(host, []).append(finding)
    return by_host


def _texts(value: Any) -> frozenset[str]:
    """A value's parts as texts: the items of a list, the keys of a mapping."""
    if value is None or value == "":
        return frozenset()
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return frozenset(map(str, value))
    return frozenset((str(value),))
