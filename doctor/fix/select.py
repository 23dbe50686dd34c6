"""Selects playbooks for findings, fills in their values, and lists the findings that are not treated. Pure.

The names of ``doctor fix NAME...`` are resolved here, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.catalog import ON_REQUEST
from doctor.engine.check_files import ROUND_AREAS, is_named
from doctor.engine.errors import did_you_mean
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding, Report, Severity
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import beginning, filled, joined
from doctor.remedy.playbook import Playbook, PlaybookStep, TemplateError, fill_step
from doctor.remedy.template import BEFORE, before_text

if TYPE_CHECKING:
    from doctor.engine.check_files import HasAreaT


MAX_MESSAGE_CHARS = 400


class Treatment(msgspec.Struct, frozen=True):
    """One finding of one host, and a playbook that treats it."""

    check: str
    finding: Finding
    playbook: Playbook
    named: bool = False
    """The user named this playbook."""
    causes: tuple[str, ...] = ()
    """The checks that may hold the cause of the finding, as its check declares."""


class ReadyStep(msgspec.Struct, frozen=True):
    """One step as it is to be made on one host."""

    playbook: Playbook
    template: PlaybookStep
    filled_step: PlaybookStep
    """Filled, but for the variable ``before`` of its commands."""
    named: bool = False
    """The user named its playbook."""

    def with_before(self, before: str) -> PlaybookStep:
        """Wholly filled. Raises: TemplateError."""
        if not self.template.before:
            return self.filled_step
        values = {**self.filled_step.values, BEFORE: before_text(before)}
        return msgspec.structs.replace(self.filled_step, values=values)


class Untreated(msgspec.Struct, frozen=True):
    """What will not be touched, and why; no host stands for the job or the fleet."""

    host: str
    check: str
    reason: str
    kind: str
    """``none``: no playbook; ``hands``; ``explicit``; ``waived``; ``unknown``; ``unfit``: it cannot be filled in."""
    playbook: str = ""
    who: str = ""
    manual_steps: tuple[str, ...] = ()


class PlaybookChoice(msgspec.Struct, frozen=True):
    """The findings to treat on every host, and those not treated."""

    by_host: dict[str, list[Treatment]]
    untreated: tuple[Untreated, ...]


def placeholder_values(finding: Finding, host: str) -> dict[str, object]:
    """The values of a playbook's placeholders."""
    return {**finding.values, "host": host, "hosts": list(finding.hosts)}


def choose_playbooks(
    report: Report,
    playbooks: Sequence[Playbook],
    names: Collection[str] = (),
    causes: Mapping[str, Collection[str]] = {},
) -> PlaybookChoice:
    """The playbooks for every finding: all that treat it, but for the explicit ones that are not among ``names``.

    ``names``: checks, areas or playbooks. Where a playbook is named, findings of other playbooks are not treated.
    ``causes``: for a check those that may hold the cause of its findings.
    """
    by_host: dict[str, list[Treatment]] = {}
    untreated: list[Untreated] = []
    failing_checks = {outcome.check for outcome in report.outcomes if outcome.findings}
    unfixed = failing_checks - _fixable_checks(playbooks, names)
    for check, finding, host in _requested_findings(report, playbooks, names):
        cause = finding.follows_from
        if cause in unfixed and check not in names:  # else it would be adapted to the fault
            untreated.append(Untreated(host, check, filled("it follows from {0}; fix that first", cause), "none"))
            continue
        treating = [
            candidate
            for candidate in playbooks
            if check in candidate.treats and _is_requested(candidate, check, names, report)
        ]
        useful = [candidate for candidate in treating if not candidate.explicit or candidate.name in names]
        if not useful:
            untreated.append(
                _without_playbook(host, check, [candidate for candidate in playbooks if check in candidate.treats])
            )
        for playbook in useful:
            exclusion = _exclusion(Treatment(check, finding, playbook), host)
            if exclusion:
                untreated.append(exclusion)
            else:
                by_host.setdefault(host, []).append(
                    Treatment(check, finding, playbook, playbook.name in names, tuple(causes.get(check, ())))
                )
    return PlaybookChoice(by_host, tuple(dict.fromkeys([*untreated, *_not_evaluated(report)])))


def _fixable_checks(playbooks: Iterable[Playbook], names: Collection[str]) -> set[str]:
    return {
        check
        for playbook in playbooks
        if not playbook.manual and (not playbook.explicit or playbook.name in names)
        for check in playbook.treats
    }


def _requested_findings(
    report: Report, playbooks: Sequence[Playbook], names: Collection[str]
) -> Iterator[tuple[str, Finding, str]]:
    """The requested findings of every host, errors first."""
    playbooks_by_name = {playbook.name: playbook for playbook in playbooks}
    for outcome in sorted(report.outcomes, key=lambda candidate: candidate.found_severity is not Severity.ERROR):
        by_playbook = any(
            outcome.check in playbooks_by_name[name].treats for name in names if name in playbooks_by_name
        )
        if not names or by_playbook or outcome.check in names or outcome.area in names:
            for finding in outcome.findings:
                for host in finding.hosts or ("",):
                    yield outcome.check, finding, host


def _is_requested(playbook: Playbook, check: str, names: Collection[str], report: Report) -> bool:
    """A check that is named, or nothing, asks for all of its playbooks; a playbook for itself."""
    areas = {outcome.area for outcome in report.outcomes if outcome.check == check}
    return not names or playbook.name in names or check in names or bool(areas & set(names))


