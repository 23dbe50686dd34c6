"""A diagnosis as a document, ``doctor.diagnosis/1``: the base of every format, in this process's language.

What programs read is made within ``with english():``. `doctor.report` shows the same document, read from a file, again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from doctor.diagnose.diagnosis import CheckedCause, Culprit, Diagnosis, EarlierAttempt, Waiting, hosts_of
from doctor.diagnose.error_codes import title_of
from doctor.diagnose.events import Event, FileSummary
from doctor.diagnose.exception_actions import remedy_of_events
from doctor.diagnose.render.action import ActionDocument, action_of
from doctor.diagnose.render.log_values import (
    HOST_FORM,
    fill_advice,
    fill_values,
    places_in_logs,
    program_line,
    requested_settings,
    slurm_job,
    values_in_logs,
)
from doctor.diagnose.render.memory_shortage import memory_shortage
from doctor.diagnose.signature import Signature
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.result import CheckName
from doctor.engine.texts import TextTable, filled, rewritten
from doctor.report.layout.advice import hands_notes, marks

SCHEMA: Literal["doctor.diagnosis/1"] = "doctor.diagnosis/1"
MAX_ATTEMPT_FILES = 100
"""Of an earlier attempt, those that its lines are quoted from first: all files are those of the document itself."""
MAX_HOSTS = 64
"""Of a cause, in one command."""
MAX_COMMANDS = 16
"""Playbooks or checks in one command."""
Verdict = Literal["found", "undecidable", "ended-well", "no-failure"]


class SignatureCatalog(NamedTuple):
    """What a diagnosis refers to."""

    signatures: Mapping[str, Signature]
    playbooks: Mapping[str, tuple[str, ...]]
    """Those for each check."""


class EvidenceLine(msgspec.Struct, frozen=True):
    """A line of a log that proves something."""

    file: str
    line: int
    time: str | None
    text: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What a signature says, with the values that the logs show."""

    signature: CheckName
    title: str
    explains: tuple[str, ...]
    likely_causes: tuple[str, ...]
    confirm: tuple[str, ...]
    fix: tuple[str, ...]
    playbooks: tuple[CheckName, ...]
    checks: tuple[CheckName, ...]
    log_values: dict[str, str] = {}
    """By placeholder of the signature: what the logs show in its place."""


class CauseDocument(Advice, frozen=True, kw_only=True):
    """One cause, with its proof and its remedy."""

    codes: tuple[str, ...]
    summary: str
    rule: str
    confidence: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    devices: tuple[int, ...]
    processes: tuple[str, ...] = ()
    """``pid 4711``, ``pod trainer-0``: what a cluster names without a rank."""
    count: int
    evidence: tuple[EvidenceLine, ...]
    checked: CheckedCause | None
    memory: str = ""
    """Of device memory that ran out: how much was missing, and who held it."""


def advised_commands(item: Advice) -> Iterator[tuple[str, str]]:
    """What plans the playbooks, and what tests the hosts before the next run: each with its label."""
    hosts = item.hosts[:MAX_HOSTS] if isinstance(item, CauseDocument) else ()
    typed = ",".join(hosts) if all(map(HOST_FORM.fullmatch, hosts)) else ""
    typed = typed or item.log_values.get("HOSTS", "")
    playbooks, checks = " ".join(item.playbooks[:MAX_COMMANDS]), ",".join(item.checks[:MAX_COMMANDS])
    if playbooks and typed:
        yield "playbooks", filled("`doctor fix {0} -w {1}` prints a plan; --apply carries it out", playbooks, typed)
    elif playbooks:
        yield "playbooks", filled("on its host: `doctor fix {0}` prints a plan; --apply carries it out", playbooks)
    if checks and typed:
        yield "before", filled("the next run, its hosts: `doctor check {0} --select {1}`", typed, checks)
    elif checks:
        text = "the next run, in its allocation or on each of its hosts: `doctor check --select {0}`"
        yield "before", filled(text, checks)


class WaitingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that reported the same consequence."""

    signature: str
    title: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    devices: tuple[int, ...]
    count: int
    first: EvidenceLine


class UndecidableDocument(msgspec.Struct, frozen=True):
    """Why nothing is decided, what would decide, and what the ranks reported."""

    reason: str
    missing: tuple[str, ...]
    reported: tuple[Advice, ...]


class FileDocument(msgspec.Struct, frozen=True):
    """A file as it was read."""

    name: str
    bytes: int
    lines: int
    first_time: str | None
    last_time: str | None
    notes: tuple[str, ...]
    host: str
    complete: bool


class LineRange(msgspec.Struct, frozen=True):
    """The lines of a file that belong to an attempt."""

    file: str
    first: int
    last: int


class AttemptDocument(msgspec.Struct, frozen=True):
    """An attempt before the last one, or a job before it in the same file."""

    kind: Literal["attempt", "job"]
    same_cause: bool
    lines: tuple[LineRange, ...]
    diagnosis: DiagnosisDocument


class WaivedDocument(msgspec.Struct, frozen=True):
    """A cause that a waiver accepts: its signature and hosts, the reason and the last day."""

    signature: str
    hosts: tuple[str, ...]
    reason: str
    until: str


class DiagnosisDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict over all files."""

    schema: Literal["doctor.diagnosis/1"] = SCHEMA
    verdict: Verdict
    exit_code: int
    source: str
    notes: tuple[str, ...]
    unread: tuple[str, ...]
    causes: tuple[CauseDocument, ...]
    waiting: tuple[WaitingDocument, ...]
    undecidable: UndecidableDocument | None
    world_size: int | None
    processes: int
    clocks_comparable: bool
    files: tuple[FileDocument, ...]
    attempts: tuple[AttemptDocument, ...] = ()
    earlier_jobs: tuple[DiagnosisDocument, ...] = ()
    waived: tuple[WaivedDocument, ...] = ()
    """Of the causes."""
    action: ActionDocument | None = None
    """What to do about the first cause; None in what an earlier version wrote."""
    texts: TextTable = {}
    """How its texts were filled, for another language."""


