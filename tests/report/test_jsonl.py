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
from doctor.report.formats.json import SCHEMA_FILE, encode
from doctor.report.formats.jsonl import EventStream, render
from doctor.report.formats.registry import RenderContext
from tests.examples import examples
from tests.report import reports as made
from tests.report.rendering import context
from tests.report.strategies import reports

SCHEMA = json.loads(SCHEMA_FILE.read_text("utf-8"))
OUTCOME = jsonschema.Draft202012Validator({"$ref": "#/$defs/outcome", "$defs": SCHEMA["$defs"]})


def events(text: str) -> list[dict[str, Any]]:
    assert text.isascii()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_as_it_goes() -> None:
    lines: list[str] = []
    told = EventStream(lines.append, now=lambda: "now")
    told.start(["a", "b"], ["link-down"], "2 hosts")
    told.host("a", HostRecord(Visit()))
    assert len(lines) == 2, "each event is written when it happens"
    told.host("b", HostRecord(Visit("refused", "connection\nrefused\x1b[31m")))
    told.stage("", 0.0)
    told.stage("rendezvous", 1.31245)
    told.finish(made.small(), 0)
    start, one, other, begun, stage, end = events("".join(lines))
    assert (start["event"], start["schema"], start["hosts"]) == ("start", "doctor.events/1", ["a", "b"])
    assert one == {"event": "host", "time": "now", "host": "a", "trouble": "", "text": ""}
    assert (other["trouble"], other["text"]) == ("refused", "connection refused")
    assert (begun["name"], stage["name"], stage["seconds"]) == ("", "rendezvous", 1.312)
    assert (end["event"], end["verdict"], end["exit"], end["counts"]["passed"]) == ("end", "healthy", 0, 1)


def test_what_names_a_host_is_veiled() -> None:
    lines: list[str] = []
    told = EventStream(lines.append, redact=lambda text: text.replace("secret", "x"))
    told.start(["secret1"], source="secret")
    told.host("secret1", HostRecord(Visit("refused", "secret1 refused")))
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize("name", made.ALL)
def test_a_run_that_is_over(name: str) -> None:
    report = made.ALL[name]()
    start, *outcomes, end = events(render(report, context(report, made.CHECKS)))
    assert (start["event"], end["event"]) == ("start", "end")
    whole = json.loads(encode(report, exit_code(report), made.CHECKS))
    assert [one["check"] for one in outcomes] == [
        one["check"] for one in whole["outcomes"] if one["status"] not in ("passed", "skipped") or one["waived"]
    ]
    assert end["counts"] == whole["counts"]
    for one in outcomes:
        OUTCOME.validate({key: value for key, value in one.items() if key not in ("event", "time")})


@settings(max_examples=examples(30), deadline=None)
@given(reports())
def test_any_report_is_lines_of_json(report: Report) -> None:
    assert [one["event"] for one in events(render(report, RenderContext(12)))].count("end") == 1
