"""A report with pseudonyms in place of names and addresses: the report itself, so that every format follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from doctor.engine.result import Finding, Outcome, Reason, Report, Waived
from doctor.engine.smoke_summary import Summary
from doctor.report.formats.json import plain_value
from doctor.report.redact.pseudonyms import Redactor
from doctor.smoke.model import Trouble


def redacted(report: Report, key: bytes, aliases: Iterable[str] = ()) -> Report:
    """The report with pseudonyms; ``aliases`` are other names that its hosts go by."""
    return _Walk(redactor_for(report, key, aliases)).report(report)


def redactor_for(report: Report, key: bytes, aliases: Iterable[str] = ()) -> Redactor:
    """One that knows every host that the report names."""
    return Redactor(key, dict.fromkeys([*_hosts(report), *aliases]))


def _hosts(report: Report) -> Iterator[str]:
    yield from report.hosts
    for one in report.outcomes:
        for finding in (*one.findings, *(waived.finding for waived in one.waived)):
            yield from finding.hosts
        yield from (*one.looked, *one.unknown, *one.skipped, *one.crashed)
    if report.smoke:
        yield from report.smoke.hosts
        yield from (host for trouble in report.smoke.troubles for link in trouble.links for host in link)


class _Walk:
    """Goes over a whole report."""

    def __init__(self, redactor: Redactor) -> None:
        self.host, self.text, self.template = redactor.host, redactor.text, redactor.template

    def report(self, report: Report) -> Report:
        return msgspec.structs.replace(
            report,
            source=self.text(report.source),
            hosts=self.hosts(report.hosts),
            outcomes=tuple(map(self.outcome, report.outcomes)),
            notes=self.texts(report.notes),
            smoke=self.summary(report.smoke) if report.smoke else None,
        )

    def hosts(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.host, names))

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.text, texts))

    def outcome(self, one: Outcome) -> Outcome:
        return msgspec.structs.replace(
            one,
            findings=tuple(map(self.finding, one.findings)),
            looked=self.hosts(one.looked),
            unknown={self.host(host): Reason(self.text(why.text), why.because) for host, why in one.unknown.items()},
            skipped={self.host(host): self.text(why) for host, why in one.skipped.items()},
            crashed={self.host(host): self.text(trace) for host, trace in one.crashed.items()},
            waived=tuple(Waived(self.finding(w.finding), self.text(w.reason), w.until) for w in one.waived),
        )

    def finding(self, finding: Finding) -> Finding:
        made = Finding(self.template(finding.template), hosts=self.hosts(finding.hosts))
        made.values.update({name: self.value(plain_value(value)) for name, value in finding.values.items()})
        return made

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value

    def summary(self, summary: Summary) -> Summary:
        return msgspec.structs.replace(
            summary,
            hosts={self.host(host): ranks for host, ranks in summary.hosts.items()},
            troubles=tuple(map(self.trouble, summary.troubles)),
            places=self.texts(summary.places),
            notes=self.texts(summary.notes),
        )

    def trouble(self, trouble: Trouble) -> Trouble:
        by_rank = {
            name: {rank: self.text(text) for rank, text in getattr(trouble, name).items()}
            for name in ("calls", "states", "stacks")
        }
        return msgspec.structs.replace(
            trouble,
            links=tuple((self.host(one), self.host(other)) for one, other in trouble.links),
            text=self.text(trouble.text),
            evidence=self.texts(trouble.evidence),
            **by_rank,
        )