def _without_playbook(host: str, check: str, playbooks: Sequence[Playbook]) -> Untreated:
    explicit = [playbook.name for playbook in playbooks if playbook.explicit]
    if explicit:
        return Untreated(
            host, check, filled("only when named: doctor fix {0}", joined(" or ", explicit)), "explicit", explicit[0]
        )
    return Untreated(host, check, filled("no playbook for it: see doctor explain {0}", check), "none")


def _exclusion(treatment: Treatment, host: str) -> Untreated | None:
    """Why this playbook is not applied to this host, if so."""
    playbook, check = treatment.playbook, treatment.check
    try:
        ready = [fill_step(step, placeholder_values(treatment.finding, host)) for step in playbook.steps]
    except TemplateError as error:
        return Untreated(
            host,
            check,
            filled("the playbook does not fit: {0}", strip_control_chars(hide_secrets(str(error)))),
            "unfit",
            playbook.name,
        )
    if not playbook.manual and host:
        return None
    manual_steps = tuple(strip_control_chars(hide_secrets(step.say), MAX_MESSAGE_CHARS) for step in ready)
    return Untreated(host, check, playbook.title, "hands", playbook.name, playbook.who, manual_steps)


def _not_evaluated(report: Report) -> Iterator[Untreated]:
    for outcome in report.outcomes:
        for waived in outcome.waived:
            for host in waived.finding.hosts or ("",):
                yield Untreated(
                    host,
                    outcome.check,
                    filled("waived until {0}: {1}", waived.until, strip_control_chars(waived.reason)),
                    "waived",
                )
        for host, reason in outcome.unknown.items():
            yield Untreated(host, outcome.check, strip_control_chars(hide_secrets(reason.text)), "unknown")
        for host in outcome.crashed:
            yield Untreated(host, outcome.check, "the check crashed", "unknown")


def ready_steps(treatments: Iterable[Treatment], host: str) -> list[ReadyStep]:
    """The steps of one host in order: playbook by playbook, and of each every step for all findings before the next.

    The same command twice is made once; but each playbook keeps the files that it changes itself, so that an undo
    knows what its steps left. Raises: Unfillable, for what `choose_playbooks` left out.
    """
    steps: list[ReadyStep] = []
    by_playbook = lists_by_key((treatment.playbook.name, treatment) for treatment in treatments)
    for members in by_playbook.values():
        playbook = members[0].playbook
        for step in playbook.steps:
            for treatment in members:
                values = placeholder_values(treatment.finding, host)
                ready_step = ReadyStep(playbook, step, fill_step(step, values), treatment.named)
                others = [other for other in steps if other.playbook is playbook] if step.keep else steps
                if not any(same_action(ready_step, other) for other in others):
                    steps.append(ready_step)
    return steps


def same_action(first: ReadyStep, other: ReadyStep) -> bool:
    """They do the same, whoever wants it."""
    first_step, other_step = (
        msgspec.structs.replace(ready_step.filled_step, number=0, say="") for ready_step in (first, other)
    )
    if first.filled_step.manual:
        return first.filled_step.say == other.filled_step.say and other.filled_step.manual
    return first_step == other_step and first.playbook.root == other.playbook.root


def finding_message(finding: Finding) -> str:
    """The text of a finding, safe to show."""
    return strip_control_chars(str(finding), MAX_MESSAGE_CHARS)


def fingerprint(treatments: Iterable[Treatment]) -> list[tuple[str, str, str]]:
    """Identifies a finding without the numbers that change with every run; relevant numbers are in the steps."""
    return sorted({(treatment.check, treatment.finding.template, treatment.playbook.name) for treatment in treatments})


class UnknownName(Exception):
    """One line: the word, and the nearest that is known."""


def checks_to_run(names: Sequence[str], checks: Sequence[HasAreaT], playbooks: Sequence[Playbook]) -> list[HasAreaT]:
    """The checks that have to be run: those named, of a named area, or that a named playbook treats; without names
    all but those of the smoke run and the network test, which are not made here, and those that run only when named.

    Raises: UnknownName.
    """
    playbooks_by_name = {playbook.name: playbook for playbook in playbooks}
    treated = {check for name in names if name in playbooks_by_name for check in playbooks_by_name[name].treats}
    known_names = [*playbooks_by_name, *(word for candidate in checks for word in (candidate.name, candidate.area))]
    for name in names:
        if name not in known_names:
            if hint := did_you_mean(name, known_names):
                raise UnknownName(
                    filled("no check, area or playbook is named {0}{1}", f"{beginning(name, 60)!r}", hint)
                )
            raise UnknownName(
                filled(
                    "no check, area or playbook is named {0}; `doctor list` lists the checks; pass hosts with -w",
                    f"{beginning(name, 60)!r}",
                )
            )
    selected = [
        candidate
        for candidate in checks
        if candidate.area not in ROUND_AREAS
        and (is_named(candidate, names) or candidate.name in treated if names else candidate.name not in ON_REQUEST)
    ]
    if not selected:
        raise UnknownName(
            "these checks need a smoke run, a network test or a watched program, which doctor fix does not start; "
            "use doctor smoke, doctor net or doctor watch"
        )
    return selected
