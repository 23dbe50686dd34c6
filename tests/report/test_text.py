"""What a report says, in both text formats, whatever its hosts printed."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from doctor.engine.output_encoding import display_width
from doctor.engine.result import Finding, Report
from doctor.report.formats.plain import MAX_GROUPS
from doctor.report.layout.terminal import Terminal
from tests.examples import examples
from tests.report import rendering
from tests.report import reports as example_reports
from tests.report.strategies import reports

LABELS = ("ok", "FAIL", "warn", "crash", "unknown", "skip", "waived", "note", "run", "first", "values", "plan")
VERDICTS = ("HEALTHY: ", "FAILED: ", "WARNINGS: ", "UNKNOWN: ", "NOTHING: ")
Render = Callable[..., str]


def terminal(report: Report, verbose: bool = False, **look: object) -> str:
    return rendering.text(report, example_reports.CHECKS, terminal=Terminal(**{"tty": True, **look}), verbose=verbose)  # type: ignore[arg-type]


def lines(report: Report, verbose: bool = False) -> list[str]:
    return rendering.plain(report, example_reports.CHECKS, verbose=verbose).splitlines()


@settings(max_examples=examples(60), deadline=None)
@given(reports())
def test_no_host_can_write_a_control_character_or_a_line_of_its_own(report: Report) -> None:
    for verbose in (False, True):
        for output in (terminal(report, verbose), "\n".join(lines(report, verbose))):
            assert output.replace("\n", "").isprintable()
        for line in lines(report, verbose)[:-1]:
            assert line.startswith(" " * 8) or line[:8].rstrip() in LABELS
        assert lines(report, verbose)[-1].startswith(VERDICTS)
        assert terminal(report, verbose).splitlines()[-1].split(" ", 1)


@settings(max_examples=examples(30), deadline=None)
@given(reports())
def test_colour_adds_colour_and_nothing_else(report: Report) -> None:
    coloured = terminal(report, colour=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == terminal(report)


def test_markup_of_a_host_is_text() -> None:
    assert "[bold red]markup[/bold red]" in terminal(example_reports.hostile(), width=120)


def test_a_host_cannot_make_the_report_long() -> None:
    many = [
        Finding("NPU {npu} {observed}", hosts=("node001",), npu=npu, observed=f"x{npu}\n" * 99)
        for npu in range(MAX_GROUPS + 1000)
    ]
    report = example_reports.report(example_reports.outcome("link-down", *many))
    assert len(terminal(report).splitlines()) < 100
    assert len(lines(report)) < 2 * MAX_GROUPS + 20
    assert max(map(len, lines(report))) < 1000


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "latin-1", "utf-8"])
@pytest.mark.parametrize("name", example_reports.ALL)
def test_no_encoding_of_stdout_is_too_small(name: str, encoding: str) -> None:
    look = Terminal(unicode=encoding == "utf-8")
    for output in (
        rendering.text(example_reports.ALL[name](), example_reports.CHECKS, terminal=look),
        rendering.plain(example_reports.ALL[name](), example_reports.CHECKS, terminal=look),
    ):
        output.encode(encoding)


def test_signs_of_ascii_have_words_beside_them() -> None:
    output = terminal(example_reports.unknown(), unicode=False)
    assert output.isascii()
    assert "x FAIL link-down" in output
    assert "? unknown  " in output


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", ["healthy", "folded", "dead_host", "unknown", "crashed"])
def test_lines_fit_the_terminal_unless_they_hold_a_command(name: str, width: int) -> None:
    long = [
        line for line in terminal(example_reports.ALL[name](), width=width).splitlines() if display_width(line) > width
    ]
    assert all(" " not in line.strip() or "`" in line or "doctor explain" in line for line in long)


def test_a_command_is_never_broken() -> None:
    command = "`" + "npu-tool -i 0 -ip -s address 10.0.0.1 netmask 255.255.255.0 " * 3 + "`"
    check = example_reports.make(
        "link-down", example_reports.ERROR, "links", f"Up.\n\n## What to do\nTry {command} on {{host}}."
    )
    report = example_reports.report(example_reports.outcome("link-down", Finding("down", hosts=("node001",))))
    output = rendering.text(report, {"link-down": check}, terminal=Terminal(tty=True, width=60))
    assert command in output


def test_what_is_not_known_of_a_check_is_left_out() -> None:
    output = rendering.plain(example_reports.folded(), {})
    assert "driver-differs on node[003,011-012] (3/64): the driver is not the fleet's" in output
    assert "fix:" not in output


def test_healthy_is_short() -> None:
    assert len(terminal(example_reports.healthy()).splitlines()) <= 12
    assert "HEALTHY: 9 of 11 checks apply, and passed on 64 hosts" in terminal(example_reports.healthy())


def test_an_area_whose_checks_saw_other_hosts_says_so() -> None:
    names = [name for name in example_reports.CHECKS if "rank" not in name]
    some = [
        example_reports.outcome(name, evaluated_hosts=example_reports.HOSTS[: 60 + number])
        for number, name in enumerate(names[:4])
    ]
    report = example_reports.report(*some, *(example_reports.outcome(name) for name in names[4:]))
    assert "ok      kernel: 3 checks on 64 hosts, some of them on 62 only" in lines(report)


def test_plain_lines_can_be_grepped_by_status_name_and_host() -> None:
    texts = lines(example_reports.unknown())
    assert "FAIL    link-down on node030 (1/64): the link of NPU 0-3,6 is down" in texts
    assert (
        "unknown device-ip-conflict, link-down on node020 (1/64): NPU 3: no answer in 10 s; NPU 4: no answer in 10 s"
        in texts
    )
    assert texts[-1] == "FAILED: 1 error on node030; 5 checks unknown on node[001-003,020]"


def test_plain_colour_is_on_the_status_alone() -> None:
    observed_lines = rendering.plain(
        example_reports.folded(), example_reports.CHECKS, terminal=Terminal(colour=True)
    ).splitlines()
    assert any(line.startswith("\x1b[33mwarn   \x1b[0m ip-forward-off on ") for line in observed_lines)


def test_a_warning_that_fails_the_run() -> None:
    report = example_reports.report(example_reports.outcome("cann-differs", Finding("x", hosts=("node001",))))
    assert rendering.plain(report, {}).splitlines()[-1] == "WARNINGS: 1 warning on node001"
    assert rendering.plain(report, {}, code=10).splitlines()[-1] == "FAILED: 1 warning on node001"


def test_verbose_shows_every_check_group_and_traceback() -> None:
    output = terminal(example_reports.folded(), verbose=True)
    assert "node021: CANN is 8.0.20" in output
    assert "... and" not in output
    assert 'File "/site/checks/cann_differs.py", line 31' in terminal(example_reports.crashed(), verbose=True)
    hidden = [line for line in lines(example_reports.dead_host(), verbose=True) if line.strip().startswith("blocked:")]
    assert "cann-differs, device-ip-conflict" in hidden[0]


def test_saw_and_want_are_not_said_twice() -> None:
    finding = Finding("CANN is {observed}", hosts=("node001",), observed="8.0", expected="8.1")
    texts = lines(example_reports.report(example_reports.outcome("cann-differs", finding)))
    assert "        expected: 8.1" in texts
    assert not any("observed:" in line for line in texts)
    finding = Finding("{observed} of CPU; expected no limit", hosts=("n1",), observed="2 h", expected="no limit")
    _, *texts = lines(example_reports.report(example_reports.outcome("cann-differs", finding)))
    assert "expected" not in "".join(texts)


def test_plain_text_needs_no_rich() -> None:
    code = (
        "import sys, doctor.report.formats.plain, doctor.report.layout.terminal;"
        "import doctor.report.explain.checks, doctor.report.layout.progress_line;"
        "sys.exit(str([name for name in ('rich', 'ClusterShell', 'paramiko', 'typer') if name in sys.modules]))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == "[]"


def test_a_thousand_hosts_and_a_hundred_checks_take_no_time() -> None:
    hosts = tuple(f"node{number:04d}" for number in range(1000))
    findings = [Finding("it is {observed}", hosts=(host,), observed=number % 10) for number, host in enumerate(hosts)]
    base = example_reports.outcome("link-down", *findings, evaluated_hosts=hosts)
    import msgspec

    outcomes = [msgspec.structs.replace(base, check=f"check-{number}") for number in range(100)]
    began = time.process_time()
    rendering.plain(example_reports.report(*outcomes, hosts=hosts), {})
    assert time.process_time() - began < 2


def unreachable(hints: list[str]) -> Report:
    findings = [Finding("{text}", hosts=(f"node{n:03d}",), text=hint, hint=hint) for n, hint in enumerate(hints, 1)]
    return example_reports.report(example_reports.outcome("host-unreachable", *findings))


def test_hosts_that_need_another_remedy_have_their_own() -> None:
    texts = lines(unreachable(["Start sshd.", "Mend the route."]))
    assert texts.count("        fix: Start sshd.") == texts.count("        fix: Mend the route.") == 1
    assert not any("likewise" in line for line in texts)


def test_a_remedy_that_differs_by_the_host_alone_is_said_once() -> None:
    texts = lines(unreachable(["Start sshd."] * 3))
    assert (
        "          Try it by hand: `ssh -v node001 true`. This is for node001; likewise for the other 2 hosts." in texts
    )
    assert not any("node002 true" in line for line in texts)


def test_hosts_that_need_another_remedy_in_groups_say_for_whom_each_is() -> None:
    texts = lines(unreachable(["Start sshd.", "Start sshd.", "Mend the route."]))
    assert sum("This is for node001; likewise for the other host." in line for line in texts) == 1
    assert not any("This is for node003" in line for line in texts)


def test_a_skip_that_holds_for_every_host_names_none() -> None:
    blank = {"evaluated_hosts": (), "complete": False}
    everywhere = example_reports.outcome(
        "link-down", **blank, skipped=dict.fromkeys(example_reports.HOSTS, "there is no NPU")
    )
    assert "skip    link-down: there is no NPU" in lines(example_reports.report(everywhere))
    somewhere = example_reports.outcome(
        "link-down", evaluated_hosts=example_reports.HOSTS[1:], skipped={"node001": "there is no NPU"}
    )
    assert "skip    link-down on node001 (1/64): there is no NPU" in lines(example_reports.report(somewhere))


def test_what_stops_the_job_comes_first() -> None:
    warning = example_reports.outcome("ip-forward-off", Finding("off", hosts=("node001",)))
    error = example_reports.outcome("link-down", Finding("down", hosts=("node002",)))
    report = example_reports.dead_host()
    report = example_reports.report(
        warning, error, *(outcome for outcome in report.outcomes if outcome.check == "host-unreachable")
    )
    heads = [line for line in lines(report) if line.startswith(("FAIL ", "warn "))]
    assert [line.split()[1] for line in heads] == ["host-unreachable", "link-down", "ip-forward-off"]
    table = terminal(report).split("\n\n")[0].splitlines()
    assert [line.split()[1] for line in table] == ["host-unreachable", "link-down", "ip-forward-off"]


def following() -> Report:
    """A link that is down, what follows from it, and a second fault of the same kind."""
    down = example_reports.outcome("link-down", Finding("the link of NPU {npu} is down", hosts=("node001",), npu=1))
    blamed = Finding("the driver is lost", hosts=("node001",)).following("link-down")
    apart = Finding("the driver is lost", hosts=("node002",))
    return example_reports.report(down, example_reports.outcome("driver-differs", blamed, apart))


def test_a_consequence_stands_below_its_cause_and_a_second_fault_on_its_own() -> None:
    texts = lines(following())
    assert "        follows: driver-differs on node001: the driver is lost" in texts
    assert [line for line in texts if line.startswith("FAIL    driver-differs")] == [
        "FAIL    driver-differs on node002 (1/64): the driver is lost"
    ]
    assert texts[-1] == "FAILED: 2 errors on 2 of 64 hosts (1 consequence)"
    assert "    consequence: driver-differs on node001: the driver is lost" in terminal(following()).splitlines()


def test_a_report_that_names_a_cause_that_it_does_not_hold_hides_nothing() -> None:
    strangers = [Finding("lost", hosts=("node001",)).following(cause) for cause in ("link-down", "driver-differs", "x")]
    texts = lines(
        example_reports.report(
            example_reports.outcome("link-down"), example_reports.outcome("driver-differs", *strangers)
        )
    )
    assert any(line.startswith("FAIL    driver-differs on node001") for line in texts)
    assert not any("follows" in line for line in texts)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_finding_takes_sixteen_rows_at_most_and_no_command_is_cut(width: int) -> None:
    advice = " ".join(f"Then run `command --number {number} --with some more words`." for number in range(40))
    check = example_reports.make(
        "link-down",
        example_reports.ERROR,
        "links",
        f"Up.\n\n## Why it matters\nBad. Very {'long ' * 70}.\n\n## What to do\n{advice}",
    )
    report = example_reports.report(
        example_reports.outcome("link-down", Finding("down", hosts=("node001",), observed="a", expected="b"))
    )
    part = rendering.text(report, {"link-down": check}, terminal=Terminal(tty=True, width=width)).split("\n\n")[0]
    assert sum(1 + (display_width(line) - 1) // width for line in part.splitlines()) <= 16
    assert part.count("`") % 2 == 0
    assert "(more: doctor explain link-down)" in " ".join(part.split())
    assert "Very" not in part


def finding_of(fix: str, width: int = 80, **values: object) -> str:
    """A finding as a terminal shows it, in one line."""
    page = f"Up.\n\n## Why it matters\n{'Bad ' * 60}.\n\n## What to do\n{fix}"
    check = example_reports.make("link-down", example_reports.ERROR, "links", page)
    report = example_reports.report(example_reports.outcome("link-down", Finding("down", hosts=("node001",), **values)))
    part = rendering.text(report, {"link-down": check}, terminal=Terminal(tty=True, width=width)).split("\n\n")[0]
    return " ".join(part.split())


def test_findings_of_unlike_cases_have_each_its_own_fix() -> None:
    """The sentence for one case must not name what another one expects."""
    page = "Up.\n\n## What to do\nCorrect it.\n- Value: {seen} is no {wanted}.\n- End: write `&` {wanted}."
    check = example_reports.make("link-down", example_reports.ERROR, "links", page)
    findings = (
        Finding("bad value", case="Value", seen="x", wanted="number"),
        Finding("no end", case="End", seen="", wanted="at the end of line 2"),
    )
    report = example_reports.report(example_reports.outcome("link-down", *findings))
    text = " ".join(rendering.text(report, {"link-down": check}, terminal=Terminal(tty=True, width=80)).split())
    assert "Correct it. x is no number." in text
    assert "Correct it. Write `&` at the end of line 2." in text
    assert "`&` number" not in text


def test_a_fix_that_fits_is_whole_and_the_why_gives_way() -> None:
    steps = " ".join(f"Then run `command --number {number}`." for number in range(26))
    assert "why" in finding_of("Run `one`.")
    output = finding_of(steps)
    assert output.endswith("`command --number 25`.") and "why" not in output


def test_the_remedy_of_the_cause_stands_for_those_of_all_causes() -> None:
    page = "{remedy}\n\nFor a cable: replace it. For a port: `enable it`."
    known_value = finding_of(page, remedy="Run `enable eth0`.")
    assert known_value.endswith("fix Run `enable eth0`. (more: doctor explain link-down)")
    for unknown in ({}, {"remedy": ""}):
        assert "fix For a cable: replace it. For a port: `enable it`." in finding_of(page, **unknown)


def test_commands_for_another_device_or_case_are_left_out() -> None:
    page = "Look.\n- NPU: `npu-smi info`.\n- GPU: `nvidia-smi`.\n\nThen wait."
    assert finding_of(page, accelerator="NPU").endswith("fix Look. `npu-smi info`. Then wait.")
    assert finding_of(page, accelerator="CPU").endswith("fix Look. Then wait.")
    assert finding_of(page, case=["GPU", "NPU"]).endswith("Look. NPU: `npu-smi info`. GPU: `nvidia-smi`. Then wait.")
    for unknown in ({}, {"case": ""}):
        assert finding_of(page, **unknown).endswith("Look. - NPU: `npu-smi info`. - GPU: `nvidia-smi`. Then wait.")


def test_brief_is_one_line_a_finding_and_the_verdict() -> None:
    for name in ("folded", "dead_host", "unknown", "crashed", "hostile", "healthy"):
        report = example_reports.ALL[name]()
        piped = rendering.plain(report, example_reports.CHECKS, brief=True).splitlines()
        assert not any(line.startswith(" ") for line in piped)
        observed_lines = rendering.text(
            report, example_reports.CHECKS, terminal=Terminal(tty=True, width=80), brief=True
        ).splitlines()
        table = observed_lines[: observed_lines.index("")] if "" in observed_lines else []
        assert all(display_width(line) <= 80 for line in table)
        assert observed_lines[-1].split()[-1] == piped[-1].split()[-1]


@pytest.mark.parametrize(("count", "is_offered"), [(1, True), (8, True), (9, False)])
def test_few_hosts_that_hands_repair_are_kept_from_jobs(count: int, is_offered: bool) -> None:
    """Not a fleet: it has no fault of single hosts, and nothing would remain to run on."""
    check = example_reports.make(
        "link-down", example_reports.ERROR, "links", "Up.\n\n## What to do\nReseat the module."
    )
    hosts = tuple(f"node{number:03}" for number in range(1, count + 1))
    report = example_reports.report(example_reports.outcome("link-down", Finding("down", hosts=hosts)))
    output = " ".join(rendering.text(report, {"link-down": check}).split())
    assert (f"nodename={','.join(hosts)} state=drain" in output) is is_offered
    assert (f"`kubectl cordon {' '.join(hosts)}`" in output) is is_offered


def test_a_short_fix_goes_on_to_the_command_that_changes_the_host() -> None:
    """Where it is near; a far one does not fill the terminal."""
    look = "`ls /data` shows the files, and what else there is to be seen of them on this host. " * 2
    assert "`umount -l /data`" in finding_of(f"{look}{'Look again. ' * 3}Then `umount -l /data`. {'Go on here. ' * 80}")
    assert "`umount -l /data`" not in finding_of(f"{look}{'Look again at it. ' * 90}Then `umount -l /data`.")
