"""A report with pseudonyms in place of names and addresses: the report itself, so that every format follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from doctor.engine.report_secrets import ReportRewriter
from doctor.engine.result import Finding, Report
from doctor.engine.texts import restated
from doctor.report.formats.json import to_json_value
from doctor.report.redact.pseudonyms import Redactor

T = TypeVar("T")


def redacted_report(report: Report, key: bytes, aliases: Iterable[str] = ()) -> Report:
    """The report with pseudonyms; ``aliases`` are other names that its hosts go by."""
    rewriter = _WithPseudonyms(Redactor(key, dict.fromkeys([*_hosts(report), *aliases])))
    return rewriter.report(msgspec.structs.replace(report, connection_words=(), smoke_words=()))


def _hosts(report: Report) -> Iterator[str]:
    yield from report.hosts
    for outcome in report.outcomes:
        for finding in (*outcome.findings, *(waived.finding for waived in outcome.waived)):
            yield from finding.hosts
        yield from (*outcome.evaluated_hosts, *outcome.unknown, *outcome.skipped, *outcome.crashed)
    yield from (pace.host for pace in report.pace)
    if report.smoke:
        yield from report.smoke.hosts
        yield from (host for failure in report.smoke.failures for way in failure.links + failure.parts for host in way)


_TEXTS_OF_FIGURES = frozenset(
    {"calls", "evidence", "host", "hosts", "links", "notes", "parts", "placements", "stacks", "states", "text"}
)
"""Fields of figures whose texts, and keys, may name a place. All other texts in them are doctor's own words."""


class _WithPseudonyms(ReportRewriter):
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def text(self, text: str) -> str:
        return restated(text, self._redactor.text)

    def host(self, name: str) -> str:
        return self._redactor.host(name)

    def finding(self, finding: Finding) -> Finding:
        replaced = Finding(self._redactor.template(finding.template), hosts=self.hosts(finding.hosts))
        replaced.values.update({name: self.value(to_json_value(value)) for name, value in finding.values.items()})
        return replaced.as_warning(finding.is_warning).following(finding.follows_from)

    def value(self, value: Any) -> Any:
        """A value, or a figure that names places: all of its texts, and its keys."""
        if isinstance(value, str):
            return self._redactor.pseudonyms.get(value) or self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        return type(value)(map(self.value, value)) if isinstance(value, (list, tuple)) else value

    def figures(self, value: T) -> T:
        replaced: object = value
        if isinstance(value, msgspec.Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            named = {name: self.value(part) for name, part in fields.items() if name in _TEXTS_OF_FIGURES}
            inner = {name: self.figures(part) for name, part in fields.items() if name not in named}
            replaced = msgspec.structs.replace(value, **named, **inner)
        elif isinstance(value, tuple):
            replaced = tuple(map(self.figures, value))
        return replaced  # type: ignore[return-value]
