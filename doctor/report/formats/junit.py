"""The report as JUnit XML: a CI system shows each check as a test case, by area.

A check with findings is a failure (one of severity warning only when the exit code says that warnings count); one that
is unknown on any host, for any reason and with any options, or that crashed, is an error. What does not apply is
skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from doctor.engine.check import Check
from doctor.engine.exit_code import Exit, verdict
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding, Outcome, Report, Severity, fill_template
from doctor.engine.texts import filled
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.failures import filled_fix, fix_template, proof_lines, why_text
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.formatting import clean, count_noun, unwrap_lines
from doctor.report.layout.host_names import Fleet

Result = Failure | Error | Skipped
MAX_CASE_LINES = 1000
"""Lines of one test case."""
MAX_REMEDIES = 3
"""Remedies of one test case that differ."""


def render(report: Report, context: RenderContext) -> str:
    """The document."""
    code = context.code
    cases = _CaseBuilder(report, code, context.checks_by_name)
    xml = JUnitXml("doctor")
    for area, outcomes in groupby(sort_by_area(report.outcomes), attrgetter("area")):
        suite = TestSuite(clean(area))
        if re.match(r"\d{4}-\d\d-\d\dT[\d:]{8}", report.started):
            suite.timestamp = report.started[:19]
        for name, value in _properties(report, code):
            suite.add_property(name, value)
        suite.add_testcases(list(map(cases.case, outcomes)))
        xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    xml.time = round(report.seconds, 3) if 0 <= report.seconds < 1e9 else 0.0
    data: bytes = xml.tostring()  # type: ignore[no-untyped-call]
    return data.decode("utf-8") + "\n"


def _properties(report: Report, code: int) -> Iterator[tuple[str, str]]:
    yield "verdict", verdict(report, code).value
    yield "exit", str(int(code))
    yield "hosts", str(len(report.hosts))
    yield "source", clean(report.source)
    for note in report.notes:
        yield "note", clean(note, 1000)


class _CaseBuilder:
    def __init__(self, report: Report, code: int, checks: Mapping[str, Check]) -> None:
        self.fleet, self.code, self.checks = Fleet.of_report(report, 400), code, checks

    def case(self, outcome: Outcome) -> TestCase:
        case = TestCase(clean(outcome.check), clean(outcome.area), 0.0)
        result = self.result(outcome)
        lines = [*self.findings(outcome), *self.unknown(outcome), *self.crashed(outcome), *self.waived(outcome)]
        lines += self.skipped(outcome) if result is None else ()
        rest = [filled("... and {0} more lines", len(lines) - MAX_CASE_LINES)] if len(lines) > MAX_CASE_LINES else []
        text = "\n".join([*lines[:MAX_CASE_LINES], *rest, *self.advice(outcome)])
        if result is not None:
            result.text = text
            case.result = [result]
        elif text:
            case.system_out = text
        return case

    def result(self, outcome: Outcome) -> Result | None:
        counts = outcome.found_severity is Severity.ERROR or self.code in (Exit.FAILED, Exit.WARNINGS)
        if outcome.findings and counts:
            hosts = {host for finding in outcome.findings for host in finding.hosts}
            where = filled(" on {0}", count_noun(len(hosts), "host")) if hosts else ""
            return Failure(f"{count_noun(len(outcome.findings), 'finding')}{where}", outcome.found_severity.value)
        if outcome.crashed:
            return Error("the check crashed", "crashed")
        if outcome.unknown:
            return Error(
                filled("unknown: {0}", clean(next(iter(outcome.unknown.values())).text) or "no reason given"), "unknown"
            )
        if outcome.findings or outcome.complete:
            return None
        return Skipped(clean(next(iter(outcome.skipped.values()), "")) or "does not apply", "skipped")

    def findings(self, outcome: Outcome) -> Iterator[str]:
        for finding in outcome.findings:
            yield f"{outcome.severity_of(finding).value}: {self.finding_text(finding)}"
            yield from (f"  {label}: {line}" for label, line in proof_lines(finding))

    def advice(self, outcome: Outcome) -> Iterator[str]:
        """Why, and what to do: the remedies that differ, each with its hosts."""
        check, findings = self.checks.get(outcome.check), outcome.findings
        yield from (
            filled("why: {0}", clean(line, 2000)) for line in unwrap_lines(why_text(check, findings)) if findings
        )
        hosts_by_remedy: dict[tuple[str, ...], list[str]] = {}
        for finding in findings:
            hosts = self.fleet.ordered(finding.hosts)
            lines = filled_fix(fix_template(check, (finding,)), finding, hosts, self.fleet)
            hosts_by_remedy.setdefault(tuple(lines), []).extend(hosts)
        for remedy, named in list(hosts_by_remedy.items())[:MAX_REMEDIES]:
            head = f"fix{self.on_hosts(named) if len(hosts_by_remedy) > 1 else ''}: "
            yield from (f"{'' if number else head}{line}" for number, line in enumerate(remedy))
        if len(hosts_by_remedy) > MAX_REMEDIES:
            yield filled("... and {0} more remedies (-f json has all)", len(hosts_by_remedy) - MAX_REMEDIES)

    def waived(self, outcome: Outcome) -> Iterator[str]:
        for waived in outcome.waived:
            until, reason = clean(waived.until, 40), clean(waived.reason)
            yield filled("waived until {0} ({1}): {2}", until, reason, self.finding_text(waived.finding))

    def finding_text(self, finding: Finding) -> str:
        values = self.fleet.format_values(finding.values)
        hosts = f"{self.fleet.fold(self.fleet.ordered(finding.hosts))}: " if finding.hosts else ""
        more = ", ".join(f"{name} {values[name]}" for name in ("observed", "expected") if name in values)
        return f"{hosts}{clean(fill_template(finding.template, values), 2000)}{f' ({more})' if more else ''}"

    def unknown(self, outcome: Outcome) -> Iterator[str]:
        hosts = lists_by_key((reason.text, host) for host, reason in outcome.unknown.items())
        for text, named in hosts.items():
            yield f"unknown{self.on_hosts(named)}: {clean(text)}"

    def skipped(self, outcome: Outcome) -> Iterator[str]:
        """The hosts that a check which came to a result does not apply to."""
        for text in dict.fromkeys(outcome.skipped.values()):
            named = [host for host, reason in outcome.skipped.items() if reason == text and host]
            yield filled("does not apply{0}: {1}", self.on_hosts(named) if named else "", clean(text))

    def crashed(self, outcome: Outcome) -> Iterator[str]:
        for host, trace in outcome.crashed.items():
            yield f"crashed{self.on_hosts([host])}:"
            yield from (f"  {' ' * (len(line) - len(line.lstrip(' ')))}{clean(line)}" for line in trace.splitlines())

    def on_hosts(self, hosts: Sequence[str]) -> str:
        named = self.fleet.ordered(hosts)
        return filled(" on {0}", self.fleet.fold(named)) if named else ""
