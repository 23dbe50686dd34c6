"""A diagnosis as one JSON document, ``doctor.diagnosis/1``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from doctor.diagnose.cause import Cause, CheckedCause, Culprit, Diagnosis, Waiting
from doctor.diagnose.events import Event
from doctor.diagnose.render.log_values import fill_values, values_in_logs
from doctor.diagnose.signature import Signature
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.secrets import hide_in

SCHEMA = "doctor.diagnosis/1"
_ADVICE = ("likely_causes", "confirm", "fix")


def document(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> dict[str, Any]:
    """The document. ``playbooks`` are those for each check."""
    return _with_log_values(_document(diagnosis, signatures, playbooks, code))


def readable(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> dict[str, Any]:
    """The document for people: its sentences in the language of this process, names and log lines as they are."""
    return _with_log_values(_localized(_document(diagnosis, signatures, playbooks, code)))


def _document(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> dict[str, Any]:
    """With the templates of advice, and the values that are known beside them."""
    return hide_in(  # type: ignore[no-any-return]
        {
            "schema": SCHEMA,
            "verdict": verdict(diagnosis),
            "exit_code": code,
            "source": diagnosis.source,
            "notes": list(diagnosis.notes),
            "unread": list(diagnosis.unread),
            "causes": [
                {**_cause(diagnosis, signatures, playbooks, cause), "checked": _checked(diagnosis, number)}
                for number, cause in enumerate(diagnosis.causes)
            ],
            "waiting": [_waiting(diagnosis, signatures, item) for item in diagnosis.waiting],
            "undecidable": _undecidable(diagnosis, signatures, playbooks),
            "world_size": diagnosis.world_size,
            "processes": diagnosis.processes,
            "clocks_comparable": diagnosis.clocks_comparable,
            "files": [
                {
                    "name": summary.name,
                    "bytes": summary.bytes,
                    "lines": summary.lines,
                    "first_time": format_time(summary.first_time),
                    "last_time": format_time(summary.last_time),
                    "notes": summary.notes,
                    "host": summary.origin,
                    "complete": not summary.incomplete,
                }
                for summary in diagnosis.files
            ],
            "attempts": [
                {
                    "kind": "job" if attempt.is_job else "attempt",
                    "same_cause": attempt.same,
                    "lines": [
                        {"file": summary.name, "first": summary.first_line, "last": summary.last_line}
                        for summary in attempt.diagnosis.files
                        if summary.last_line
                    ],
                    "diagnosis": _document(attempt.diagnosis, signatures, playbooks, code),
                }
                for attempt in diagnosis.attempts
            ],
            "earlier_jobs": [_document(job, signatures, playbooks, code) for job in diagnosis.earlier],
        }
    )


def _with_log_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Each advice in the document with the values that are known."""
    filled = {key: _filled(item) for key, item in data.items() if key != "log_values"}
    if log_values := data.get("log_values"):
        filled.update({key: [fill_values(text, log_values) for text in data[key]] for key in _ADVICE})
    return filled


def _filled(value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return _with_log_values(value) if isinstance(value, dict) else value


def _localized(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **data,
        **{key: [localized_filled(text) for text in data[key]] for key in ("notes", "unread")},
        "source": localized_filled(data["source"]),
        "causes": [_readable_cause(cause) for cause in data["causes"]],
        "waiting": [{**item, "title": localized(item["title"])} for item in data["waiting"]],
        "undecidable": data["undecidable"]
        and {
            "reason": localized_filled(data["undecidable"]["reason"]),
            "missing": [localized_filled(text) for text in data["undecidable"]["missing"]],
            "reported": [_readable_advice(item) for item in data["undecidable"]["reported"]],
        },
        "files": [{**file, "notes": [localized_filled(note) for note in file["notes"]]} for file in data["files"]],
    }


def _readable_cause(cause: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_readable_advice(cause),
        "summary": localized_filled(cause["summary"]),
        **{key: localized(cause[key]) for key in ("rule", "confidence")},
    }


def _readable_advice(item: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: [localized(text) for text in item[key]] for key in _ADVICE}
    return {**item, "title": localized(item["title"]), **texts}


def render_json(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> str:
    """The document as text."""
    return json.dumps(document(diagnosis, signatures, playbooks, code), indent=2, ensure_ascii=False) + "\n"


def verdict(diagnosis: Diagnosis) -> str:
    """``found``, ``undecidable``, ``ended-well`` or ``no-failure``; the last shows no failure and no good end."""
    if diagnosis.causes:
        return "found"
    if diagnosis.failed:
        return "undecidable"
    return "ended-well" if diagnosis.ended_well else "no-failure"


def playbook_names(signature: Signature, playbooks: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The signature's own playbooks, then those that treat its checks."""
    names = [*signature.playbooks, *(name for check in signature.checks for name in playbooks.get(check, ()))]
    return list(dict.fromkeys(names))


def reported_signatures(diagnosis: Diagnosis, signatures: Mapping[str, Signature]) -> list[Signature]:
    """Where no rule names a cause: what the ranks reported and has causes, each once, what most reported first."""
    if diagnosis.causes or diagnosis.undecidable is None:
        return []
    reports = sorted(diagnosis.waiting, key=lambda item: -len(item.culprits))
    reported = dict.fromkeys(item.signature for item in reports)
    return [signatures[name] for name in reported if signatures[name].causes]


def _undecidable(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]]
) -> dict[str, Any] | None:
    if diagnosis.undecidable is None:
        return None
    return {
        "reason": diagnosis.undecidable.reason,
        "missing": list(diagnosis.undecidable.needed),
        "reported": [
            _advice(signature, playbooks, values_of_report(diagnosis, signature))
            for signature in reported_signatures(diagnosis, signatures)
        ],
    }


def values_of_report(diagnosis: Diagnosis, signature: Signature) -> dict[str, str]:
    """The values that the first lines of a signature show."""
    return values_in_logs(item.first for item in diagnosis.waiting if item.signature == signature.id)


def _advice(
    signature: Signature, playbooks: Mapping[str, tuple[str, ...]], log_values: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "log_values": log_values,
        "signature": signature.id,
        "title": signature.title,
        "explains": list(signature.explains),
        "likely_causes": list(signature.causes),
        "confirm": list(signature.confirm),
        "fix": list(signature.fix),
        "playbooks": playbook_names(signature, playbooks),
        "checks": list(signature.checks),
    }


def _cause(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], cause: Cause
) -> dict[str, Any]:
    signature = signatures[cause.signature]
    return {
        **_advice(signature, playbooks, values_in_logs(cause.evidence, cause.culprits)),
        "codes": list(signature.codes),
        "summary": cause.summary,
        "rule": cause.rule,
        "confidence": cause.confidence,
        **_places(cause.culprits),
        "evidence": [_evidence(diagnosis, event) for event in cause.evidence],
    }


