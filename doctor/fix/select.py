"""From findings to the steps of every host: which playbooks, filled with which values, and what is left alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from doctor.engine.record import redact
from doctor.engine.result import Finding, Report, Severity, fill, say
from doctor.engine.sanitize import plain
from doctor.remedy.playbook import Playbook, Step, Unfillable, filled

LONGEST = 400


class Treatment(msgspec.Struct, frozen=True):
    """One finding of one host, and a playbook that treats it."""

    check: str
    finding: Finding
    playbook: Playbook


class Act(msgspec.Struct, frozen=True):
    """One step as it is to be made on one host."""

    playbook: Playbook
    template: Step
    values: dict[str, Any]
    ready: Step
    """Filled, but for ``{before}`` in its commands."""

    def with_before(self, before: str) -> Step:
        """Wholly filled. From the template: what a host printed is never itself a template. Raises: Unfillable."""
        return filled(self.template, {**self.values, "before": before}) if self.template.before else self.ready


class Left(msgspec.Struct, frozen=True):
    """What will not be touched, and why; no host stands for the job or the fleet."""

    host: str
    check: str
    why: str
    kind: str
    """``none``: no playbook; ``hands``; ``explicit``; ``waived``; ``unknown``; ``unfit``: it cannot be filled in."""
    playbook: str = ""
    who: str = ""
    says: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """What is to be treated on every host, and what is left."""

    by_host: dict[str, list[Treatment]]
    left: tuple[Left, ...]


def values_of(finding: Finding, host: str) -> dict[str, Any]:
    """What a playbook is filled with."""
    return {**finding.values, "host": host, "hosts": list(finding.hosts)}


def choose(report: Report, playbooks: Sequence[Playbook], names: Collection[str] = ()) -> Choice:
    """The playbooks for every finding: all that treat it, but for the explicit ones that are not among ``names``.

    ``names``: checks, areas or playbooks. Where a playbook is named, a finding that only others treat is left alone.
    """
    by_host: dict[str, list[Treatment]] = {}
    left: list[Left] = []
    for check, finding, host in _found(report, playbooks, names):
        treating = [one for one in playbooks if check in one.treats and _asked(one, check, names, report)]
        useful = [one for one in treating if not one.explicit or one.name in names]
        if not useful:
            left.append(_untreated(host, check, [one for one in playbooks if check in one.treats]))
        for playbook in useful:
            said = _fit(Treatment(check, finding, playbook), host)
            if said:
                left.append(said)
            else:
                by_host.setdefault(host, []).append(Treatment(check, finding, playbook))
    return Choice(by_host, tuple(dict.fromkeys([*left, *_not_judged(report)])))


def _found(report: Report, playbooks: Sequence[Playbook], names: Collection[str]) -> Iterator[tuple[str, Finding, str]]:
    """Every finding of every host that is asked for, errors first."""
    books = {one.name: one for one in playbooks}
    for outcome in sorted(report.outcomes, key=lambda one: one.severity is not Severity.ERROR):
        by_book = any(outcome.check in books[name].treats for name in names if name in books)
        if not names or by_book or outcome.check in names or outcome.area in names:
            for finding in outcome.findings:
                for host in finding.hosts or ("",):
                    yield outcome.check, finding, host


def _asked(playbook: Playbook, check: str, names: Collection[str], report: Report) -> bool:
    """A check that is named, or nothing, asks for all of its playbooks; a playbook for itself."""
    areas = {one.area for one in report.outcomes if one.check == check}
    return not names or playbook.name in names or check in names or bool(areas & set(names))


def _untreated(host: str, check: str, playbooks: Sequence[Playbook]) -> Left:
    explicit = [one.name for one in playbooks if one.explicit]
    if explicit:
        return Left(host, check, f"only when it is named: doctor fix {' or '.join(explicit)}", "explicit", explicit[0])
    return Left(host, check, "no playbook treats it: see doctor explain " + check, "none")


def _fit(treatment: Treatment, host: str) -> Left | None:
    """Why this playbook is not applied to this host, if so."""
    playbook, check = treatment.playbook, treatment.check
    try:
        ready = [filled(step, values_of(treatment.finding, host)) for step in playbook.steps]
    except Unfillable as error:
        return Left(host, check, f"the playbook does not fit: {plain(redact(str(error)))}", "unfit", playbook.name)
    if not playbook.hands and host:
        return None
    says = tuple(plain(redact(step.say), LONGEST) for step in ready)
    return Left(host, check, playbook.title, "hands", playbook.name, playbook.who, says)


def _not_judged(report: Report) -> Iterator[Left]:
    for outcome in report.outcomes:
        for one in outcome.waived:
            for host in one.finding.hosts or ("",):
                yield Left(host, outcome.check, f"waived until {one.until}: {plain(one.reason)}", "waived")
        for host, reason in outcome.unknown.items():
            yield Left(host, outcome.check, plain(redact(reason.text)), "unknown")
        for host in outcome.crashed:
            yield Left(host, outcome.check, "the check itself broke", "unknown")


def acts(treatments: Iterable[Treatment], host: str) -> list[Act]:
    """The steps of one host in order: playbook by playbook, and of each every step for all findings before the next.

    The same command twice is made once. Raises: Unfillable, for what `choose` left out.
    """
    found: list[Act] = []
    by_book: dict[str, list[Treatment]] = {}
    for one in treatments:
        by_book.setdefault(one.playbook.name, []).append(one)
    for members in by_book.values():
        playbook = members[0].playbook
        for step in playbook.steps:
            for one in members:
                values = values_of(one.finding, host)
                act = Act(playbook, step, values, filled(step, values))
                if not any(same(act, other) for other in found):
                    found.append(act)
    return found


def same(one: Act, other: Act) -> bool:
    """They do the same, whoever wants it."""
    mine, its = (msgspec.structs.replace(act.ready, number=0, say="") for act in (one, other))
    if one.ready.hands:
        return one.ready.say == other.ready.say and other.ready.hands
    return mine == its and one.playbook.root == other.playbook.root


def message(finding: Finding) -> str:
    """What a finding says, fit to show."""
    return plain(fill(finding.template, {name: say(value) for name, value in finding.values.items()}), LONGEST)


def fingerprint(treatments: Iterable[Treatment]) -> list[tuple[str, str, str]]:
    """What was found, without the numbers that differ at every look: those that matter stand in the steps."""
    return sorted({(one.check, one.finding.template, one.playbook.name) for one in treatments})
