from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from doctor.engine.exit_code import Exit, Verdict, exit_code, verdict
from doctor.engine.result import NO_HOST, Finding, Outcome, Reason, Report, Waived
from doctor.preflight.spares import FailureRules, bad_hosts
from doctor.report.formats.oneline import line
from doctor.report.layout.fold import fold
from doctor.report.layout.host_health import classify_hosts
from doctor.report.layout.summary_lines import summary_lines
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.strategies import reports

ERROR_CHECK, WARNING_CHECK, OTHER = "link-down", "cann-differs", "driver-differs"
FINDING = Finding("it is wrong", hosts=("node001",))
BLIND = {"evaluated_hosts": (), "complete": False, "unknown": dict.fromkeys(example_reports.HOSTS, Reason("no answer"))}


def outcome_of(name: str, *findings: Finding, **more: object) -> Outcome:
    return example_reports.outcome(name, *findings, **more)


healthy = example_reports.report(outcome_of(ERROR_CHECK))
error = example_reports.report(outcome_of(ERROR_CHECK, FINDING), outcome_of(OTHER))
warning = example_reports.report(outcome_of(WARNING_CHECK, FINDING), outcome_of(OTHER))
put_up = (Waived(FINDING, "known", "2026-12-31"),)
waived = example_reports.report(outcome_of(ERROR_CHECK, waived=put_up), outcome_of(WARNING_CHECK, waived=put_up))
waived_and_gap = example_reports.report(
    outcome_of(ERROR_CHECK, waived=put_up, unknown={"node003": Reason("no answer")})
)
gap = example_reports.report(outcome_of(OTHER, unknown={"node003": Reason("no answer")}))
torn = example_reports.report(
    outcome_of(WARNING_CHECK, FINDING, unknown={"node003": Reason("no answer")}), outcome_of(OTHER)
)
small_gap = example_reports.report(
    outcome_of(ERROR_CHECK), outcome_of(WARNING_CHECK, unknown={"node003": Reason("only root may read it")})
)
for_root = Reason("only root may read the kernel log (kernel.dmesg_restrict): use --sudo")
no_root = example_reports.report(
    outcome_of(ERROR_CHECK), outcome_of(WARNING_CHECK, unknown=dict.fromkeys(example_reports.HOSTS, for_root))
)
no_root_and_gap = example_reports.report(
    outcome_of(ERROR_CHECK), outcome_of(WARNING_CHECK, unknown={"node003": Reason("no answer"), "node004": for_root})
)
no_root_for_errors = example_reports.report(outcome_of(WARNING_CHECK), outcome_of(OTHER, unknown={"node003": for_root}))
error_and_gap = example_reports.report(
    outcome_of(ERROR_CHECK, FINDING), outcome_of(OTHER, unknown={"node003": Reason("no answer")})
)
crash = example_reports.report(outcome_of(OTHER, crashed={"node003": "Traceback"}))
blind = example_reports.report(outcome_of(OTHER, **BLIND))
nothing = example_reports.nothing()
no_check = example_reports.report()
intent = example_reports.report(outcome_of("rank-table-hole", evaluated_hosts=()), hosts=())
unjudged = outcome_of(OTHER, evaluated_hosts=(), complete=False, skipped={"": NO_HOST})
no_host = example_reports.report(outcome_of("rank-table-hole", evaluated_hosts=()), unjudged, hosts=())
table_alone = msgspec.structs.replace(no_host, source=f"{NO_HOST}; rank table: x.json")
no_host_and_error = example_reports.report(
    outcome_of(ERROR_CHECK, Finding("it is wrong"), evaluated_hosts=()), unjudged, hosts=()
)


