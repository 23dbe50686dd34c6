"""Events: one JSON object a line, as it happens, and an end."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from doctor.engine.exit_code import exit_code
from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.result import Report
from doctor.report.formats.json import encode
from doctor.report.formats.jsonl import EventStream, render
from doctor.report.formats.registry import RenderContext
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.rendering import context
from tests.report.strategies import reports
from tests.schemas import schema_file

SCHEMA = json.loads(schema_file("report").read_text("utf-8"))
OUTCOME = jsonschema.Draft202012Validator({"$ref": "#/$defs/outcome", "$defs": SCHEMA["$defs"]})


def events(text: str) -> list[dict[str, Any]]:
    assert text.isascii()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_as_it_goes() -> None:
    lines: list[str] = []
    event_stream = EventStream(lines.append, now=lambda: "now")
    event_stream.start(["a", "b"], ["link-down"], "2 hosts")
    event_stream.host("a", HostRecord(Visit()))
    assert len(lines) == 2, "each event is written when it happens"
    event_stream.host("b", HostRecord(Visit("refused", "connection\nrefused\x1b[31m")))
    event_stream.stage("", 0.0)
    event_stream.stage("rendezvous", 1.31245)
    event_stream.finish(example_reports.small(), 0)
    start, first, other, begun, stage, end = events("".join(lines))
    assert (start["event"], start["schema"], start["hosts"]) == ("start", "doctor.events/1", ["a", "b"])
    assert first == {"event": "host", "time": "now", "host": "a", "trouble": "", "text": ""}
    assert (other["trouble"], other["text"]) == ("refused", "connection refused")
    assert (begun["name"], stage["name"], stage["seconds"]) == ("", "rendezvous", 1.312)
    assert (end["event"], end["verdict"], end["exit"], end["counts"]["passed"]) == ("end", "healthy", 0, 1)


def test_what_names_a_host_is_veiled() -> None:
    lines: list[str] = []
    event_stream = EventStream(lines.append, redact=lambda text: text.replace("secret", "x"))
    event_stream.start(["secret1"], source="secret")
    event_stream.host("secret1", HostRecord(Visit("refused", "secret1 refused")))
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize("name", example_reports.ALL)
def test_a_run_that_is_over(name: str) -> None:
    report = example_reports.ALL[name]()
    start, *outcomes, end = events(render(report, context(report, example_reports.CHECKS)))
    assert (start["event"], end["event"]) == ("start", "end")
    full = json.loads(encode(report, exit_code(report), example_reports.CHECKS))
    assert [record["check"] for record in outcomes] == [
        entry["check"] for entry in full["outcomes"] if entry["status"] not in ("passed", "skipped") or entry["waived"]
    ]
    assert end["counts"] == full["counts"]
    for outcome in outcomes:
        OUTCOME.validate({key: value for key, value in outcome.items() if key not in ("event", "time")})


@settings(max_examples=examples(30), deadline=None)
@given(reports())
def test_any_report_is_lines_of_json(report: Report) -> None:
    assert [event["event"] for event in events(render(report, RenderContext(12)))].count("end") == 1