def document(
    diagnosis: Diagnosis, catalogue: SignatureCatalog, code: int, waived: tuple[WaivedDocument, ...] = ()
) -> DiagnosisDocument:
    """The document; ``code`` is the exit code that it comes with."""
    builder = _DocumentBuilder(diagnosis, catalogue)
    return DiagnosisDocument(
        verdict=verdict(diagnosis),
        exit_code=code,
        source=localized_filled(diagnosis.source),
        notes=_localized_all(diagnosis.notes),
        unread=_localized_all(diagnosis.unread),
        causes=tuple(map(builder.cause, range(len(diagnosis.causes)))),
        waiting=tuple(map(builder.waiting, diagnosis.waiting)),
        undecidable=builder.undecidable(),
        world_size=diagnosis.world_size,
        processes=diagnosis.processes,
        clocks_comparable=diagnosis.clocks_comparable,
        files=tuple(map(_file, diagnosis.files)),
        attempts=tuple(_attempt(attempt, catalogue, code) for attempt in diagnosis.attempts),
        earlier_jobs=tuple(document(job, catalogue, code) for job in diagnosis.earlier),
        waived=waived,
        action=action_of(diagnosis, catalogue.signatures),
    )


def verdict(diagnosis: Diagnosis) -> Verdict:
    """``no-failure`` shows no failure and no good end."""
    if diagnosis.causes:
        return "found"
    if diagnosis.failed:
        return "undecidable"
    return "ended-well" if diagnosis.ended_well else "no-failure"


def summary_text(text: str) -> str:
    """Who, and the title of a signature behind a colon; else a sentence.

    A title may have colons, and be followed by what its lines have in common, in brackets.
    """
    sentence = localized_filled(text)
    who, *rest = text.split(": ", 4)
    for number in range(len(rest)):
        title = ": ".join(rest[number:])
        if title in sentence and localized(title) != title:
            return f"{localized_filled(': '.join((who, *rest[:number])))}{localized(': ')}{localized(title)}"
    return sentence