@pytest.mark.parametrize(
    ("report", "options", "code"),
    [
        (healthy, {}, 0),
        (healthy, {"strict": True, "fail_on": "warning"}, 0),
        (intent, {}, 0),
        (no_host, {}, 78),
        (no_host, {"on_unknown": "ok"}, 78),
        (no_host_and_error, {}, 10),
        (table_alone, {}, 0),
        (waived, {}, 0),
        (waived, {"strict": True, "fail_on": "warning"}, 0),
        (waived_and_gap, {}, 12),
        (error, {}, 10),
        (error, {"on_unknown": "ok"}, 10),
        (error_and_gap, {}, 10),
        (warning, {}, 0),
        (warning, {"strict": True}, 11),
        (warning, {"fail_on": "warning"}, 10),
        (gap, {}, 12),
        (gap, {"strict": True}, 12),
        (gap, {"on_unknown": "warn"}, 0),
        (gap, {"on_unknown": "warn", "strict": True}, 11),
        (gap, {"on_unknown": "warn", "fail_on": "warning"}, 0),
        (gap, {"on_unknown": "ok", "strict": True}, 0),
        (torn, {}, 0),
        (torn, {"strict": True}, 11),
        (small_gap, {}, 0),
        (small_gap, {"strict": True}, 11),
        (small_gap, {"strict": True, "on_unknown": "ok"}, 0),
        (small_gap, {"fail_on": "warning"}, 12),
        (small_gap, {"fail_on": "warning", "on_unknown": "ok"}, 0),
        (no_root, {}, 0),
        (no_root, {"strict": True}, 11),
        (no_root, {"strict": True, "on_unknown": "ok"}, 0),
        (no_root, {"fail_on": "warning"}, 12),
        (no_root, {"fail_on": "warning", "on_unknown": "warn"}, 0),
        (no_root_for_errors, {}, 12),
        (torn, {"fail_on": "warning"}, 10),
        (torn, {"on_unknown": "ok", "strict": True}, 11),
        (crash, {}, 12),
        (crash, {"on_unknown": "ok"}, 12),
        (blind, {}, 12),
        (blind, {"on_unknown": "ok"}, 12),
        (nothing, {}, 78),
        (nothing, {"on_unknown": "ok"}, 78),
        (no_check, {}, 78),
        (example_reports.dead_host(), {"on_unknown": "ok"}, 10),
    ],
)
def test_exit_codes(report: Report, options: dict[str, object], code: int) -> None:
    assert exit_code(report, **options) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("report", "word"),
    [
        (healthy, Verdict.HEALTHY),
        (waived, Verdict.HEALTHY),
        (error_and_gap, Verdict.FAILED),
        (warning, Verdict.WARNINGS),
        (torn, Verdict.WARNINGS),
        (small_gap, Verdict.WARNINGS),
        (no_root, Verdict.HEALTHY),
        (no_root_and_gap, Verdict.WARNINGS),
        (no_root_for_errors, Verdict.UNKNOWN),
        (gap, Verdict.UNKNOWN),
        (crash, Verdict.UNKNOWN),
        (nothing, Verdict.NOTHING),
    ],
)
def test_words(report: Report, word: Verdict) -> None:
    assert verdict(report) is word


def test_a_user_who_may_not_look_everywhere_is_told_so() -> None:
    text = summary_lines(no_root, fold(no_root)).verdict
    assert text == "HEALTHY: as far as this user may look; 1 check needs --sudo"
    assert verdict(no_root, 11) is Verdict.WARNINGS and verdict(no_root, 12) is Verdict.UNKNOWN


def test_the_verdict_names_the_hosts_that_could_not_be_judged_where_others_could() -> None:
    assert "1 check unknown on node003" in summary_lines(gap, fold(gap)).verdict
    for hosts in (("",), example_reports.HOSTS):
        report = example_reports.report(outcome_of(OTHER, unknown=dict.fromkeys(hosts, Reason("no answer"))))
        text = summary_lines(report, fold(report)).verdict
        assert "1 check unknown" in text and "unknown on" not in text


def test_a_warning_that_fails_the_run_is_called_failed() -> None:
    assert verdict(warning, exit_code(warning, fail_on="warning")) is Verdict.FAILED


@settings(max_examples=examples(40), deadline=None)
@given(reports())
def test_healthy_only_when_all_that_applies_was_seen_and_nothing_found(report: Report) -> None:
    code = exit_code(report, strict=True)
    if code == Exit.HEALTHY:
        assert any(outcome.complete for outcome in report.outcomes)
        assert not any(outcome.findings or outcome.unknown or outcome.crashed for outcome in report.outcomes)
    assert code in (0, 10, 11, 12, 78)


@settings(max_examples=examples(40), deadline=None)
@given(reports())
def test_no_option_makes_an_error_healthy(report: Report) -> None:
    if exit_code(report) == Exit.FAILED:
        assert exit_code(report, on_unknown="ok") == Exit.FAILED


