"""Since when a finding is there: what earlier runs allow to say, and what they do not."""

from __future__ import annotations

import msgspec
import pytest

from doctor.engine.report_parts import FindingAge
from doctor.engine.result import Finding, Report
from doctor.history.run_record import RunRecord, RunView, make_record
from doctor.session.run_history import ages
from tests.history.runs import CHECKS, DRIVER, LINK, at, record, report


def age(now: Report, *earlier: RunRecord, host: str = "n1") -> FindingAge | None:
    """The age of the finding on a host; ``earlier`` as they were run, oldest first."""
    (check,) = {outcome.check for outcome in now.outcomes}
    return ages(now, [RunView(run) for run in reversed(earlier)]).get((check, host))


def test_it_is_new_where_the_run_before_looked_and_found_nothing() -> None:
    assert age(report(3, n1="E", n2="."), record(1, n1=".", n2="."), record(2, n1=".", n2=".")) == FindingAge(
        "new", at(2)
    )


def test_it_is_there_since_the_first_run_of_a_row() -> None:
    earlier = [record(1, n1="."), record(2, n1="W"), record(3, n1="E")]
    assert age(report(4, n1="E"), *earlier) == FindingAge("present", at(2), 3)


def test_where_no_run_found_nothing_it_is_there_at_least_so_long() -> None:
    assert age(report(3, n1="E"), record(1, n1="E"), record(2, n1="E")) == FindingAge("present", at(1), 3, True)


def test_a_waived_finding_was_there() -> None:
    assert age(report(3, n1="E"), record(1, n1="."), record(2, n1="A")) == FindingAge("present", at(2), 2)


def test_one_that_comes_again_is_counted() -> None:
    earlier = [record(minute, n1=state) for minute, state in enumerate("E..E.", 1)]
    assert age(report(9, n1="E"), *earlier) == FindingAge("new", at(5), times=3)


@pytest.mark.parametrize("state", ["?", "s"])
def test_nothing_is_said_where_the_run_before_did_not_look(state: str) -> None:
    assert age(report(3, n1="E"), record(1, n1="."), record(2, n1=state)) is None
    assert age(report(3, n1="E"), record(2, n1=state)) is None
    assert age(report(3, n1="E")) is None


def test_a_row_of_findings_goes_over_runs_that_did_not_look() -> None:
    earlier = [record(1, n1="."), record(2, n1="E"), record(3, n1="?"), record(4, n1="E")]
    assert age(report(5, n1="E"), *earlier) == FindingAge("present", at(2), 3)


def test_runs_of_other_checks_or_other_hosts_say_nothing() -> None:
    others = [record(2, name=DRIVER, n1=".", n2="."), record(3, n2=".")]
    assert age(report(4, n1="E"), record(1, n1="."), *others) == FindingAge("new", at(1))
    assert age(report(4, n1="E"), *others) is None


def test_what_compares_hosts_counts_only_in_one_fleet() -> None:
    now = report(4, name=DRIVER, n1="E", n2=".", n3=".", n4=".")
    assert age(now, record(1, name=DRIVER, n1=".")) is None
    assert age(now, record(1, name=DRIVER, n1=".", n2=".", n3=".")) == FindingAge("new", at(1))


def test_a_finding_of_the_fleet_counts_only_for_the_same_hosts() -> None:
    def fleet_wide(minute: int, hosts: tuple[str, ...], present: bool) -> Report:
        created_report = report(minute, **dict.fromkeys(hosts, "."))
        findings = (Finding("the table has a hole"),) if present else ()
        return msgspec.structs.replace(
            created_report, outcomes=(msgspec.structs.replace(created_report.outcomes[0], findings=findings),)
        )

    same, other = (make_record(fleet_wide(1, hosts, False), CHECKS, "check") for hosts in (("n1", "n2"), ("n1", "n3")))
    now = fleet_wide(2, ("n1", "n2"), True)
    assert age(now, same, host="") == FindingAge("new", at(1))
    assert age(now, other, host="") is None


def test_localhost_is_another_host_on_another_machine() -> None:
    now = report(2, localhost="E")
    before = {name: RunView(make_record(report(1, localhost="."), CHECKS, "check", name)) for name in ("a", "b")}
    assert ages(now, [before["a"]], "a") == {(LINK, "localhost"): FindingAge("new", at(1))}
    assert ages(now, [before["b"]], "a") == {}