class _DocumentBuilder:
    """The parts of one job's document."""

    def __init__(self, diagnosis: Diagnosis, catalogue: SignatureCatalog) -> None:
        self.diagnosis, self.catalogue = diagnosis, catalogue

    def cause(self, number: int) -> CauseDocument:
        cause, checked = self.diagnosis.causes[number], self.diagnosis.checked
        in_logs = {**slurm_job(self.diagnosis), **values_in_logs(cause.evidence, cause.culprits)}
        in_logs |= places_in_logs(self.diagnosis, cause.evidence)
        advice = self._advice(cause.signature, in_logs)
        asked = requested_settings(cause.evidence, advice["fix"])
        of_program = remedy_of_events(self.catalogue.signatures[cause.signature], cause.evidence) == "fix-program"
        lines = program_line(cause.evidence) if of_program else []
        advice["fix"] = (*_localized_all([*asked, *lines]), *advice["fix"])
        advice["fix"] += tuple(hands_notes(" ".join(advice["fix"]), hosts_of(cause.culprits)[:MAX_COMMANDS]))
        return CauseDocument(
            **advice,
            codes=self.catalogue.signatures[cause.signature].codes,
            summary=summary_text(cause.summary),
            rule=localized(cause.rule),
            confidence=localized(cause.confidence),
            **_places(cause.culprits),
            processes=tuple(sorted({culprit.label for culprit in cause.culprits if culprit.label})),
            evidence=tuple(map(self._line, cause.evidence)),
            checked=checked[number] if number < len(checked) else None,
            memory=memory_shortage(cause.evidence),
        )

    def waiting(self, item: Waiting) -> WaitingDocument:
        title = localized_filled(title_of(self.catalogue.signatures[item.signature], [item.first]))
        return WaitingDocument(
            signature=item.signature, title=title, **_places(item.culprits), first=self._line(item.first)
        )

    def undecidable(self) -> UndecidableDocument | None:
        undecided = self.diagnosis.undecidable
        if undecided is None:
            return None
        reported = tuple(self._reported()) if not self.diagnosis.causes else ()
        return UndecidableDocument(localized_filled(undecided.reason), _localized_all(undecided.needed), reported)

    def _reported(self) -> Iterator[Advice]:
        """Where no rule names a cause: what the ranks reported and has causes, each once, what most reported first."""
        reports = sorted(self.diagnosis.waiting, key=lambda item: -len(item.culprits))
        for name in dict.fromkeys(item.signature for item in reports):
            if self.catalogue.signatures[name].causes:
                first_lines = [item.first for item in self.diagnosis.waiting if item.signature == name]
                places = places_in_logs(self.diagnosis, first_lines)
                yield Advice(**self._advice(name, values_in_logs(first_lines) | places))

    def _advice(self, name: str, log_values: Mapping[str, str]) -> dict[str, Any]:
        """The fields of `Advice`. Its playbooks: the signature's own, then those that treat its checks.

        A host that is only suspected beside a fault of the program has its checks alone.
        """
        signature = self.catalogue.signatures[name]
        suspected = () if signature.action == "fix-program" else signature.checks
        treating = (playbook for check in suspected for playbook in self.catalogue.playbooks.get(check, ()))
        fill = partial(fill_advice, values=log_values)
        # What the values of this log make a command to be typed is the first.
        fix = sorted(signature.fix, key=lambda text: bool(marks(fill(text))) or fill_values(text, log_values) == text)
        fields = (("likely_causes", signature.causes), ("confirm", signature.confirm), ("fix", fix))
        return {
            "signature": signature.id,
            "title": localized(signature.title),
            "explains": signature.explains,
            **{key: tuple(rewritten(localized(text), fill) for text in texts) for key, texts in fields},
            "playbooks": tuple(dict.fromkeys((*signature.playbooks, *treating))),
            "checks": signature.checks,
            "log_values": dict(log_values),
        }

    def _line(self, event: Event) -> EvidenceLine:
        return EvidenceLine(self.diagnosis.files[event.file].name, event.line, format_time(event.time), event.text)


def _localized_all(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(localized_filled, texts))


def _places(culprits: tuple[Culprit, ...]) -> dict[str, Any]:
    return {
        "ranks": tuple(sorted({culprit.rank for culprit in culprits if culprit.rank is not None})),
        "hosts": hosts_of(culprits),
        "devices": tuple(sorted({culprit.device for culprit in culprits if culprit.device is not None})),
        "count": len(culprits),
    }


def _file(summary: FileSummary) -> FileDocument:
    return FileDocument(
        summary.name,
        summary.bytes,
        summary.lines,
        format_time(summary.first_time),
        format_time(summary.last_time),
        _localized_all(summary.notes),
        summary.origin,
        not summary.incomplete,
    )


def _attempt(attempt: EarlierAttempt, catalogue: SignatureCatalog, code: int) -> AttemptDocument:
    content = document(attempt.diagnosis, catalogue, code)
    quoted = {line.file for cause in content.causes for line in cause.evidence}
    quoted |= {item.first.file for item in content.waiting}
    order = sorted(range(len(content.files)), key=lambda number: content.files[number].name not in quoted)
    numbers = sorted(order[:MAX_ATTEMPT_FILES])
    files = (attempt.diagnosis.files[number] for number in numbers)
    return AttemptDocument(
        "job" if attempt.is_job else "attempt",
        attempt.same,
        tuple(LineRange(summary.name, summary.first_line, summary.last_line) for summary in files if summary.last_line),
        msgspec.structs.replace(content, files=tuple(content.files[number] for number in numbers)),
    )


def checked_lines(checked: CheckedCause) -> list[str]:
    """What the checks of a cause find now, one sentence each: ``link-down on node7: NPU 4``."""
    if checked.reason:
        return [phrase("not checked: {reason}", reason=localized_filled(checked.reason))]
    more = phrase(" and {count} more", count=len(checked.hosts) - 8) if len(checked.hosts) > 8 else ""
    hosts = ", ".join(checked.hosts[:8]) + more
    lines = []
    for item in checked.findings:
        values = {"severity": localized(item.severity), "text": localized_filled(item.text)}
        named = ", ".join(item.hosts) or hosts
        lines.append(phrase("{check} on {hosts} ({severity}): {text}", check=item.check, hosts=named, **values))
    if checked.passed:
        lines.append(phrase("{checks}: no finding on {hosts}", checks=", ".join(checked.passed), hosts=hosts))
    lines += [
        phrase("{check}: unknown: {reason}", check=item.check, reason=localized_filled(item.reason))
        for item in checked.unknown
    ]
    if checked.skipped:
        names = ", ".join(item.check for item in checked.skipped)
        lines.append(phrase("{checks}: skipped, they do not apply", checks=names))
    return lines


def format_time(time: float | None) -> str | None:
    """``2025-10-24 22:03:14.946``; None where the time is not known."""
    if time is None:
        return None
    moment = datetime.fromtimestamp(time, timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
