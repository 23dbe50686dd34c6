from __future__ import annotations

import enum
import json
from ipaddress import IPv4Interface
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings

from doctor.engine.exit_code import exit_code
from doctor.engine.result import Finding, Report, Severity
from doctor.report.formats.json import encode, to_json_value
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.strategies import reports
from tests.schemas import schema_file

SCHEMA = json.loads(schema_file("report").read_text("utf-8"))
VALID = jsonschema.Draft202012Validator(SCHEMA)


def encoded(report: Report) -> Any:
    return json.loads(encode(report, exit_code(report)))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_lets_nothing_in_that_it_does_not_name() -> None:
    def objects(part: Any) -> list[Any]:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
        own_entries = [part] if isinstance(part, dict) and part.get("type") == "object" else []
        return own_entries + [result for entry in inner for result in objects(entry)]

    open_ones = [entry for entry in objects(SCHEMA) if entry.get("additionalProperties") is not False]
    assert open_ones == [SCHEMA["properties"]["texts"], SCHEMA["$defs"]["finding"]["properties"]["values"]]
    assert all(
        set(entry["required"]) == set(entry["properties"]) for entry in objects(SCHEMA) if entry not in open_ones
    )


@pytest.mark.parametrize("name", example_reports.ALL)
def test_every_kind_of_report_fits_the_schema(name: str) -> None:
    VALID.validate(encoded(example_reports.ALL[name]()))


@settings(max_examples=examples(60), deadline=None)
@given(reports())
def test_any_report_fits_the_schema_and_is_ascii(report: Report) -> None:
    data = encode(report, exit_code(report))
    VALID.validate(json.loads(data))
    assert data.isascii()
    msgspec.json.decode(data)  # a strict reader: no lone surrogates, no NaN
    assert not set(data) & set(range(32)) - {10}


@pytest.mark.parametrize(("key", "value"), [("verdict", "fine"), ("extra", 1), ("exit", 1), ("hosts", ["a", "a"])])
def test_the_schema_can_refuse(key: str, value: object) -> None:
    assert not VALID.is_valid({**encoded(example_reports.folded()), key: value})


def test_what_it_says_of_a_finding() -> None:
    document = encoded(example_reports.folded())
    (drivers,) = [outcome for outcome in document["outcomes"] if outcome["check"] == "driver-differs"]
    assert drivers["status"] == "failed"
    assert drivers["findings"][0] == {
        "message": "the driver is not the fleet's",
        "template": "the driver is not the fleet's",
        "hosts": ["node003"],
        "severity": "error",
        "follows_from": "",
        "values": {"observed": "23.0.1", "expected": "24.1.0"},
        "remedy": "",
        "ages": [],
    }
    assert (document["verdict"], document["exit"]) == ("failed", 10)
    assert document["counts"]["errors"] == 1


def test_hosts_with_one_reason_stand_together_and_none_are_the_fleet() -> None:
    (sudo,) = encoded(example_reports.unknown())["outcomes"][0]["unknown"]
    assert sudo == {
        "hosts": ["node001", "node002", "node003"],
        "reason": "sudo -n: a password is required",
        "root_cause": "",
    }
    table = encoded(example_reports.nothing())["outcomes"][0]
    assert table["skipped"] == [{"hosts": [], "reason": "no RankTable was given"}]
    assert table["evaluated_hosts"] == []


def test_two_runs_that_saw_the_same_differ_in_their_times_alone() -> None:
    sample_report = example_reports.folded()
    later = msgspec.structs.replace(
        sample_report, started="2026-11-21T00:00:00Z", seconds=9.0, outcomes=sample_report.outcomes[::-1]
    )
    lines = [encode(report, 10).splitlines() for report in (sample_report, later)]
    differ = [first.split(b":")[0].strip() for first, second in zip(*lines, strict=True) if first != second]
    assert differ == [b'"seconds"', b'"started"']


def test_a_verdict_that_an_option_made_stricter() -> None:
    report = example_reports.report(example_reports.outcome("cann-differs", Finding("x", hosts=("node001",))))
    assert json.loads(encode(report, 10))["verdict"] == "failed"
    assert json.loads(encode(report, 0))["verdict"] == "warnings"


def test_why_and_what_to_do_is_in_the_document_with_the_values_filled_in() -> None:
    conflict = Finding("{ip} is taken", hosts=("node001",), ip="10.0.0.1", npu=3)
    report = example_reports.report(
        example_reports.outcome("device-ip-conflict", conflict), example_reports.outcome("link-down")
    )
    outcomes = {
        outcome["check"]: outcome for outcome in json.loads(encode(report, 10, example_reports.CHECKS))["outcomes"]
    }
    assert outcomes["device-ip-conflict"]["why"].startswith("Two NPUs that answer to one address take each other's")
    (finding,) = outcomes["device-ip-conflict"]["findings"]
    command = "`/usr/local/Ascend/driver/tools/hccn_tool -i 3 -ip -s address <address> netmask MASK`"
    assert finding["remedy"] == f"Give one of them a free address: {command}."
    assert outcomes["link-down"]["why"] == ""
    without_page = json.loads(encode(report, 10))["outcomes"]
    assert {entry["why"] for entry in without_page} == {""}


def test_a_finding_without_a_page_has_its_own_advice() -> None:
    finding = Finding("x", hosts=("node001",), why="it matters", remedy="run `a b`")
    (outcome,) = json.loads(encode(example_reports.report(example_reports.outcome("link-down", finding)), 10))[
        "outcomes"
    ]
    assert (outcome["why"], outcome["findings"][0]["remedy"]) == ("it matters", "run `a b`")


class Number(enum.IntEnum):
    FIRST = 1


@pytest.mark.parametrize(
    ("value", "baseline"),
    [
        (IPv4Interface("10.0.0.1/24"), "10.0.0.1/24"),
        (Severity.ERROR, "error"),
        (Number.FIRST, 1),
        ({2, 1}, [1, 2]),
        ((1, ("a", None)), [1, ["a", None]]),
        (b"\xff\x00a", "\\xff\x00a"),
        (float("nan"), "nan"),
        ("\ud800", "\\ud800"),
        ({1: {Severity.ERROR: True}}, {"1": {"error": True}}),
        (range(2), "range(0, 2)"),
        (10**30, 10**30),
    ],
)
def test_every_value_can_be_held(value: object, baseline: object) -> None:
    assert to_json_value(value) == baseline
    json.dumps(to_json_value(value), allow_nan=False)


def test_a_value_that_holds_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    json.dumps(to_json_value(endless))


def test_a_check_that_found_nothing_is_one_line() -> None:
    """So that the document of a healthy host, with all checks, has less than 300 lines."""
    healthy = example_reports.healthy()
    lines = encode(healthy, 0).decode().splitlines()
    assert sum(line.strip().startswith('{"area": ') and '"status": ' in line for line in lines) == len(healthy.outcomes)
    assert len(lines) - len(healthy.outcomes) <= 50
