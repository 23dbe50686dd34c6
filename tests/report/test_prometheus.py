"""Prometheus metrics, read back by the parser of Prometheus' own client."""

from __future__ import annotations

import threading

import msgspec
import pytest
from hypothesis import given, settings
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from doctor.engine.result import Finding, Report, Waived
from doctor.report.formats import prometheus
from doctor.report.formats.prometheus import render
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.rendering import context
from tests.report.strategies import reports


def samples(report: Report) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    result = {}
    for family in text_string_to_metric_families(render(report, context(report, example_reports.CHECKS))):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in result, key
            result[key] = sample.value
    return result


def value(report: Report, name: str, **labels: str) -> float | None:
    return samples(report).get((f"doctor_{name}", frozenset(labels.items())))


def test_the_run() -> None:
    report = example_reports.unknown()
    assert value(report, "run_exit_code") == 10
    assert value(report, "run_duration_seconds") == 4.12
    assert value(report, "run_timestamp_seconds") == 1795169702
    states = {state: value(report, "run_hosts", state=state) for state in ("healthy", "bad", "unknown")}
    assert states == {"healthy": 59, "bad": 1, "unknown": 4}


def test_the_checks_and_the_hosts() -> None:
    report = example_reports.folded()
    labels = {"check": "driver-differs", "area": "versions", "severity": "error"}
    assert value(report, "check_status", **labels, status="failed") == 1
    assert value(report, "check_status", **labels, status="passed") is None
    assert value(report, "check_findings", **labels) == 4
    assert value(report, "host_healthy", host="node003") == 0
    assert value(report, "host_healthy", host="node001") == 1
    assert value(report, "host_findings", host="node003", severity="error") == 1
    assert value(report, "host_findings", host="node003", severity="warning") == 1


def test_each_check_and_host_with_a_finding_and_counts_of_the_rest() -> None:
    report = example_reports.folded()
    assert value(report, "host_check_findings", host="node003", check="driver-differs", severity="error") == 1
    assert value(report, "host_check_findings", host="node001", check="driver-differs", severity="error") is None
    assert value(report, "host_check_findings_omitted") == 0
    labels = {"check": "driver-differs", "area": "versions"}
    assert value(report, "check_hosts", **labels, state="failed") == 4
    assert value(report, "check_hosts", **labels, state="evaluated") == 64
    assert value(report, "check_hosts", **labels, state="unknown") is None
    assert value(example_reports.unknown(), "host_checks", host="node001", state="unknown") == 3
    assert value(report, "host_checks", host="node001", state="unknown") == 0


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are kept, and what is left out is counted."""
    monkeypatch.setattr(prometheus, "MAX_PAIRS", 4)
    report = example_reports.folded()
    pairs = [labels for name, labels in samples(report) if name == "doctor_host_check_findings"]
    assert len(pairs) == 4
    assert all(("severity", "error") in labels for labels in pairs)
    assert (value(report, "host_check_findings_omitted") or 0) > 0


def test_why_and_what_to_do_are_labels() -> None:
    report = example_reports.report(
        example_reports.outcome("device-ip-conflict", Finding("x", hosts=("node001",), npu=3))
    )
    text = render(report, context(report, example_reports.CHECKS))
    (line,) = [line for line in text.splitlines() if line.startswith("doctor_check_advice")]
    assert 'fix="Give one of them a free address: `/usr/local/Ascend/driver/tools/hccn_tool -i 3 ' in line
    assert 'why="Two NPUs that answer to one address take each other' in line
    assert "doctor_check_advice{" not in render(report, context(report))


def test_what_is_waived() -> None:
    put = Waived(Finding("x", hosts=("node001",)), "known", "2026-12-31")
    assert value(example_reports.report(example_reports.outcome("link-down", waived=(put,))), "waived_findings") == 1


def test_a_time_that_is_none_is_left_out() -> None:
    report = msgspec.structs.replace(example_reports.healthy(), started="")
    assert value(report, "run_timestamp_seconds") is None


@pytest.mark.parametrize("name", example_reports.ALL)
def test_every_report_is_read(name: str) -> None:
    assert samples(example_reports.ALL[name]())


@settings(max_examples=examples(30), deadline=None)
@given(reports())
def test_any_report_is_read(report: Report) -> None:
    assert samples(report)


def test_it_leaves_no_thread_and_nothing_in_the_global_registry() -> None:
    before, threads = [family.name for family in REGISTRY.collect()], set(threading.enumerate())
    render(example_reports.folded(), context(example_reports.folded()))
    assert [family.name for family in REGISTRY.collect()] == before
    assert set(threading.enumerate()) <= threads
