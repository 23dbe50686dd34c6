"""A report with other texts in the place of its own: without secrets, as every format renders it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from doctor.engine.result import Finding, Outcome, Reason, Report, Waived
from doctor.engine.secrets import HIDDEN, hidden_parts, hide_secrets, is_secret_name
from doctor.engine.texts import restated_by_values

T = TypeVar("T")


class ReportRewriter:
    """The one walk through a report's parts. A subclass says what stands for a text, a name, a finding, figures."""

    def text(self, text: str) -> str:
        raise NotImplementedError

    def host(self, name: str) -> str:
        return name

    def finding(self, finding: Finding) -> Finding:
        raise NotImplementedError

    def figures(self, value: T) -> T:
        """The smoke run, the losses, the paces: of the same type."""
        raise NotImplementedError

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.text, texts))

    def hosts(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.host, names))

    def report(self, report: Report) -> Report:
        return msgspec.structs.replace(
            report,
            source=self.text(report.source),
            connection_words=self.texts(report.connection_words),
            smoke_words=self.texts(report.smoke_words),
            hosts=self.hosts(report.hosts),
            outcomes=tuple(map(self.outcome, report.outcomes)),
            notes=self.texts(report.notes),
            smoke=self.figures(report.smoke),
            hosts_unknown=self.text(report.hosts_unknown),
            ages={(check, self.host(host)): age for (check, host), age in report.ages.items()},
            losses=self.figures(report.losses),
            pace=self.figures(report.pace),
        )

    def outcome(self, outcome: Outcome) -> Outcome:
        return msgspec.structs.replace(
            outcome,
            findings=tuple(map(self.finding, outcome.findings)),
            evaluated_hosts=self.hosts(outcome.evaluated_hosts),
            unknown={
                self.host(host): Reason(self.text(why.text), why.root_cause) for host, why in outcome.unknown.items()
            },
            skipped={self.host(host): self.text(why) for host, why in outcome.skipped.items()},
            crashed={self.host(host): self.text(trace) for host, trace in outcome.crashed.items()},
            waived=tuple(
                Waived(self.finding(entry.finding), self.text(entry.reason), entry.until) for entry in outcome.waived
            ),
        )


def without_secrets(report: Report) -> Report:
    """The report with `doctor.engine.secrets.HIDDEN` in place of tokens, passwords and private keys in its texts."""
    if not any(report is redacted for redacted in _last):
        _last[:] = [report, _WithoutSecrets().report(report)]
    return _last[1]


_last: list[Report] = []
"""The last report and the same without secrets: it is rendered in several formats."""


@lru_cache(maxsize=1 << 14)
def _hide(text: str) -> str:
    return restated_by_values(text, hide_secrets)


class _WithoutSecrets(ReportRewriter):
    def __init__(self) -> None:
        self._hidden: dict[int, dict[str, Any]] = {}
        """By object of the values, which hosts with the same facts share."""

    def text(self, text: str) -> str:
        return _hide(text)

    def figures(self, value: T) -> T:
        return _hide_within(value)

    def finding(self, finding: Finding) -> Finding:
        values = self._hidden.get(id(finding.values))
        if values is None:
            values = _apart(finding, {name: _hide_within(value) for name, value in finding.values.items()})
            self._hidden[id(finding.values)] = values = finding.values if values == finding.values else values
        return finding if values is finding.values else finding.with_values(**values)


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
