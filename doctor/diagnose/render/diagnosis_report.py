"""A diagnosis as a report: formats, waivers, history and comparison are those of all commands. Pure.

A cause is an outcome of the name of its signature. Where there is none, `RUN_ENDED_WELL` says how the run ended, and
what ranks reported is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from doctor.diagnose.diagnosis import GROUNDS
from doctor.diagnose.events import TIME_ENDED
from doctor.diagnose.render.document import (
    Advice,
    CauseDocument,
    DiagnosisDocument,
    WaitingDocument,
    WaivedDocument,
    advised_commands,
    checked_lines,
)
from doctor.diagnose.render.log_values import fill_advice
from doctor.diagnose.signature import load_signatures
from doctor.engine.errors import InputError
from doctor.engine.grouping import lists_by_key
from doctor.engine.language import is_english
from doctor.engine.result import Finding, Outcome, Reason, Report, Severity, Waived
from doctor.engine.sanitize import count_noun, strip_control_chars
from doctor.engine.texts import filled, joined, read_table, rewritten

RUN_ENDED_WELL = "run-ended-well"
"""The check that stands for logs without a cause."""
LOGS = "logs"
"""The area of what the logs show."""
MAX_FILES = 1000
"""Files that are noted."""


def read_diagnosis(data: object, name: str) -> DiagnosisDocument:
    """The document in JSON values that a program wrote; ``name`` is the file's, for errors. Raises: InputError."""
    try:
        diagnosis = msgspec.convert(data, DiagnosisDocument)
        if not is_english():
            _remember_texts(diagnosis)
        return diagnosis
    except (msgspec.ValidationError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else strip_control_chars(str(error))
        raise InputError(filled("{0}: not a diagnosis: {1}", name, reason)) from None


def _remember_texts(diagnosis: DiagnosisDocument) -> None:
    """How the texts of a document were made, so that they can be shown in another language."""
    read_table(diagnosis.texts)
    reported = diagnosis.undecidable.reported if diagnosis.undecidable else ()
    for advice in (*diagnosis.causes, *reported):
        signature = load_signatures().get(advice.signature)
        for text in (*signature.causes, *signature.confirm, *signature.fix) if signature else ():
            rewritten(text, partial(fill_advice, values=advice.log_values))


def diagnosis_report(diagnosis: DiagnosisDocument, started: str = "", seconds: float = 0.0) -> Report:
    """The report of a document in English. ``started``: when it was made, UTC, ISO 8601."""
    by_signature = lists_by_key((cause.signature, _finding(cause)) for cause in diagnosis.causes)
    for advice in diagnosis.undecidable.reported if diagnosis.undecidable else ():
        by_signature.setdefault(advice.signature, []).append(
            _finding(_reported(advice, diagnosis.waiting)).as_warning()
        )
    hosts = [host for cause in diagnosis.causes for host in cause.hosts]
    hosts += [host for item in diagnosis.waiting for host in item.hosts]
    hosts += [file.host for file in diagnosis.files if file.host]
    evaluated = tuple(dict.fromkeys(hosts))
    outcomes = [
        _outcome(signature, findings, evaluated, diagnosis.waived) for signature, findings in by_signature.items()
    ]
    outcomes += [] if diagnosis.causes else [_run_outcome(diagnosis)]
    source = diagnosis.source or count_noun(len(diagnosis.files), "log file")
    return Report(source, evaluated, tuple(outcomes), started, seconds, notes=tuple(_notes(diagnosis)))


def waived_causes(report: Report) -> tuple[WaivedDocument, ...]:
    """What the waivers have set apart of a report of a diagnosis."""
    return tuple(
        WaivedDocument(outcome.check, item.finding.hosts, item.reason, item.until)
        for outcome in report.outcomes
        for item in outcome.waived
    )


def _outcome(
    signature: str, findings: Sequence[Finding], hosts: tuple[str, ...], waivers: Iterable[WaivedDocument]
) -> Outcome:
    claim = filled("The logs do not show: {0}", findings[0].values["means"])
    accepted = {(waiver.signature, waiver.hosts): waiver for waiver in waivers}
    waived = tuple(
        Waived(finding, waiver.reason, waiver.until)
        for finding in findings
        if (waiver := accepted.get((signature, finding.hosts)))
    )
    standing = tuple(finding for finding in findings if (signature, finding.hosts) not in accepted)
    return Outcome(
        signature, Severity.ERROR, LOGS, claim, standing, evaluated_hosts=hosts, complete=True, waived=waived
    )


def _reported(advice: Advice, waiting: Iterable[WaitingDocument]) -> CauseDocument:
    """What ranks reported where no cause is named: it may come from what its signature says."""
    reports = [item for item in waiting if item.signature == advice.signature]
    return CauseDocument(
        **msgspec.structs.asdict(advice),
        codes=(),
        summary=advice.title,
        rule="reported by ranks",
        confidence="proves no cause",
        ranks=tuple(sorted({rank for item in reports for rank in item.ranks})),
        hosts=tuple(dict.fromkeys(host for item in reports for host in item.hosts)),
        devices=(),
        count=sum(item.count for item in reports),
        evidence=tuple(item.first for item in reports),
        checked=None,
    )


def _finding(cause: CauseDocument) -> Finding:
    lines = (
        filled("{0}:{1}{2}: {3}", line.file, line.line, filled(" {0}", line.time) if line.time else "", line.text)
        for line in cause.evidence
    )
    subject, colon, rest = cause.summary.rpartition(filled(": {0}", cause.title))
    ends_with_title = bool(colon) and not rest
    template = "{means}" if cause.summary == cause.title else "{subject}: {means}" if ends_with_title else "{subject}"
    return Finding(
        template,
        hosts=cause.hosts,
        subject=subject if ends_with_title else cause.summary,
        ranks=list(cause.ranks),
        means=cause.title,
        codes=list(cause.codes),
        confidence=filled("{0}: {1}", cause.confidence, GROUNDS.get(cause.rule, cause.rule)),
        evidence=list(lines),
        now=checked_lines(cause.checked) if cause.checked else [],
        why=list(cause.likely_causes),
        remedy=list(_remedy(cause)),
    )


def _remedy(advice: Advice) -> Iterator[str]:
    """What to do, and how to confirm it; commands stand alone."""
    yield from advice.fix
    if advice.confirm:
        yield "To confirm it:"
        yield from (filled("- {0}", text) for text in advice.confirm)
    yield from (text for _, text in advised_commands(advice))


def _run_outcome(diagnosis: DiagnosisDocument) -> Outcome:
    """How the run ended, where no cause is named: well, in an unknown way, or there is no log."""
    claim = "The logs show that the run ended well, and no failure"
    cut = [f"{file.name}: {TIME_ENDED}" for file in diagnosis.files if not file.lines and TIME_ENDED in file.notes]
    unread = "".join(f": {text}" for text in [*diagnosis.unread, *cut][:1])
    reason = ""
    if not any(file.lines for file in diagnosis.files):
        if not unread:
            return Outcome(RUN_ENDED_WELL, Severity.ERROR, LOGS, claim, skipped={"": "no log has a line"})
        reason = filled("no log could be read{0}", unread)
    elif diagnosis.undecidable:
        needed = joined("; ", diagnosis.undecidable.missing)
        reason = joined("", (diagnosis.undecidable.reason, filled("; would decide: {0}", needed) if needed else ""))
    elif diagnosis.verdict != "ended-well":
        reason = "the logs show no cause, and no line shows that the run ended well"
    elif unread:
        reason = filled("some logs could not be read{0}", unread)
    unknown = {"": Reason(reason)} if reason else {}
    return Outcome(RUN_ENDED_WELL, Severity.ERROR, LOGS, claim, unknown=unknown, complete=not reason)


def _notes(diagnosis: DiagnosisDocument) -> Iterator[str]:
    yield from diagnosis.notes
    yield from (filled("not read: {0}", text) for text in diagnosis.unread)
    for item in diagnosis.waiting:
        ranks = filled(" (ranks {0})", ", ".join(map(str, item.ranks))) if item.ranks else ""
        first = item.first
        yield filled(
            "{0} waited{1}: {2}: {3}:{4}: {5}", item.count, ranks, item.title, first.file, first.line, first.text
        )
    for attempt in diagnosis.attempts:
        causes = joined("; ", (cause.summary for cause in attempt.diagnosis.causes)) or attempt.diagnosis.verdict
        kind = "another job" if attempt.kind == "job" else "an attempt that was started again"
        where = ", ".join(f"{lines.file}:{lines.first}-{lines.last}" for lines in attempt.lines)
        place = filled(" ({text})", text=where) if where else ""
        yield filled("earlier, {0}{1}: {2}", kind, place, "the same cause" if attempt.same_cause else causes)
    for job in diagnosis.earlier_jobs:
        causes = joined("; ", (filled("{0} ({1})", cause.summary, cause.signature) for cause in job.causes))
        yield filled("an earlier job: {0}", causes or job.verdict)
    for file in diagnosis.files[:MAX_FILES]:
        span = filled(", {0} to {1}", file.first_time, file.last_time) if file.first_time and file.last_time else ""
        notes = "".join(filled("; {0}", note) for note in file.notes)
        cut = "" if file.complete else " (not complete)"
        yield filled("read {0}: {1}{2}{3}{4}", file.name, count_noun(file.lines, "line"), span, cut, notes)
