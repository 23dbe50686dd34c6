"""What a notification says: the verdict, and of each finding ranks, hosts, cause and action. Without secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from doctor.engine.check import Check
from doctor.engine.exit_code import Exit, Verdict, verdict
from doctor.engine.language import english, phrase
from doctor.engine.report_secrets import without_secrets
from doctor.engine.result import Report
from doctor.engine.secrets import hide_secrets
from doctor.report.layout.failures import failure_entry
from doctor.report.layout.fold import CheckFailure, FoldedReport, fold
from doctor.report.layout.next_step import BRIEF_LEVEL, advice
from doctor.report.layout.summary_lines import summary_lines

FORMAT = "doctor.notify/1"
MAX_FINDINGS = 8
MAX_HOSTS = 64
MAX_RANKS = 64
MAX_LINES = 6


class ToldFinding(msgspec.Struct, frozen=True):
    """One check that found something."""

    check: str
    severity: str
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    """Culprit ranks, where the check knows them."""
    text: str
    cause: str
    action: str


class Message(msgspec.Struct, frozen=True):
    """What a command gets on stdin, and a webhook of shape json in its body."""

    format: str
    command: str
    """The doctor command: check, smoke, watch, diagnose."""
    verdict: str
    """healthy, failed, warnings, unknown, nothing."""
    exit_code: int
    headline: str
    machine: str
    """Where doctor ran."""
    source: str
    started: str
    hosts: tuple[str, ...]
    """To blame, of all findings."""
    findings: tuple[ToldFinding, ...]
    more: int
    """Findings that are not listed."""
    text: str
    """All of it for people, in the language of this process."""


def message_of(report: Report, checks: Mapping[str, Check], code: int, command: str, machine: str) -> Message:
    """The message about a report that comes with the exit code ``code``."""
    report = without_secrets(report)
    with english():
        folded = fold(report, BRIEF_LEVEL.max_chars)
        findings = tuple(_finding(failure, checks, folded) for failure in folded.failures[:MAX_FINDINGS])
        headline = hide_secrets(summary_lines(report, folded, code).verdict)
    return Message(
        format=FORMAT,
        command=command,
        verdict=verdict(report, code).value,
        exit_code=code,
        headline=headline,
        machine=machine,
        source=hide_secrets(report.source),
        started=report.started,
        hosts=_hosts(host for failure in folded.failures for host in failure.hosts),
        findings=findings,
        more=len(folded.failures) - len(findings),
        text=hide_secrets(_text(report, checks, code, command, machine)),
    )


def line_message(headline: str, command: str, machine: str, source: str, *, is_error: bool) -> Message:
    """The message about a run that goes on: one line, no report yet."""
    headline, source = hide_secrets(headline), hide_secrets(source)
    return Message(
        format=FORMAT,
        command=command,
        verdict=(Verdict.FAILED if is_error else Verdict.WARNINGS).value,
        exit_code=int(Exit.FAILED if is_error else Exit.WARNINGS),
        headline=headline,
        machine=machine,
        source=source,
        started="",
        hosts=(),
        findings=(),
        more=0,
        text=f"{_head(command, machine, headline)}\n{source}",
    )


def _finding(failure: CheckFailure, checks: Mapping[str, Check], folded: FoldedReport) -> ToldFinding:
    entry = failure_entry(failure, checks.get(failure.outcome.check), BRIEF_LEVEL, folded.fleet)
    details = (*entry.parts[0].details, *entry.details)

    def lines(*labels: str) -> str:
        texts, last = [], ""
        for label, text in details:
            last = label or last
            texts += [text] if last in labels else []
        return hide_secrets("\n".join(texts))[:2000]

    ranks = [rank for group in failure.groups for rank in _ranks(group.finding.values.get("ranks"))]
    return ToldFinding(
        entry.name,
        "error" if failure.is_error else "warning",
        _hosts(failure.hosts),
        tuple(sorted(set(ranks)))[:MAX_RANKS],
        hide_secrets(entry.parts[0].text),
        lines("means", "why"),
        lines("fix"),
    )


def _ranks(value: object) -> Iterator[int]:
    if isinstance(value, (list, tuple)):
        yield from (item for item in value if isinstance(item, int) and not isinstance(item, bool))


def _hosts(names: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MAX_HOSTS]


def _text(report: Report, checks: Mapping[str, Check], code: int, command: str, machine: str) -> str:
    folded = fold(report, BRIEF_LEVEL.max_chars)
    summary = summary_lines(report, folded, code)
    head = _head(command, machine, summary.verdict)
    lines = advice(report, checks, MAX_LINES) if code else []
    return "\n".join([head, *lines, summary.source])


def _head(command: str, machine: str, headline: str) -> str:
    return phrase("doctor {command} on {machine}: {headline}", command=command, machine=machine, headline=headline)
