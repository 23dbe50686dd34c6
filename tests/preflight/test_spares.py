"""Which hosts a job can start on when some are bad."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.check import Check
from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord, LaunchOptions, Run
from doctor.engine.result import Report
from doctor.engine.smoke_summary import SmokeSummary
from doctor.preflight.spares import FailureRules, SpareSelection, bad_hosts, select_hosts
from tests.preflight import runs
from tests.preflight.runs import ROOTS, judge_by, ours, real, run, with_facts

LOW = [*ROOTS, *ours(runs.gauge_low, runs.gauge_high)]


def healthy_hosts(report: Report, rules: FailureRules = FailureRules()) -> tuple[str, ...]:
    """The hosts that nothing is held against, in inventory order."""
    excluded = bad_hosts(report, rules)
    return tuple(host for host in report.hosts if host not in excluded)


def chosen(created_run: Run, need: int, checks: list[Check] = LOW, **more: Any) -> SpareSelection:
    judge = judge_by(checks)
    return select_hosts(created_run, judge(created_run), judge, need, **more)


def test_a_healthy_fleet_needs_no_spares() -> None:
    choice = chosen(run({"a": 5, "b": 5}), 2)
    assert (choice.hosts, choice.spares, choice.excluded, choice.code) == (("a", "b"), (), {}, 0)


def test_bad_hosts_are_left_out_and_the_first_healthy_ones_taken_in_their_order() -> None:
    choice = chosen(run({"d": 5, "c": 1, "b": 5, "a": 5, "e": 5}), 3)
    assert choice.hosts == ("d", "b", "a")
    assert choice.spares == ("e",)
    assert choice.excluded == {"c": ("gauge-low",)}
    assert choice.code == 0


def test_without_enough_healthy_hosts_the_runs_own_code_stands() -> None:
    choice = chosen(run({"a": 1, "b": 5}), 2)
    assert (choice.hosts, choice.enough, choice.code) == (("b",), False, Exit.FAILED)
    assert choice.obstacles == ("1 host is healthy, 2 needed",)


def test_a_fleet_that_is_too_small_is_never_enough_however_healthy() -> None:
    choice = chosen(run({"a": 5, "b": 5}), 3)
    assert (choice.enough, choice.code) == (False, Exit.FAILED)


def test_without_a_number_the_code_is_the_runs_and_all_healthy_hosts_are_named() -> None:
    choice = chosen(run({"a": 1, "b": 5, "c": 5}), 0)
    assert (choice.hosts, choice.excluded, choice.code) == (("b", "c"), {"a": ("gauge-low",)}, Exit.FAILED)


@pytest.mark.parametrize("trouble", ["budget", "refused", "no-python"])
@pytest.mark.parametrize("on_unknown", ["fail", "warn", "ok"])
def test_a_host_that_gave_no_answer_is_never_among_the_healthy(trouble: str, on_unknown: Any) -> None:
    choice = chosen(run({"a": 5, "b": trouble, "c": 5}), 2, on_unknown=on_unknown)
    assert (choice.hosts, set(choice.excluded), choice.code) == (("a", "c"), {"b"}, 0)


def test_what_waits_for_a_host_that_was_not_reached_is_told_by_that_alone() -> None:
    report = judge_by(LOW)(run({"a": 5, "b": "refused", "c": "budget", "d": "no-python"}))
    assert bad_hosts(report) == {"b": ["host-unreachable"], "c": ["host-unreachable"], "d": ["python3-missing"]}


def test_an_unknown_makes_a_host_bad_unless_it_is_forgiven() -> None:
    created_run = run({"a": 5, "b": 5})
    unread = HostRecord(Visit(), {"Gauge": {"/gauge": Output(out="five")}})
    report = judge_by(LOW)(msgspec.structs.replace(created_run, hosts={**created_run.hosts, "b": unread}))
    assert healthy_hosts(report) == ("a",)
    assert healthy_hosts(report, FailureRules(on_unknown="ok")) == ("a", "b")
    assert healthy_hosts(report, FailureRules(on_unknown="warn", strict=True)) == ("a",)


def test_a_check_that_crashed_on_a_host_is_never_forgiven() -> None:
    choice = chosen(run({"a": 5, "b": 8, "c": 5}), 2, ours(runs.gauge_crashes), on_unknown="ok")
    assert (choice.hosts, choice.excluded, choice.code) == (("a", "c"), {"b": ("gauge-crashes",)}, 0)


@pytest.mark.parametrize("rules", [{}, {"fail_on": "warning"}, {"strict": True}])
def test_a_warning_makes_a_host_bad_where_warnings_fail_the_run(rules: Any) -> None:
    choice = chosen(run({"a": 12, "b": 5, "c": 5}), 2, **rules)
    assert choice.code == 0
    assert choice.hosts == (("b", "c") if rules else ("a", "b"))


def test_of_two_that_are_in_conflict_both_are_left_out() -> None:
    """Which of them is wrong is not known, and the other one would be taken on luck."""
    conflict = {"a": 6, "b": 6, "c": 5, "d": 5}
    checks = ours(runs.gauge_repeated)
    assert chosen(run(conflict), 2, checks).hosts == ("c", "d")
    assert chosen(run(conflict), 3, checks).code == Exit.FAILED


def test_the_rest_is_judged_again_and_a_new_minority_goes_too() -> None:
    checks = ours(runs.gauge_differs, runs.gauge_low)
    choice = chosen(run({"a": 5, "b": 5, "c": 5, "d": 6, "e": 1}), 3, checks)
    assert (choice.hosts, choice.code) == (("a", "b", "c"), 0)
    tie = chosen(run({"a": 5, "b": 5, "c": 6, "d": 6, "e": 1}), 2, checks)
    assert (tie.code, tie.obstacles) == (Exit.FAILED, ("0 hosts are healthy, 2 needed",))


def test_what_blames_no_host_is_cured_only_if_it_goes_with_those_that_are_blamed() -> None:
    checks = ours(runs.gauge_seven, runs.gauge_low, runs.gauge_repeated)
    uncured = chosen(run({"a": 7, "b": 5, "c": 1}), 2, checks)
    assert (uncured.hosts, uncured.enough, uncured.code) == (("a", "b"), True, Exit.FAILED)
    assert chosen(run({"a": 7, "d": 7, "b": 5, "c": 5}), 2, checks).code == 0
    assert chosen(run({"b": 5, "c": 5, "a": 7}), 2, checks).hosts == ("b", "c")


def test_what_was_unknown_for_the_sake_of_a_bad_host_is_known_without_it() -> None:
    choice = chosen(run({"a": 4, "b": 5, "c": 5}), 2, ours(runs.gauge_low, runs.gauge_unsure))
    assert (choice.hosts, choice.code) == (("b", "c"), 0)


def test_a_fleet_that_is_unknown_as_a_whole_cannot_start() -> None:
    choice = chosen(run({"a": 5, "b": 5, "c": 4}), 3, ours(runs.gauge_unsure))
    assert choice.code == Exit.UNKNOWN


def test_nothing_looked_at_is_not_enough() -> None:
    choice = chosen(run({"a": 5, "b": 5}), 1, real("device-ip-conflict"))
    assert choice.code == Exit.UNKNOWN


@pytest.mark.parametrize("output", ["b", "b.cluster", "10.0.0.2"])
def test_the_jobs_master_must_be_a_host_that_stays(output: str) -> None:
    names = {
        host: {"own": host, "names": {other: {"addresses": [f"10.0.0.{n}"]} for n, other in enumerate("abc", 1)}}
        for host in "abc"
    }
    created_run = run({"a": 5, "b": 1, "c": 5}, launch=LaunchOptions(environ={"MASTER_ADDR": output}))
    created_run = with_facts(created_run, HostNames={host: {**name, "fleet": 3} for host, name in names.items()})
    choice = chosen(created_run, 2)
    assert choice.code == Exit.FAILED
    (line,) = choice.obstacles
    assert "excluded; expected MASTER_ADDR to be one of the remaining hosts" in line
    assert output in line
    assert chosen(created_run, 1).code == Exit.FAILED


def test_a_master_that_is_not_among_the_first_is_taken_before_others() -> None:
    choice = chosen(run({"a": 5, "b": 5, "c": 5}, launch=LaunchOptions(environ={"MASTER_ADDR": "c"})), 2)
    assert (choice.hosts, choice.spares, choice.code) == (("a", "c"), ("b",), 0)


def test_a_master_that_is_nobody_as_far_as_we_know_stops_the_start() -> None:
    created_run = run({"a": 5, "b": 1}, launch=LaunchOptions(environ={"MASTER_ADDR": "203.0.113.9"}))
    choice = chosen(created_run, 1)
    assert choice.code == Exit.FAILED
    assert "is not a known host of the job" in choice.obstacles[0]
    assert chosen(run({"a": 5}, launch=created_run.launch), 1).code == 0, "nobody is left out"


def test_a_host_that_calls_itself_as_the_job_does_its_master_is_not_it() -> None:
    created_run = run({"a": 5, "b": 1, "c": 5}, launch=LaunchOptions(environ={"MASTER_ADDR": "trainmaster"}))
    facts = {host: {"own": "trainmaster" if host == "c" else host, "names": {}, "fleet": 3} for host in "abc"}
    choice = chosen(with_facts(created_run, HostNames=facts), 2)
    assert choice.code == Exit.FAILED
    assert "is not a known host of the job" in choice.obstacles[0]


def test_with_the_loopback_address_every_host_is_its_own_master() -> None:
    created_run = run({"a": 5, "b": 1}, launch=LaunchOptions(environ={"MASTER_ADDR": "127.0.0.1"}))
    assert chosen(created_run, 1).code == 0


class TestSmokeRun:
    """It was made with all hosts."""

    checks = [*LOW, *real("smoke-rank-died")]

    def report(self, created_run: Run, ended: str = "complete") -> Report:
        """As if a smoke run had been made that found nothing."""
        report = judge_by(self.checks)(msgspec.structs.replace(created_run, smoke={}))
        outcomes = tuple(
            msgspec.structs.replace(outcome, evaluated_hosts=report.hosts, complete=True, skipped={})
            if outcome.area == "smoke"
            else outcome
            for outcome in report.outcomes
        )
        summary = SmokeSummary("gloo", dict.fromkeys(report.hosts, 1), ended, 1.0, 0.1)  # type: ignore[arg-type]
        return msgspec.structs.replace(report, outcomes=outcomes, smoke=summary)

    def test_one_that_found_nothing_holds_for_a_part_of_its_hosts(self) -> None:
        created_run = run({"a": 5, "b": 1, "c": 5}, smoke={"some": "run"})
        choice = select_hosts(created_run, self.report(created_run), judge_by(self.checks), 2)
        assert (choice.hosts, choice.code) == (("a", "c"), 0)
        (smoke,) = (outcome for outcome in choice.report.outcomes if outcome.area == "smoke")
        assert smoke.evaluated_hosts == ("a", "c")

    def test_one_that_found_something_says_nothing_of_the_rest(self) -> None:
        created_run = run({"a": 5, "b": 1, "c": 5}, smoke={"some": "run"})
        choice = select_hosts(created_run, self.report(created_run, ended="trouble"), judge_by(self.checks), 2)
        assert choice.code == Exit.FAILED
        (smoke,) = (outcome for outcome in choice.report.outcomes if outcome.area == "smoke")
        assert "it has to run again without b" in smoke.unknown[""].text


@given(
    st.lists(st.sampled_from([1, 4, 5, 5, 5, 5, 6, 7, 8, 12, "budget", "refused"]), min_size=1, max_size=9),
    st.integers(1, 9),
    st.sampled_from(
        [FailureRules(), FailureRules(strict=True), FailureRules(fail_on="warning"), FailureRules(on_unknown="ok")]
    ),
)
def test_zero_only_when_the_chosen_hosts_are_enough_and_healthy_by_themselves(
    numbers: list[Any], need: int, rules: FailureRules
) -> None:
    functions = (runs.gauge_low, runs.gauge_high, runs.gauge_repeated, runs.gauge_differs, runs.gauge_seven)
    judge = judge_by([*ROOTS, *ours(*functions, runs.gauge_unsure, runs.gauge_crashes)])
    created_run = run({f"h{number}": response for number, response in enumerate(numbers)})
    full = judge(created_run)
    options: dict[str, Any] = msgspec.structs.asdict(rules)
    choice = select_hosts(created_run, full, judge, need, **options)
    assert not set(choice.hosts) & choice.excluded.keys()
    assert sorted((*choice.hosts, *choice.spares, *choice.excluded)) == sorted(created_run.hosts)
    if choice.code == 0:
        assert len(choice.hosts) == need
        part = msgspec.structs.replace(created_run, hosts={host: created_run.hosts[host] for host in choice.hosts})
        assert exit_code(judge(part), **options) == 0
    elif len(healthy_hosts(full, rules)) == len(numbers) >= need:
        assert exit_code(full, **options) != 0, "a healthy run has enough healthy hosts"
