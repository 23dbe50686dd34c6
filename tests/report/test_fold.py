from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from doctor.engine.result import Finding, Outcome, Reason, Report, Severity
from doctor.engine.sanitize import number_ranges
from doctor.engine.smoke_summary import Failure, SmokeSummary
from doctor.report.layout.fold import fold, sort_by_area
from doctor.report.layout.group_findings import grouped
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import tally
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.strategies import reports

FLEET = Fleet(example_reports.HOSTS)
REFUSED = Finding("{text}", hosts=(example_reports.DEAD,), text="refused")


def test_equal_findings_on_many_hosts_are_one_group() -> None:
    (group,) = grouped([Finding("off", hosts=(host,), observed=0) for host in ("node002", "node001")], FLEET)
    assert group.hosts == ("node001", "node002")
    assert group.count == 2


def test_other_values_are_other_groups_the_largest_first() -> None:
    findings = [
        Finding("off", hosts=(host,), observed=observed)
        for host, observed in (("node001", 1), ("node002", 2), ("node003", 2))
    ]
    assert [group.hosts for group in grouped(findings, FLEET)] == [("node002", "node003"), ("node001",)]


def test_one_and_true_are_not_the_same_value() -> None:
    assert len(grouped([Finding("x", observed=1), Finding("x", observed=True), Finding("x", observed="1")], FLEET)) == 3


@pytest.mark.parametrize(
    ("blamed", "is_explained"),
    [(["node001"], True), (["node002"], True), (["node003"], False)],
)
def test_a_pair_hangs_on_a_cause_at_one_of_its_ends(blamed: list[str], is_explained: bool) -> None:
    pair = Finding("lost", hosts=("node001", "node002"), cut_parts=[["node001"], ["node002"]])
    pair.follows_from = "rule"
    outcomes = (
        Outcome("rule", Severity.ERROR, "network", "", (Finding("drops", hosts=tuple(blamed)),), complete=True),
        Outcome("pair", Severity.ERROR, "network", "", (pair,), complete=True),
    )
    report = msgspec.structs.replace(example_reports.folded(), outcomes=outcomes)
    failures = {failure.outcome.check: failure.following for failure in fold(report).failures}
    assert set(failures) == ({"rule"} if is_explained else {"rule", "pair"})
    assert [other.check for other in failures["rule"]] == (["pair"] if is_explained else [])


def test_sets_have_no_order() -> None:
    some, same = {8, 0}, {0, 8}
    assert len(grouped([Finding("x", observed=some), Finding("x", observed=same)], FLEET)) == 1


def test_a_remedy_that_names_its_own_host_does_not_part_the_hosts() -> None:
    def refused(host: str, hint: str, **more: object) -> Finding:
        return Finding("{text}", hosts=(host,), text="login refused", hint=hint, **more)

    alike = [refused("node1", "ssh-copy-id node1"), refused("node10", "ssh-copy-id node10")]
    assert len(grouped(alike, FLEET)) == 1
    assert len(grouped([*alike, refused("node1", "ssh-copy-id node10")], FLEET)) == 2
    findings = [refused("node1", "", observed="node1"), refused("node10", "", observed="node10")]
    assert len(grouped(findings, FLEET)) == 2


def test_devices_of_a_host_that_say_the_same_become_a_range() -> None:
    findings = [Finding("NPU {npu} is down", hosts=("node001",), npu=npu, expected="up") for npu in (0, 1, 2, 5)]
    (group,) = grouped(findings, FLEET)
    assert str(group.finding) == "NPU 0-2,5 is down"
    assert group.example.values["npu"] == 0
    assert group.count == 4


def test_devices_with_other_values_do_not() -> None:
    findings = [Finding("x", hosts=("node001",), npu=npu, observed=npu) for npu in range(3)]
    assert len(grouped(findings, FLEET)) == 3


def test_ranges() -> None:
    assert number_ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_a_dead_host_is_one_finding_and_no_unknowns() -> None:
    folded = fold(example_reports.dead_host())
    assert folded.unknown == ()
    assert folded.first_failure is not None
    assert folded.first_failure.outcome.check == "host-unreachable"
    assert len(folded.first_failure.consequences) == folded.counts.hidden == 7
    assert folded.counts.unknown == 0


def test_a_consequence_is_shown_when_its_root_cause_was_not_found_there() -> None:
    blind = {"node002": Reason("not reached", "host-unreachable")}
    for root in (
        [],
        [example_reports.outcome("host-unreachable")],
        [example_reports.outcome("host-unreachable", REFUSED)],
    ):
        folded = fold(example_reports.report(*root, example_reports.outcome("link-down", unknown=blind)))
        assert [(gap.hosts, gap.checks) for gap in folded.unknown] == [(("node002",), ("link-down",))]


def test_a_chain_of_consequences_leads_to_its_root() -> None:
    chain = example_reports.report(
        example_reports.outcome("host-unreachable", REFUSED),
        example_reports.outcome(
            "driver-differs", unknown={example_reports.DEAD: Reason("not reached", "host-unreachable")}
        ),
        example_reports.outcome(
            "link-down", unknown={example_reports.DEAD: Reason("no driver known", "driver-differs")}
        ),
    )
    folded = fold(chain)
    assert folded.unknown == ()
    assert folded.first_failure is not None
    assert folded.first_failure.consequences == ("driver-differs", "link-down")