def test_a_finding_may_be_milder_than_its_check() -> None:
    milder = FINDING.as_warning()
    assert verdict(example_reports.report(outcome_of(ERROR_CHECK, milder))) is Verdict.WARNINGS
    assert exit_code(example_reports.report(outcome_of(ERROR_CHECK, milder))) == 0
    assert exit_code(example_reports.report(outcome_of(ERROR_CHECK, milder)), strict=True) == 11
    assert verdict(example_reports.report(outcome_of(ERROR_CHECK, milder, FINDING))) is Verdict.FAILED
    assert (milder == FINDING, milder == FINDING.as_warning(), FINDING.as_warning(False) == FINDING) == (
        False,
        True,
        True,
    )
    assert Finding("x").as_warning().with_host("a").is_warning


def test_the_verdict_counts_the_lines_that_a_report_shows() -> None:
    two = (FINDING, Finding("it is wrong in another way", hosts=("node003",)))
    report = example_reports.report(outcome_of(ERROR_CHECK, *two), outcome_of(OTHER))
    assert "2 errors of 1 check on 2 of" in summary_lines(report, fold(report)).verdict
    assert "1 error on node001" in summary_lines(error, fold(error)).verdict


def test_a_milder_finding_makes_no_host_bad() -> None:
    both = example_reports.report(
        outcome_of(ERROR_CHECK, Finding("x", hosts=("node001",)), Finding("y", hosts=("node002",)).as_warning())
    )
    assert bad_hosts(both) == {"node001": [ERROR_CHECK]}
    assert set(bad_hosts(both, FailureRules(strict=True))) == {"node001", "node002"}
    assert classify_hosts(both).bad == ("node001",)


def test_a_job_whose_hosts_are_not_all_known_is_not_healthy() -> None:
    part = msgspec.structs.replace(healthy, hosts_unknown="LSF job 1 does not list them")
    assert verdict(part) is Verdict.UNKNOWN
    assert [exit_code(part, on_unknown=forgiving) for forgiving in ("fail", "warn", "ok")] == [12, 12, 12]  # type: ignore[arg-type]
    assert "why=hosts-unknown" in line(part, 12)
    assert exit_code(msgspec.structs.replace(error, hosts_unknown="x")) == 10


def test_the_verdict_names_a_host_on_which_many_checks_do_not_apply() -> None:
    most, why = example_reports.HOSTS[1:], {example_reports.HOSTS[0]: "hccn_tool is not installed"}
    link = outcome_of(ERROR_CHECK, evaluated_hosts=most, skipped=why)
    partly = [msgspec.structs.replace(link, check=f"link-{number}") for number in range(6)]
    report = example_reports.report(
        outcome_of(ERROR_CHECK), *partly, outcome_of(OTHER, evaluated_hosts=(), complete=False)
    )
    text = summary_lines(report, fold(report)).verdict
    assert (
        text
        == "HEALTHY: 7 of 8 checks apply, and passed on 64 hosts; 6 checks of the other hosts do not apply to node001"
    )
    report = example_reports.report(outcome_of(ERROR_CHECK), *partly[:4])
    text = summary_lines(report, fold(report)).verdict
    assert text == "HEALTHY: 5 checks passed on 64 hosts; 4 checks of the other hosts do not apply to node001", (
        "more than half of all"
    )
    everywhere = [msgspec.structs.replace(outcome_of(ERROR_CHECK), check=f"each-{number}") for number in range(8)]
    report = example_reports.report(*everywhere, *partly[:4])
    assert summary_lines(report, fold(report)).verdict == "HEALTHY: 12 checks passed on 64 hosts"


def test_no_host_is_cut_off_from_a_command() -> None:
    hosts = tuple(f"host-{letters}" for letters in (2 * letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"))
    outcome = outcome_of(ERROR_CHECK, Finding("bad", hosts=hosts), evaluated_hosts=hosts)
    report = example_reports.report(outcome, hosts=hosts)
    lines = summary_lines(report, fold(report, 160), fixable=[ERROR_CHECK])
    assert "..." not in lines.fix_command and all(host in lines.fix_command for host in hosts)
