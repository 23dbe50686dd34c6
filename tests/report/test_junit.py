"""JUnit XML, read back by junitparser."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase
from junitparser.junitparser import FinalResult

from doctor.engine.result import Finding, Reason, Report, Waived
from doctor.report.formats.junit import render
from doctor.report.formats.registry import RenderContext
from tests.examples import examples
from tests.hosts.npu import HCCN_TOOL
from tests.report import reports as example_reports
from tests.report.rendering import context
from tests.report.strategies import reports


def cases(report: Report, code: int | None = None) -> dict[str, TestCase]:
    text = render(report, context(report, code=code))
    return {case.name: case for suite in JUnitXml.fromstring(text.encode()) for case in suite}


def result(report: Report, name: str, code: int | None = None) -> FinalResult | None:
    results = cases(report, code)[name].result
    return results[0] if results else None


@pytest.mark.parametrize("name", example_reports.ALL)
def test_every_check_is_a_case_of_its_area(name: str) -> None:
    report = example_reports.ALL[name]()
    results = cases(report)
    assert {name: case.classname for name, case in results.items()} == {
        outcome.check: outcome.area for outcome in report.outcomes
    }


def test_what_passed_passed_and_what_does_not_apply_is_skipped() -> None:
    report = example_reports.healthy()
    assert result(report, "link-down") is None
    skipped = result(report, "rank-table-hole")
    assert isinstance(skipped, Skipped)
    assert skipped.message == "no RankTable was given"


def test_findings_are_a_failure_with_hosts_and_values() -> None:
    results = result(example_reports.folded(), "driver-differs")
    assert isinstance(results, Failure)
    assert (results.message, results.type) == ("4 findings on 4 hosts", "error")
    assert "node003: the driver is not the fleet's (observed 23.0.1, expected 24.1.0)" in (results.text or "")


def test_a_failure_ends_with_why_and_what_to_do() -> None:
    names = ("node001", "node002", "node003", "node004", "node005")
    findings = [Finding("{ip} is taken", hosts=(name,), ip="10.0.0.1", npu=npu) for npu, name in enumerate(names)]
    report = example_reports.report(example_reports.outcome("device-ip-conflict", *findings))
    xml = JUnitXml.fromstring(render(report, context(report, example_reports.CHECKS)).encode())
    (text,) = (case.result[0].text for suite in xml for case in suite)
    why, first, *_, last = text.splitlines()[5:]
    assert why.startswith("why: Two NPUs that answer to one address")
    assert first.startswith(f"fix on node001: Give one of them a free address: `{HCCN_TOOL} -i 0 -ip ")
    assert last == "... and 2 more remedies (-f json has all)"
    alone = example_reports.report(example_reports.outcome("device-ip-conflict", findings[0]))
    assert "\nfix: Give one of them" in render(alone, context(alone, example_reports.CHECKS))


def test_a_warning_fails_where_the_exit_code_says_so() -> None:
    report = example_reports.report(example_reports.outcome("cann-differs", Finding("x", hosts=("node001",))))
    assert result(report, "cann-differs", 0) is None
    assert "warning: node001: x" in cases(report, 0)["cann-differs"].system_out
    assert isinstance(result(report, "cann-differs", 11), Failure)
    assert isinstance(result(report, "cann-differs", 10), Failure)


def test_what_is_unknown_is_never_green() -> None:
    report = example_reports.report(example_reports.outcome("link-down", unknown={"node001": Reason("no answer")}))
    results = result(report, "link-down")
    assert isinstance(results, Error)
    assert results.message == "unknown: no answer"
    assert isinstance(result(report, "link-down", 0), Error)


def test_a_dead_host_is_one_failure_and_what_is_unknown_for_its_sake_is_an_error() -> None:
    xml = JUnitXml.fromstring(render(example_reports.dead_host(), RenderContext(10)).encode())
    assert (xml.failures, xml.errors) == (1, len(example_reports.dead_host().outcomes) - 2)
    assert xml.skipped == 0


def test_a_crash_is_an_error_with_its_traceback() -> None:
    results = result(example_reports.crashed(), "cann-differs")
    assert isinstance(results, Error)
    assert results.type == "crashed"
    assert "KeyError" in (results.text or "")


def test_what_is_waived_is_told_and_passes() -> None:
    put = Waived(Finding("the link is down", hosts=("node001",)), "spare ordered", "2026-12-31")
    case = cases(example_reports.report(example_reports.outcome("link-down", waived=(put,))))["link-down"]
    assert not case.result
    assert "waived until 2026-12-31 (spare ordered): node001: the link is down" in case.system_out


def test_counts_times_and_properties() -> None:
    xml = JUnitXml.fromstring(render(example_reports.unknown(), RenderContext(10)).encode())
    assert (xml.tests, xml.failures, xml.errors, xml.time) == (5, 1, 4, 4.12)
    suite = next(iter(xml))
    assert suite.timestamp == "2026-11-20T10:15:02"
    properties = suite.properties()  # type: ignore[no-untyped-call]
    assert {entry.name: entry.value for entry in properties}["verdict"] == "failed"


@settings(max_examples=examples(30), deadline=None)
@given(reports())
def test_any_report_is_well_formed_and_comes_round(report: Report) -> None:
    text = render(report, context(report))
    ElementTree.fromstring(text.encode())
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", text)
    xml = JUnitXml.fromstring(text.encode())
    assert xml.tests == len(report.outcomes)
    data: bytes = xml.tostring()  # type: ignore[no-untyped-call]
    assert data.decode() == text.strip()