def _checked(diagnosis: Diagnosis, number: int) -> dict[str, Any] | None:
    """What the checks of a cause find now; None where nothing was checked."""
    checked = diagnosis.checked[number] if number < len(diagnosis.checked) else None
    if checked is None:
        return None
    return {
        "hosts": list(checked.hosts),
        "findings": [
            {"check": item.check, "severity": item.severity, "hosts": list(item.hosts), "text": item.text}
            for item in checked.findings
        ],
        "passed": list(checked.passed),
        "unknown": [{"check": check, "reason": reason} for check, reason in checked.unknown],
        "skipped": [{"check": check, "reason": reason} for check, reason in checked.skipped],
        "reason": checked.reason,
    }


def checked_lines(checked: CheckedCause) -> list[str]:
    """What the checks of a cause find now, one sentence each: ``link-down on node7: NPU 4``."""
    if checked.reason:
        return [phrase("not checked: {reason}", reason=localized_filled(checked.reason))]
    more = phrase(" and {count} more", count=len(checked.hosts) - 8) if len(checked.hosts) > 8 else ""
    hosts = ", ".join(checked.hosts[:8]) + more
    lines = [
        phrase(
            "{check} on {hosts} ({severity}): {text}",
            check=item.check,
            hosts=", ".join(item.hosts) or hosts,
            severity=localized(item.severity),
            text=localized_filled(item.text),
        )
        for item in checked.findings
    ]
    if checked.passed:
        lines.append(phrase("{checks}: no finding on {hosts}", checks=", ".join(checked.passed), hosts=hosts))
    lines += [
        phrase("{check}: unknown: {reason}", check=check, reason=localized_filled(reason))
        for check, reason in checked.unknown
    ]
    if checked.skipped:
        names = ", ".join(check for check, _ in checked.skipped)
        lines.append(phrase("{checks}: skipped, they do not apply", checks=names))
    return lines


def _waiting(diagnosis: Diagnosis, signatures: Mapping[str, Signature], item: Waiting) -> dict[str, Any]:
    return {
        "signature": item.signature,
        "title": signatures[item.signature].title,
        **_places(item.culprits),
        "first": _evidence(diagnosis, item.first),
    }


def _places(culprits: tuple[Culprit, ...]) -> dict[str, Any]:
    return {
        "ranks": sorted({culprit.rank for culprit in culprits if culprit.rank is not None}),
        "hosts": sorted({culprit.host for culprit in culprits if culprit.host}),
        "devices": sorted({culprit.device for culprit in culprits if culprit.device is not None}),
        "count": len(culprits),
    }


def _evidence(diagnosis: Diagnosis, event: Event) -> dict[str, Any]:
    return {
        "file": diagnosis.files[event.file].name,
        "line": event.line,
        "time": format_time(event.time),
        "text": event.text,
    }


def format_time(time: float | None) -> str | None:
    """``2025-10-24 22:03:14.946``; None where the time is not known."""
    if time is None:
        return None
    moment = datetime.fromtimestamp(time, timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
