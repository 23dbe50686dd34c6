"""The second part of a preflight: from what was gathered to a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.exit_code import Exit, exit_code, signal_exit_code
from doctor.engine.result import Outcome, Reason, Report
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled, joined

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import Run
    from doctor.preflight.gathered import Gathered
    from doctor.preflight.options import PreflightOptions
    from doctor.preflight.spares import SpareSelection
    from doctor.session.replay import Examination


HOSTS_UNKNOWN = "hosts-unknown"


class PreflightVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the job should start, and why."""

    gathered: Gathered
    """What the verdict is of."""
    report: Report
    code: int
    """One of `doctor.engine.exit_code.Exit`, or 128 + a signal's number."""
    exit_code: int
    """What the process ends with: ``code`` by the user's `ExitCodePolicy`."""
    cause: str = ""
    """Why nothing was evaluated, in one word; empty when the checks were."""
    reason: str = ""
    """Why nothing is healthy, in one word, although the checks were evaluated; empty when their outcomes show it."""
    selection: SpareSelection | None = None
    """The hosts to start on, where the options ask for them."""

    @property
    def examination(self) -> Examination | None:
        """What was evaluated; None where nothing was."""
        return None if self.cause else self.gathered.examination


def decide(gathered: Gathered, options: PreflightOptions) -> PreflightVerdict:
    """The verdict on an examination of all hosts. Raises: CommandError."""
    examination = gathered.examination
    assert examination is not None
    report = _apply_policy(examination.report, gathered, options)
    code: int = exit_code(report, strict=options.strict, on_unknown=options.on_unknown, fail_on=options.fail_on)
    if examination.stopped is not None:
        code = signal_exit_code(examination.stopped)
    verdict = PreflightVerdict(
        gathered=gathered, report=report, code=int(code), exit_code=options.exit_code_policy.code(int(code))
    )
    return with_unknown_hosts(verdict, options)


def needs_selection(options: PreflightOptions) -> bool:
    """Whether the options ask for the hosts to start on."""
    return bool(options.need or options.write_nodes or options.write_bad)


def with_selection(verdict: PreflightVerdict, options: PreflightOptions) -> PreflightVerdict:
    """The verdict with the hosts to start on, which ``--need`` makes it depend on. Raises: CommandError."""
    examination = verdict.gathered.examination
    assert examination is not None
    selection = _select_spares(examination, verdict.report, verdict.gathered, options)
    verdict = msgspec.structs.replace(verdict, selection=selection)
    if not options.need or examination.stopped is not None:
        return verdict
    verdict = msgspec.structs.replace(
        verdict,
        report=_with_notes(verdict.report, _need_notes(selection)),
        code=int(selection.code),
        exit_code=options.exit_code_policy.code(int(selection.code)),
    )
    return with_unknown_hosts(verdict, options)


def with_unknown_hosts(verdict: PreflightVerdict, options: PreflightOptions) -> PreflightVerdict:
    """A job is not healthy because some of its hosts are. A verdict against the job stays as it is."""
    why = verdict.gathered.hosts_unknown
    if not why or verdict.code not in (Exit.HEALTHY, Exit.WARNINGS, Exit.UNKNOWN):
        return verdict
    return msgspec.structs.replace(
        verdict,
        code=int(Exit.UNKNOWN),
        exit_code=options.exit_code_policy.code(int(Exit.UNKNOWN)),
        reason=HOSTS_UNKNOWN,
    )


def decide_unevaluated(
    gathered: Gathered,
    options: PreflightOptions,
    why: str,
    code: int,
    cause: str,
    seconds: float,
    checks: Sequence[Check] = (),
) -> PreflightVerdict:
    """The verdict where no check was evaluated: each of ``checks`` is unknown on every host that is known of.

    ``cause``: one word for the status line. ``seconds``: since the start of the process.
    """
    outcomes = tuple(_unknown(check, why, gathered.hosts) for check in checks)
    source = gathered.inventory.source if gathered.inventory else "no hosts"
    report = Report(source, gathered.hosts, outcomes, "", round(seconds, 3), gathered.notes or (why,))
    return PreflightVerdict(
        gathered=gathered,
        report=report,
        code=int(code),
        exit_code=options.exit_code_policy.code(int(code)),
        cause=cause,
    )


