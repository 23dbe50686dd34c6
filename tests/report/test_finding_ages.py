"""Since when a finding is there: one line in a text report, fields in JSON, nothing where no earlier run tells."""

from __future__ import annotations

import json

import msgspec
import pytest

from doctor.engine.report_parts import FindingAge
from doctor.engine.result import Report
from doctor.report.diff.load import decode
from doctor.report.formats.json import document, encode
from doctor.report.layout.finding_table import age_line, age_text
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.terminal import Terminal
from doctor.report.redact.report import redacted_report
from tests.report import rendering, reports

NOW = "2026-11-20T10:15:02Z"
NEW = FindingAge("new", "2026-11-20T09:05:00Z")
PRESENT = FindingAge("present", "2026-11-19T09:00:00Z", 3)


def aged(**ages: FindingAge) -> Report:
    """The folded report; ``ages`` of the check driver-differs by host."""
    return msgspec.structs.replace(reports.folded(), ages={("driver-differs", host): age for host, age in ages.items()})


@pytest.mark.parametrize(
    ("age", "message"),
    [
        (NEW, "new since 09:05 UTC"),
        (PRESENT, "for 3 runs (since 2026-11-19 09:00 UTC)"),
        (msgspec.structs.replace(PRESENT, at_least=True), "for 3 runs (since 2026-11-19 09:00 UTC or before)"),
        (msgspec.structs.replace(NEW, times=4), "new since 09:05 UTC, came 4 times"),
        (FindingAge("new", "\x1b[31m?"), "new since ?"),
    ],
)
def test_an_age_in_words(age: FindingAge, message: str) -> None:
    assert age_text(age, NOW) == message


def test_hosts_of_different_ages_are_told_apart() -> None:
    fleet, ages = Fleet(["a1", "a2", "a3"]), {("x", "a1"): NEW, ("x", "a2"): NEW, ("x", "a3"): PRESENT}
    assert age_line("x", ["a1", "a2"], ages, fleet, NOW) == "new since 09:05 UTC"
    both = "a[1-2]: new since 09:05 UTC; a3: for 3 runs (since 2026-11-19 09:00 UTC)"
    assert age_line("x", ["a1", "a2", "a3"], ages, fleet, NOW) == both
    assert age_line("x", ["a1", "a4"], ages, fleet, NOW) == "a1: new since 09:05 UTC"
    assert age_line("x", ["a4"], ages, fleet, NOW) == age_line("y", ["a1"], ages, fleet, NOW) == ""


def test_a_text_report_has_a_line_for_it_and_is_else_as_it_was() -> None:
    report, without = aged(node003=NEW), reports.folded()
    lines = rendering.plain(report, reports.PAGES).splitlines()
    assert [line for line in lines if "when: " in line] == ["        when: node003: new since 09:05 UTC"]
    assert [line for line in lines if "when: " not in line] == rendering.plain(without, reports.PAGES).splitlines()
    output = rendering.text(report, reports.PAGES, terminal=Terminal(tty=True, width=80))
    assert "    when node003: new since 09:05 UTC\n" in output


def test_json_has_the_fields_and_a_reader_gets_them_back() -> None:
    report = aged(node003=PRESENT)
    (driver,) = [entry for entry in document(report, 10)["outcomes"] if entry["check"] == "driver-differs"]
    by_host = {finding["hosts"][0]: finding["ages"] for finding in driver["findings"]}
    assert by_host.pop("node003") == [
        {"hosts": ["node003"], "state": "present", "since": PRESENT.since, "runs": 3, "at_least": False, "times": 1}
    ]
    assert not any(by_host.values())
    assert decode(encode(report, 10), "report").ages == report.ages


def test_a_document_of_an_earlier_version_has_none() -> None:
    full = document(aged(node003=PRESENT), 10)
    for outcome in full["outcomes"]:
        for finding in outcome["findings"]:
            del finding["ages"]
    assert decode(json.dumps(full).encode(), "report").ages == {}


def test_pseudonyms_keep_it() -> None:
    hidden = redacted_report(aged(node003=NEW), b"k" * 32)
    ((check, host),) = hidden.ages
    assert check == "driver-differs"
    assert host in hidden.hosts
    assert host != "node003"
    assert "node003" not in encode(hidden, 10).decode()