def test_a_check_that_stopped_itself_is_none_of_the_others() -> None:
    """A rank that did not join: the check that says so is unknown for the rest of the run, too."""
    reason = {example_reports.DEAD: Reason("not reached", "rank-blocked")}
    alone = example_reports.report(
        example_reports.outcome("rank-blocked", Finding("blocked", hosts=(example_reports.DEAD,)), unknown=reason),
        example_reports.outcome("link-down", unknown=reason),
    )
    failure = fold(alone).first_failure
    assert failure is not None
    assert failure.consequences == ("link-down",)


def test_a_circle_of_consequences_ends() -> None:
    circle = example_reports.report(
        example_reports.outcome("driver-differs", unknown={"node001": Reason("a", "link-down")}),
        example_reports.outcome("link-down", unknown={"node001": Reason("b", "driver-differs")}),
    )
    assert len(fold(circle).unknown) == 2


def test_what_is_wrong_with_the_job_explains_what_the_fleet_lacks() -> None:
    table = example_reports.report(
        example_reports.outcome("rank-table-hole", Finding("no rank"), evaluated_hosts=()),
        example_reports.outcome(
            "rank-table-ports-wrong", evaluated_hosts=(), complete=False, unknown={"": Reason("x", "rank-table-hole")}
        ),
    )
    assert fold(table).unknown == ()


def test_one_reason_over_many_checks_is_one_gap() -> None:
    gaps = fold(example_reports.unknown()).unknown
    assert [len(gap.checks) for gap in gaps] == [3, 2]
    assert gaps[0].hosts == example_reports.HOSTS[:3]


def test_what_hides_most_comes_first_then_errors() -> None:
    first = fold(example_reports.folded()).first_failure
    assert first is not None
    assert first.outcome.check == "driver-differs"


@pytest.mark.parametrize("ended", [True, False])
def test_what_ended_a_training_comes_before_what_its_ranks_showed_but_not_before_a_cause_on_its_hosts(
    ended: bool,
) -> None:
    def found(check: str, area: str, *blocked: str) -> list[Outcome]:
        finding = Finding("x", hosts=(FLEET.hosts[0],))
        unknown = {FLEET.hosts[0]: Reason("blocked", root_cause=check)}
        hidden = [Outcome(name, Severity.ERROR, area, "", unknown=unknown) for name in blocked]
        return [Outcome(check, Severity.ERROR, area, "", (finding,), FLEET.hosts), *hidden]

    outcomes = (
        *found("loopback-down", "connectivity", "peer-unreachable", "net-unreachable"),
        *found("smoke-gradient-summed", "smoke", "smoke-parameters-diverge"),
        *found("smoke-rank-died", "smoke"),
    )
    failures = (Failure("dead", (1,)),) if ended else ()
    smoke = SmokeSummary("gloo", {}, "trouble", 0.0, 0.0, failures=failures)
    folded = fold(Report("", FLEET.hosts, outcomes, smoke=smoke))
    names = [failure.outcome.check for failure in folded.failures]
    assert names[0] == "loopback-down"
    assert names[1:] == ["smoke-rank-died", "smoke-gradient-summed"][:: 1 if ended else -1]


def test_areas_are_in_the_order_in_which_a_job_meets_them() -> None:
    shuffled = [*reversed(example_reports.folded().outcomes)]
    assert [outcome.check for outcome in sort_by_area(shuffled)] == [
        outcome.check for outcome in sort_by_area(example_reports.folded().outcomes)
    ]
    assert [area.name for area in fold(example_reports.healthy()).areas][:3] == ["connectivity", "kernel", "addresses"]


@settings(max_examples=examples(40), deadline=None)
@given(reports())
def test_each_check_is_counted_once(report: Report) -> None:
    counts = msgspec.to_builtins(tally(report))
    assert counts == msgspec.to_builtins(fold(report).counts)
    kinds = ("passed", "errors", "warnings", "crashed", "unknown", "hidden", "skipped", "waived")
    assert sum(counts[kind] for kind in kinds) == counts["checks"] == len(report.outcomes)


@settings(max_examples=examples(40), deadline=None)
@given(reports())
def test_nothing_is_lost(report: Report) -> None:
    folded = fold(report)
    failures = {failure.outcome.check: failure for area in folded.areas for failure in area.failures}
    for outcome in report.outcomes:
        if outcome.findings:
            assert sum(group.count for group in failures[outcome.check].groups) == len(outcome.findings)
        gaps = [gap for gap in folded.skipped if outcome.check in gap.checks]
        rows = {(host, gap.reason) for gap in gaps for host in gap.hosts or ("",)}
        everywhere = (
            {("", why) for why in outcome.skipped.values()} if set(outcome.skipped) == set(report.hosts) else ()
        )
        assert rows in (set(outcome.skipped.items()), everywhere)
        unknown = {host for gap in folded.unknown if outcome.check in gap.checks for host in gap.hosts or ("",)}
        hidden = set(outcome.unknown) - unknown
        shown = [name for failure in failures.values() for name in (failure.outcome.check, *failure.consequences)]
        assert not hidden or outcome.check in shown


@settings(max_examples=examples(40), deadline=None)
@given(reports())
def test_it_depends_on_no_order_of_outcomes(report: Report) -> None:
    turned = msgspec.structs.replace(report, outcomes=tuple(reversed(report.outcomes)))
    assert fold(report).unknown == fold(turned).unknown
    assert fold(report).skipped == fold(turned).skipped
    assert fold(report).areas == fold(turned).areas