def _unknown(check: Check, why: str, hosts: Sequence[str]) -> Outcome:
    """The outcome of a check that did not run, on every host that is known of."""
    reasons = {host: Reason(why) for host in hosts or ("",)}
    return Outcome(check.name, check.severity, check.area, check.claim, unknown=reasons)


def with_unwritten_lists(
    verdict: PreflightVerdict, options: PreflightOptions, unwritten: Sequence[str]
) -> PreflightVerdict:
    """Whoever starts the job by a list that was not written would start it by an old one: that is not healthy.

    ``unwritten``: one line for each list. A verdict against the job stays as it is.
    """
    if not unwritten or verdict.code not in (Exit.HEALTHY, Exit.WARNINGS):
        return verdict
    return msgspec.structs.replace(
        verdict,
        code=int(Exit.UNKNOWN),
        exit_code=options.exit_code_policy.code(int(Exit.UNKNOWN)),
        report=_with_notes(verdict.report, unwritten),
    )


def with_redacted_report(verdict: PreflightVerdict, aliases: Iterable[str]) -> PreflightVerdict:
    """The verdict with pseudonyms in its report. ``aliases``: other names of its hosts."""
    from doctor.session.redact import with_pseudonyms

    return msgspec.structs.replace(verdict, report=with_pseudonyms(verdict.report, list(aliases)))


def _apply_policy(report: Report, gathered: Gathered, options: PreflightOptions) -> Report:
    """With waivers and skips applied, and what was noted while gathering. Raises: CommandError."""
    from doctor.session.policy import apply_policy

    not_run = [_unknown(check, why, report.hosts) for check, why in gathered.left_out.items()]
    outcomes, notes = (*report.outcomes, *not_run), (*gathered.notes, *report.notes)
    noted = msgspec.structs.replace(report, notes=notes, outcomes=outcomes)
    return apply_policy(noted, options.config, gathered.catalog)


def _select_spares(
    examination: Examination, report: Report, gathered: Gathered, options: PreflightOptions
) -> SpareSelection:
    from doctor.preflight.spares import select_hosts
    from doctor.session.replay import EvaluationLimit, replay

    limit = EvaluationLimit(gathered.evaluation_end)
    evaluate: Callable[[Run], Report] = lambda run: _apply_policy(  # noqa: E731
        replay(run, gathered.selected_checks, limit), gathered, options
    )
    return select_hosts(
        examination.run,
        report,
        evaluate,
        options.need,
        fail_on=options.fail_on,
        on_unknown=options.on_unknown,
        strict=options.strict,
        writes_table=options.node_format == "ranktable" and bool(options.write_nodes),
    )


def _need_notes(selection: SpareSelection) -> list[str]:
    """What became of the search for enough hosts."""
    if selection.code != Exit.HEALTHY and selection.obstacles:
        return [filled("--need {0}: {1}", selection.need, line) for line in selection.obstacles]
    out = joined("; ", (filled("{0} ({1})", host, ", ".join(checks)) for host, checks in selection.excluded.items()))
    spare = f", {count_noun(len(selection.spares), 'healthy spare')}" if selection.spares else ""
    outcome = "met" if selection.code == Exit.HEALTHY else "not met"
    return [filled("--need {0}: {1}{2}{3}{4}", selection.need, outcome, spare, "; excluded: " if out else "", out)]


def _with_notes(report: Report, notes: Sequence[str]) -> Report:
    return msgspec.structs.replace(report, notes=(*report.notes, *notes))
