"""What digests show becomes outcomes of a report: a consequence stands where the check of its cause does not report."""

from __future__ import annotations

import pytest

from doctor.analysis.causes import resolve_causes
from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.catalog import load_checks
from doctor.engine.result import Report, Status
from doctor.watch.data.data_report import DataReport
from doctor.watch.data_outcomes import with_data

CATALOG = list(load_checks())
BEGIN = ValueDefect("smoke-parameters-not-broadcast", "begin", -1, (1,), "{who} holds other parameters")
LATER = ValueDefect("smoke-parameters-diverge", "data", 0, (1,), "after step {step} {who} holds other parameters")
HOSTS = {0: "a", 1: "b"}


def statuses(*ignored: str) -> dict[str, Status]:
    catalog = [check for check in CATALOG if check.name not in ignored]
    data = DataReport((BEGIN,), ((LATER, BEGIN.check),), (), (), (), 3)
    report = resolve_causes(with_data(Report("", ("a", "b"), ()), data, catalog, HOSTS), catalog)
    return {outcome.check: outcome.status for outcome in report.outcomes}


def test_a_consequence_is_unknown_beside_its_cause() -> None:
    assert statuses() == {BEGIN.check: Status.FAILED, LATER.check: Status.UNKNOWN}


@pytest.mark.parametrize("ignored", [BEGIN.check, LATER.check])
def test_what_is_left_of_one_fault_is_reported_as_an_error(ignored: str) -> None:
    (status,) = statuses(ignored).values()
    assert status is Status.FAILED


def test_a_defect_is_of_the_check_of_a_consequence_too() -> None:
    data = DataReport((BEGIN,), ((LATER, BEGIN.check),), (), (), (), 3)
    by_name = {check.name: check for check in CATALOG}
    assert data.concerns([by_name[LATER.check]]) and data.concerns([by_name[BEGIN.check]])
    assert not data.concerns([by_name["disk-full"]])
