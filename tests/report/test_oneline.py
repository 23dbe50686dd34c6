"""One line tells a run: its word first, keys in a settled order, whatever the hosts are called and however many."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.exit_code import Exit, exit_code
from doctor.engine.result import Finding, Outcome, Reason, Report, Severity, Waived
from doctor.report.formats.oneline import MAX_LINE_CHARS, advice, causes, line, render
from doctor.report.formats.registry import RenderContext
from doctor.report.layout import next_step
from doctor.report.layout.host_health import classify_hosts
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.strategies import reports, texts

KEYS = ["nodes", "bad", "why", "unknown", "smoke", "warn", "waived", "skip"]
KEYS += ["need", "where", "tier", "exit", "t", "report"]


def rendered(report: Report, **more: object) -> str:
    return line(report, exit_code(report), **more)  # type: ignore[arg-type]


def test_a_healthy_run() -> None:
    assert rendered(example_reports.healthy()) == "doctor check: OK nodes=64/64 exit=0 t=4.1s"


def test_bad_hosts_are_folded_and_the_cause_names_them() -> None:
    assert rendered(example_reports.folded(), command="preflight", path="/tmp/r.json", seconds=13.14) == (
        "doctor preflight: FAIL nodes=60/64 bad=node[003,011-012,040] why=driver-differs:node[003,011-012,040]"
        " warn=2 exit=10 t=13.1s report=/tmp/r.json"
    )


def test_hosts_that_were_judged_without_the_others_are_healthy() -> None:
    assert rendered(example_reports.folded(), command="preflight", seconds=13.14, sound=("node003", "node040")) == (
        "doctor preflight: FAIL nodes=62/64 bad=node[011-012] why=driver-differs:node[003,011-012,040]"
        " warn=2 exit=10 t=13.1s"
    )


def test_what_a_root_cause_hides_is_no_cause() -> None:
    assert rendered(example_reports.dead_host()) == (
        "doctor check: FAIL nodes=63/64 bad=node009 why=host-unreachable:node009 exit=10 t=4.1s"
    )


def test_root_causes_come_before_what_the_job_meets_first() -> None:
    dead = example_reports.dead_host()
    slow = example_reports.outcome("device-ip-conflict", Finding("x", hosts=("node001",)))
    both = msgspec.structs.replace(dead, outcomes=(slow, *dead.outcomes))
    assert [name for name, _ in causes(both)] == ["host-unreachable", "device-ip-conflict"]


def test_hosts_that_nobody_could_judge_are_not_healthy() -> None:
    report = example_reports.unknown()
    assert classify_hosts(report).unknown == ("node001", "node002", "node003", "node020")
    assert " nodes=59/64 bad=node030 why=link-down:node030 unknown=5:node[001-003,020] " in rendered(report)


def test_without_an_error_what_is_unknown_is_the_cause() -> None:
    report = example_reports.report(
        example_reports.outcome(
            "link-down", evaluated_hosts=example_reports.HOSTS[1:], unknown={"node001": Reason("no answer")}
        )
    )
    assert rendered(report).startswith(
        "doctor check: UNKNOWN nodes=63/64 why=no-answer:node001 unknown=1:node001 exit=12"
    )


def test_what_is_unknown_is_named_by_its_reason_and_host_and_not_by_every_check() -> None:
    """One host did not answer, on another a tool did not."""
    silent, slow = (
        {"node001": Reason("not reached: no answer within 35 s")},
        {"node002": Reason("hccn_tool: no answer")},
    )
    report = example_reports.report(
        example_reports.outcome("host-unreachable", evaluated_hosts=example_reports.HOSTS[1:], unknown=silent),
        example_reports.outcome("link-down", evaluated_hosts=example_reports.HOSTS[2:], unknown=silent | slow),
        example_reports.outcome("cann-differs", evaluated_hosts=example_reports.HOSTS[1:], unknown=silent),
    )
    assert " why=no-answer:node001,hccn_tool-no-answer:node002 unknown=3:node[001-002] " in rendered(report)


def test_a_host_that_no_check_looked_at_is_not_healthy() -> None:
    assert rendered(example_reports.nothing()) == "doctor check: NOTHING nodes=0/64 exit=78 t=4.1s"


def test_a_run_that_was_cut_short_is_never_ok() -> None:
    for code in (Exit.INTERRUPTED, Exit.TERMINATED, 129, Exit.BUG):
        assert line(example_reports.healthy(), code).startswith(f"doctor check: UNKNOWN nodes=64/64 exit={int(code)}")


def test_a_smoke_run_that_did_not_end_says_so() -> None:
    """With the kind of the failure, and its ranks."""
    report = example_reports.smoke_hang()
    assert report.smoke
    ranks = ",".join(map(str, report.smoke.failures[0].culprit_ranks))
    smoke = f"smoke=trouble:{report.smoke.failures[0].kind}:{ranks}"
    assert rendered(report).split()[-3:] == [smoke, "exit=10", "t=4.1s"]


def test_a_smoke_run_alone_is_named_as_such() -> None:
    """So that one can tell the lines of two commands apart in a log. Hosts that never came are counted, too."""
    report = example_reports.smoke_hang()
    smoke_alone = [outcome for outcome in report.outcomes if outcome.area in ("smoke", "connectivity")]
    context = RenderContext(10)
    with_others = msgspec.structs.replace(report, outcomes=(*smoke_alone, example_reports.outcome("link-down")))
    assert render(with_others, context).startswith("doctor check: FAIL nodes=")
    blamed = Finding("ranks never came", hosts=("(unknown)",))
    stranger = [
        msgspec.structs.replace(outcome, findings=(blamed,) * bool(outcome.findings)) for outcome in smoke_alone
    ]
    report = msgspec.structs.replace(report, outcomes=tuple(stranger))
    count = len(report.hosts)
    assert f"nodes={count}/{count + 1} bad=(unknown)" in render(report, context)
    assert render(report, context).startswith("doctor smoke: FAIL ")


def test_warnings_and_waivers_are_counted() -> None:
    waived = Waived(Finding("x", hosts=("node001",)), "known", "2026-12-31")
    report = example_reports.report(
        example_reports.outcome("link-down", waived=(waived, waived)),
        example_reports.outcome("device-ip-conflict", waived=(waived,)),
        example_reports.outcome("cann-differs", Finding("x", hosts=("node002",))),
    )
    assert rendered(report) == ("doctor check: WARN nodes=64/64 why=cann-differs:node002 warn=1 waived=2 exit=0 t=4.1s")


def test_enough_healthy_hosts_are_ok_and_the_bad_ones_stay_named() -> None:
    output = line(example_reports.dead_host(), 0, need=60, where="slurm:1234", tier="quick", skipped=["a", "b"])
    assert output == (
        "doctor check: OK nodes=63/64 bad=node009 why=host-unreachable:node009 skip=a,b need=60"
        " where=slurm:1234 tier=quick exit=0 t=4.1s"
    )


def test_a_word_of_the_callers() -> None:
    assert line(example_reports.healthy(), 0, word="SKIP", skipped=["all"]).startswith(
        "doctor check: SKIP nodes=64/64 skip=all "
    )


def test_five_causes_are_named_and_the_others_counted() -> None:
    names = list(example_reports.CHECKS)[:8]
    report = example_reports.report(
        *(example_reports.outcome(name, Finding("x", hosts=("node001",))) for name in names)
    )
    why = re.search(r" why=(\S+)", rendered(report))
    assert why
    assert len(why[1].split(",")) <= 6


def test_any_number_of_hosts_fits() -> None:
    outlier = [f"r{number * 7919 % 10007}-x{number}" for number in range(1000)]
    outcomes = [
        example_reports.outcome(name, Finding("x", hosts=outlier[1:]), evaluated_hosts=outlier)
        for name in example_reports.CHECKS
    ]
    output = rendered(example_reports.report(*outcomes, hosts=tuple(outlier)))
    assert len(output) <= MAX_LINE_CHARS
    assert " nodes=1/1000 " in output
    assert re.search(r"\+\d+", output)


def test_a_pattern_of_any_size_stays_whole() -> None:
    racks = tuple(f"rack{rack}-node{number}" for rack in range(25) for number in range(40))
    report = example_reports.report(
        example_reports.outcome("link-down", Finding("x", hosts=racks), evaluated_hosts=racks), hosts=racks
    )
    assert " bad=rack[0-24]-node[0-39] why=link-down:rack[0-24]-node[0-39] " in rendered(report)


@settings(max_examples=examples(60), deadline=None)
@given(reports(), texts, texts, st.lists(texts.filter(bool), max_size=3))
def test_whatever_hosts_are_called_it_is_one_line_of_key_and_value(
    report: Report, where: str, path: str, skipped: list[str]
) -> None:
    output = rendered(report, where=where, path=path, skipped=skipped)
    assert re.fullmatch(r"[!-~]+( [!-~]+)*", output)
    assert len(output) <= MAX_LINE_CHARS
    parts = output.split(" ")
    assert parts[:2] == ["doctor", "check:"]
    keys = ["nodes" if word.startswith("checks=") else word.partition("=")[0] for word in parts[3:]]
    assert keys == [key for key in KEYS if key in keys]
    assert {"nodes", "exit", "t"} <= set(keys)


def test_advice_is_what_to_do_about_errors_root_causes_first() -> None:
    (output,) = advice(example_reports.folded(), example_reports.PAGES)
    assert output == (
        "FAIL driver-differs on node[003,011-012,040] (4/64): node[003,011-012]: the driver is not the fleet's."
        " Fix: Install the driver 24.1.0 on node[003,011-012,040]."
    )


def test_hosts_with_a_warning_of_the_same_check_are_no_cause_and_no_place_of_the_error() -> None:
    """/dev/shm of 4 KiB on one host was told "on all 3 hosts", as 256 MiB of the others were a warning."""
    small = Finding("/dev/shm holds 4 KiB", hosts=("n2",))
    warned = Finding("/dev/shm holds 256 MiB", hosts=("n1", "n3")).as_warning()
    outcome = Outcome("shm-too-small", Severity.ERROR, "memory", "", (warned, small))
    report = Report("3 hosts", ("n1", "n2", "n3"), (outcome,))
    assert causes(report) == [("shm-too-small", ("n2",))]
    assert advice(report, {}) == ["FAIL shm-too-small on n2 (1/3): /dev/shm holds 4 KiB"]


def test_of_hosts_with_different_values_the_first_line_names_its_own() -> None:
    findings = [Finding("{size} KiB", hosts=(host,), size=size) for host, size in (("n1", 4), ("n2", 8))]
    outcome = Outcome("shm-too-small", Severity.ERROR, "memory", "", tuple(findings))
    report = Report("3 hosts", ("n1", "n2", "n3"), (outcome,))
    assert causes(report) == [("shm-too-small", ("n1", "n2"))]
    assert advice(report, {}) == ["FAIL shm-too-small on n[1-2] (2/3): n1: 4 KiB"]


def test_advice_where_something_is_unknown() -> None:
    report = example_reports.report(
        example_reports.outcome("pid-limit-low", unknown=dict.fromkeys(example_reports.HOSTS[:3], Reason("no sudo")))
    )
    assert advice(report, example_reports.PAGES) == ["unknown pid-limit-low on node[001-003] (3/64): no sudo"]


def test_advice_names_what_is_unknown_before_a_warning_that_decides_nothing() -> None:
    """A launcher that gave no answer ended a preflight with 12, and its lines told of another job's memory alone."""
    unknown = Outcome("launch-option-refused", Severity.ERROR, "ranks", "", unknown={"": Reason("srun: no answer")})
    memory = Finding("1 process", hosts=("n1",)).as_warning()
    warning = Outcome("out-of-memory-logged", Severity.WARNING, "memory", "", (memory,))
    lines = advice(Report("n1", ("n1",), (warning, unknown)), {})
    assert [line.split()[0] for line in lines] == ["unknown", "warn"]
    error = Outcome("disk-full", Severity.ERROR, "memory", "", (Finding("/tmp is full", hosts=("n1",)),))
    assert [line.split()[0] for line in advice(Report("n1", ("n1",), (warning, unknown, error)), {})] == ["FAIL"]


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("name", example_reports.ALL)
def test_advice_is_short_and_clean(name: str, limit: int) -> None:
    lines = advice(example_reports.ALL[name](), example_reports.PAGES, limit)
    assert len(lines) <= limit
    limits = [next_step.MAX_COMMAND_LINE_CHARS if "`" in text else next_step.MAX_LINE_CHARS for text in lines]
    assert all(text.isprintable() and len(text) <= most for text, most in zip(lines, limits, strict=True))
