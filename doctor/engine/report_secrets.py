"""A report without secrets: what every format renders. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from doctor.engine.result import Finding, Outcome, Reason, Report, Waived
from doctor.engine.secrets import HIDDEN, hidden_parts, hide_secrets, is_secret_name
from doctor.engine.texts import restated_by_values

T = TypeVar("T")


@lru_cache(maxsize=1 << 14)
def _hide(text: str) -> str:
    return restated_by_values(text, hide_secrets)


def without_secrets(report: Report) -> Report:
    """The report with `doctor.engine.secrets.HIDDEN` in place of tokens, passwords and private keys in its texts."""
    if not any(report is redacted for redacted in _last):
        _last[:] = [report, _hidden(report)]
    return _last[1]


_last: list[Report] = []
"""The last report and the same without secrets: it is rendered in several formats."""


def _hidden(report: Report) -> Report:
    return msgspec.structs.replace(
        report,
        source=_hide(report.source),
        connection_words=tuple(map(_hide, report.connection_words)),
        smoke_words=tuple(map(_hide, report.smoke_words)),
        outcomes=tuple(map(_outcome, report.outcomes)),
        notes=tuple(map(_hide, report.notes)),
        smoke=_hide_within(report.smoke),
        hosts_unknown=_hide(report.hosts_unknown),
        losses=tuple(map(_hide_within, report.losses)),
    )


def _outcome(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(
        outcome,
        findings=tuple(_findings(outcome.findings)),
        unknown={host: _reason(why) for host, why in outcome.unknown.items()},
        skipped={host: _hide(why) for host, why in outcome.skipped.items()},
        crashed={host: _hide(trace) for host, trace in outcome.crashed.items()},
        waived=tuple(
            Waived(finding, _hide(entry.reason), entry.until)
            for entry in outcome.waived
            for finding in _findings([entry.finding])
        ),
    )


@lru_cache(maxsize=1 << 14)
def _reason(why: Reason) -> Reason:
    return Reason(_hide(why.text), why.root_cause)


def _findings(findings: Iterable[Finding]) -> Iterator[Finding]:
    hidden: dict[int, dict[str, Any]] = {}  # by object of the values, which hosts with the same facts share
    for finding in findings:
        values = hidden.get(id(finding.values))
        if values is None:
            values = _apart(finding, {name: _hide_within(value) for name, value in finding.values.items()})
            hidden[id(finding.values)] = values = finding.values if values == finding.values else values
        yield finding if values is finding.values else finding.with_values(**values)


def _apart(finding: Finding, values: dict[str, Any]) -> dict[str, Any]:
    """The values without a secret that one of them names and another holds: the sentence has both."""
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    if any(len(text) < 200 and is_secret_name(text.lstrip("-")) for text in texts.values()):
        for part in hidden_parts(str(finding.with_values(**values))):
            texts = {name: text.replace(part, HIDDEN) for name, text in texts.items()}
    return {**values, **texts}


_WITHOUT_TEXT = {int, float, bool, type(None)}


def _hide_within(value: T) -> T:
    """Any value of a report, of the same type."""
    if type(value) in _WITHOUT_TEXT:
        return value
    hidden: object = value
    if isinstance(value, str):
        hidden = _hide(value)
    elif isinstance(value, msgspec.Struct):
        fields = {name: _hide_within(getattr(value, name)) for name in value.__struct_fields__}
        hidden = msgspec.structs.replace(value, **fields)
    elif isinstance(value, Mapping):
        hidden = {
            key: HIDDEN if isinstance(item, str) and item and isinstance(key, str) and is_secret_name(key)
            else _hide_within(item)
            for key, item in value.items()
        }  # fmt: skip
    elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        hidden = type(value)(map(_hide_within, value))
    return hidden  # type: ignore[return-value]
