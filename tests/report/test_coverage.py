"""How much of the catalogue applied, and why not more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from doctor.engine import language
from doctor.engine.result import ERROR, Finding, Outcome, Reason, Report
from doctor.report.formats.registry import RenderContext, render
from doctor.report.layout.tally import coverage, tally
from tests.report import reports


def covered(report: Report) -> str:
    return coverage(report, tally(report)).text


def test_all_apply() -> None:
    assert covered(reports.report(reports.outcome("somaxconn-low"))) == ""


def test_the_reasons() -> None:
    names = ("npu-missing", "gpu-driver-not-loaded")
    lacking = [Outcome(name, ERROR, "devices", "", skipped={"": "the host has none"}) for name in names]
    fleet = reports.report(reports.outcome("somaxconn-low"), *lacking)
    assert covered(fleet) == "1 of 3 checks applies: no accelerator found"
    assert coverage(fleet, tally(fleet)).areas[-1].applied == 0
    report = reports.report(reports.outcome("somaxconn-low"), *lacking, hosts=("node001",))
    assert covered(report) == "1 of 3 checks applies: one host, no accelerator found"
    assert covered(reports.report(reports.outcome("somaxconn-low"), lacking[0])) == "1 of 2 checks applies"


def test_a_smoke_run_of_one_rank_compared_it_with_no_other() -> None:
    lacking = Outcome("smoke-device-slow", ERROR, "smoke", "", skipped={"": "the devices stage was not asked for"})
    alone = reports.report(reports.outcome("somaxconn-low"), lacking, hosts=("node001",))
    for hosts, expected in (({"node001": 1}, ": one host, one rank"), ({"node001": 2}, ": one host")):
        report = msgspec.structs.replace(alone, smoke=reports.summary(hosts=hosts))
        assert covered(report) == f"1 of 2 checks applies{expected}"


SILENT = Reason("not reached: port 22 refuses connections", "host-unreachable")
HOSTS = ("node001", "node002", "node003")


def fleet(*dead: str) -> Report:
    """Of three hosts without an accelerator, ``dead`` do not answer."""
    alive = tuple(host for host in HOSTS if host not in dead)
    unknown = dict.fromkeys(dead, SILENT)
    return reports.report(
        reports.outcome("host-unreachable", Finding("no answer", hosts=dead), evaluated_hosts=HOSTS),
        reports.outcome("somaxconn-low", unknown=unknown, evaluated_hosts=alive, complete=bool(alive)),
        reports.outcome("pid-limit-low", unknown=unknown, evaluated_hosts=alive, complete=bool(alive)),
        Outcome(
            "npu-missing", ERROR, "devices", "", unknown=unknown, skipped=dict.fromkeys(alive, "the host has none")
        ),
        Outcome("rank-table-hole", ERROR, "ranks", "", skipped={"": "there is no rank table"}),
        hosts=HOSTS,
    )


@pytest.fixture
def chinese() -> Iterator[None]:
    language.select("zh", {})
    yield
    language.select("en", {})


NONE_ANSWERED = "1 of 5 checks judged: no host answered"
READ_BY_PEOPLE = ("plain", "md", "html")


def rendered(name: str, report: Report) -> str:
    return " ".join(render(name, report, RenderContext(10)).split())


@pytest.mark.parametrize("name", READ_BY_PEOPLE)
def test_hosts_that_never_answered_are_not_counted_as_judged(name: str) -> None:
    assert NONE_ANSWERED in rendered(name, fleet(*HOSTS))


@pytest.mark.parametrize("name", READ_BY_PEOPLE)
def test_a_host_of_three_that_never_answered_leaves_open_what_applies_to_it(name: str) -> None:
    assert "3 of 5 checks judged" in rendered(name, fleet("node002"))


@pytest.mark.parametrize("name", ["plain", "html"])
def test_the_same_in_chinese(name: str, chinese: None) -> None:
    assert "共 5 项检查，1 项有结果：没有主机应答" in rendered(name, fleet(*HOSTS))
    assert "共 5 项检查，3 项有结果" in rendered(name, fleet("node002"))


def test_brief_says_the_same() -> None:
    assert NONE_ANSWERED in render("plain", fleet(*HOSTS), RenderContext(10, brief=True))


def test_json_has_the_figures() -> None:
    figures = ("applied", "unknown", "unsettled", "checks")
    every, entry = (
        json.loads(render("json", report, RenderContext(10)))["coverage"]
        for report in (fleet(*HOSTS), fleet("node002"))
    )
    assert [every[name] for name in figures] == [1, 3, 0, 5]
    assert every["areas"][0] == {"area": "connectivity", "applied": 1, "checks": 1, "unknown": 0}
    assert [entry[name] for name in figures] == [3, 0, 1, 5]
    assert every["limits"] == ["no host answered"]
    assert entry["limits"] == []  # whether the dead host has an accelerator is not known


def test_a_crashed_check_has_judged_nothing() -> None:
    broken = Outcome("pid-limit-low", ERROR, "kernel", "", crashed={"": "KeyError"})
    assert covered(reports.report(reports.outcome("somaxconn-low"), broken)) == "1 of 2 checks judged"


def test_that_there_is_one_host_is_no_reason_for_what_is_unknown_of_it() -> None:
    broken = Outcome("pid-limit-low", ERROR, "kernel", "", crashed={"node001": "KeyError"})
    text = covered(reports.report(reports.outcome("somaxconn-low"), broken, hosts=("node001",)))
    assert text == "1 of 2 checks judged"
