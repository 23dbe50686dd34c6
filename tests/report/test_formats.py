"""The table of formats, and what -f asks for."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import msgspec
import pytest

from doctor.engine.result import Finding, Reason, Report
from doctor.report.formats import registry
from doctor.report.formats.registry import (
    FORMATS,
    REPORT_FORMATS,
    FormatTarget,
    RenderContext,
    parse_targets,
    render,
    render_bytes,
)
from doctor.report.redact.report import redacted_report
from tests.report import reports


def test_a_format_alone_goes_to_stdout() -> None:
    assert parse_targets(["json"]) == (FormatTarget("json"),)
    assert parse_targets(["json=-"]) == (FormatTarget("json"),)
    assert parse_targets(["md=a=b.md", "oneline", "junit=x"]) == (
        FormatTarget("md", "a=b.md"),
        FormatTarget("oneline"),
        FormatTarget("junit", "x"),
    )


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["xml"], f"'xml': expected {', '.join(FORMATS)}"),
        (["json="], "expected a file after the ="),
        (["json", "md"], "json and md are directed to stdout: expected one there"),
        (["json=a", "md=a"], "'a' is the output of two formats"),
        (["=x"], "'=x': expected human"),
    ],
)
def test_what_cannot_be_followed(arguments: list[str], output: str) -> None:
    with pytest.raises(ValueError, match=output[:30]) as refused:
        parse_targets(arguments)
    assert output in str(refused.value)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", reports.ALL)
def test_every_format_shows_every_report(name: str, kind: str) -> None:
    text = render(name, reports.ALL[kind](), RenderContext(10, reports.PAGES))
    assert text.endswith("\n")
    assert "\x1b]0" not in text
    assert render_bytes(name, reports.ALL[kind](), RenderContext(10, reports.PAGES)).decode("utf-8")


def test_an_exporter_that_is_another_user_can_read_its_file() -> None:
    assert {name: row.file_mode for name, row in REPORT_FORMATS.items() if row.file_mode != 0o600} == {
        "prometheus": 0o644
    }


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_says_what_it_is_for(name: str) -> None:
    report_format = REPORT_FORMATS[name]
    assert report_format.name == name
    assert report_format.purpose and "\n" not in report_format.purpose


def test_every_module_that_renders_is_in_the_registry() -> None:
    folder = Path(registry.__file__).parent
    modules = {
        path.stem
        for path in folder.glob("*.py")
        if "\ndef render(report: Report, context: RenderContext) -> str:\n" in path.read_text("utf-8")
    }
    assert modules == {row.module for row in REPORT_FORMATS.values()}


def large() -> Report:
    """A thousand hosts and 147 checks, with all that can go wrong."""
    hosts = tuple(f"node{number:04d}" for number in range(1000))
    addresses = {host: f"10.0.{number // 250}.{number % 250}" for number, host in enumerate(hosts)}
    outcomes = []
    for number, name in zip(range(147), itertools.cycle(reports.CHECKS), strict=False):
        blamed = hosts[number::3] if number % 7 == 0 else ()
        findings = [Finding("{ip} is taken", hosts=(host,), ip=addresses[host], observed=host) for host in blamed]
        blind = dict.fromkeys(hosts[number::11], Reason("no answer")) if number % 5 == 0 else {}
        outcome = reports.outcome(name, *findings, evaluated_hosts=hosts, unknown=blind)
        outcomes.append(msgspec.structs.replace(outcome, check=f"{name}-{number}"))
    return reports.report(*outcomes, hosts=hosts)


@pytest.mark.timeout(600)
def test_a_large_fleet_is_shown_in_seconds() -> None:
    """Each takes about a second of a CPU; of a busy machine the test may get a tenth of one."""
    report, slow = large(), {}
    for name in FORMATS:
        began = time.process_time()
        assert render(name, report, RenderContext(10, reports.PAGES))
        slow[name] = time.process_time() - began
    began = time.process_time()
    redacted_report(report, b"k" * 32)
    slow["redacted"] = time.process_time() - began
    assert max(slow.values()) < 10, slow
