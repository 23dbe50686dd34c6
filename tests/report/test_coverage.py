"""How much of the catalogue applied, and why not more."""

from __future__ import annotations

from doctor.engine.result import ERROR, Outcome, Report
from doctor.report.layout.coverage import coverage
from doctor.report.layout.tally import tally
from tests.report import reports as made


def covered(report: Report) -> str:
    return coverage(report, tally(report)).text


def test_all_apply() -> None:
    assert covered(made.report(made.outcome("somaxconn-low"))) == ""


def test_the_reasons() -> None:
    names = ("npu-missing", "gpu-driver-not-loaded")
    lacking = [Outcome(name, ERROR, "devices", "", skipped={"": "the host has none"}) for name in names]
    fleet = made.report(made.outcome("somaxconn-low"), *lacking)
    assert covered(fleet) == "1 of 3 checks applies: no accelerator"
    assert coverage(fleet, tally(fleet)).areas[-1].applied == 0
    one = made.report(made.outcome("somaxconn-low"), *lacking, hosts=("node001",))
    assert covered(one) == "1 of 3 checks applies: one host, no accelerator"
    assert covered(made.report(made.outcome("somaxconn-low"), lacking[0])) == "1 of 2 checks applies"
