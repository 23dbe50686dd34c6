"""A report with pseudonyms in place of names and addresses: the report itself, so that every format follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from doctor.engine.result import Finding, Outcome, Reason, Report, Waived
from doctor.engine.smoke_summary import SmokeSummary
from doctor.engine.texts import restated
from doctor.report.formats.json import to_json_value
from doctor.report.redact.pseudonyms import Redactor
from doctor.smoke.model import Failure


def redacted_report(report: Report, key: bytes, aliases: Iterable[str] = ()) -> Report:
    """The report with pseudonyms; ``aliases`` are other names that its hosts go by."""
    return _ReportRedactor(Redactor(key, dict.fromkeys([*_hosts(report), *aliases]))).report(report)


def _hosts(report: Report) -> Iterator[str]:
    yield from report.hosts
    for outcome in report.outcomes:
        for finding in (*outcome.findings, *(waived.finding for waived in outcome.waived)):
            yield from finding.hosts
        yield from (*outcome.evaluated_hosts, *outcome.unknown, *outcome.skipped, *outcome.crashed)
    if report.smoke:
        yield from report.smoke.hosts
        yield from (host for failure in report.smoke.failures for way in failure.links + failure.parts for host in way)


class _ReportRedactor:
    def __init__(self, redactor: Redactor) -> None:
        self.host, self.template, self._replace = redactor.host, redactor.template, redactor.text

    def text(self, text: str) -> str:
        return restated(text, self._replace)

    def report(self, report: Report) -> Report:
        return msgspec.structs.replace(
            report,
            source=self.text(report.source),
            connection_words=(),
            smoke_words=(),
            hosts=self.hosts(report.hosts),
            outcomes=tuple(map(self.outcome, report.outcomes)),
            notes=self.texts(report.notes),
            hosts_unknown=self.text(report.hosts_unknown),
            smoke=self.summary(report.smoke) if report.smoke else None,
            ages={(check, host and self.host(host)): age for (check, host), age in report.ages.items()},
        )

    def hosts(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.host, names))

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.text, texts))

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
                Waived(self.finding(waived.finding), self.text(waived.reason), waived.until)
                for waived in outcome.waived
            ),
        )

    def finding(self, finding: Finding) -> Finding:
        replaced = Finding(self.template(finding.template), hosts=self.hosts(finding.hosts))
        replaced.values.update({name: self.value(to_json_value(value)) for name, value in finding.values.items()})
        return replaced.as_warning(finding.is_warning).following(finding.follows_from)

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value

    def summary(self, summary: SmokeSummary) -> SmokeSummary:
        return msgspec.structs.replace(
            summary,
            hosts={self.host(host): ranks for host, ranks in summary.hosts.items()},
            failures=tuple(map(self.failure, summary.failures)),
            placements=self.texts(summary.placements),
            notes=self.texts(summary.notes),
        )

    def failure(self, failure: Failure) -> Failure:
        by_rank = {
            name: {rank: self.text(text) for rank, text in getattr(failure, name).items()}
            for name in ("calls", "states", "stacks")
        }
        return msgspec.structs.replace(
            failure,
            links=tuple((self.host(source), self.host(destination)) for source, destination in failure.links),
            parts=tuple(tuple(map(self.host, part)) for part in failure.parts),
            text=self.text(failure.text),
            evidence=self.texts(failure.evidence),
            **by_rank,
        )
