"""A report that was written as JSON and read again is the same report."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.exit_code import exit_code, verdict
from doctor.engine.result import Finding, Report, Status, Waived
from doctor.report.diff.load import BadReport, decode
from doctor.report.formats.json import encode
from tests.examples import examples
from tests.report import rendering
from tests.report import reports as example_reports
from tests.report.strategies import reports
from tests.schemas import schema_file

VALID = jsonschema.Draft202012Validator(json.loads(schema_file("report").read_text("utf-8")))


def again(report: Report) -> Report:
    return decode(encode(report, exit_code(report)), "report.json")


@pytest.mark.parametrize("name", example_reports.ALL)
def test_it_is_shown_as_it_was(name: str) -> None:
    before = example_reports.ALL[name]()
    after = again(before)
    assert json.loads(encode(after, 10)) == json.loads(encode(before, 10))
    if "hostile" not in name:  # lone surrogates, which no file can hold, are spelled out
        assert rendering.plain(after, example_reports.PAGES) == rendering.plain(before, example_reports.PAGES)
        assert rendering.text(after, example_reports.PAGES) == rendering.text(before, example_reports.PAGES)


@settings(max_examples=examples(50), deadline=None)
@given(reports())
def test_any_report_written_again_is_the_same_document(report: Report) -> None:
    document = encode(report, exit_code(report))
    after = decode(document, "x")
    assert encode(after, exit_code(report)) == document
    assert (verdict(after), exit_code(after)) == (verdict(report), exit_code(report))


def test_a_name_that_is_no_text_keeps_its_place_among_the_hosts() -> None:
    finding = Finding("{ip} is wrong", hosts=("\ud800", "0"), ip="10.0.0.1")
    report = Report("here", ("\ud800", "0"), (example_reports.outcome("link-down", finding),))
    document = encode(report, 10)
    assert json.loads(document)["outcomes"][0]["findings"][0]["hosts"] == ["\\ud800", "0"]
    assert encode(decode(document, "x"), 10) == document


def test_waived_findings_stay_waived() -> None:
    put_up = Waived(
        Finding("the link of NPU {npu} is down", hosts=("node001",), npu=3), "spare part ordered", "2026-12-31"
    )
    report = example_reports.report(example_reports.outcome("link-down", waived=(put_up,)))
    after = again(report)
    VALID.validate(json.loads(encode(after, 0)))
    assert after.outcomes[0].waived == (put_up,)
    assert after.outcomes[0].status is Status.PASSED


def test_an_older_document_without_the_later_keys_is_read() -> None:
    document = json.loads(encode(example_reports.folded(), 10))
    for outcome in document["outcomes"]:
        del outcome["complete"], outcome["waived"]
    assert verdict(decode(json.dumps(document).encode(), "old")) is verdict(example_reports.folded())


def change(key: str, value: Any) -> bytes:
    return json.dumps({**json.loads(encode(example_reports.folded(), 10)), key: value}).encode()


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (b"", "not JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"a": ' * 20_000, "not JSON"),
        (b"[" * 20_000, "not JSON"),
        (b"1" * 10_000, "not JSON"),
        (b'{"schema": "doctor.run/1"}', "not a report"),
        (b'{"schema": "doctor.report/1"}', "missing required field"),
        (change("schema", "doctor.report/9"), "not a report"),
        (change("hosts", [1]), "$.hosts[0]"),
        (change("outcomes", [{"check": "\x1b[31m"}]), "$.outcomes[0]"),
        (change("smoke", {}), "failures"),
        (change("smoke", {"failures": 3}), "not a report"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(data: bytes, output: str) -> None:
    with pytest.raises(BadReport) as refused:
        decode(data, "file")
    assert output in str(refused.value)
    assert str(refused.value).startswith("file: ")
    assert str(refused.value).isprintable()


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_broken_document_never_ends_in_anything_else(data: st.DataObject) -> None:
    document = encode(example_reports.smoke_hang(), 10)
    place = data.draw(st.integers(0, len(document)))
    junk = data.draw(st.binary(max_size=4))
    try:
        decode(document[:place] + junk + document[place + len(junk) :], "x")
    except BadReport as refused:
        assert str(refused).isprintable()
