"""Gather, decide, report: at every moment between them, the run can be ended, with one line and a complete report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from doctor.cli.host_options import JobOptions
from doctor.engine.exit_code import Exit
from doctor.engine.record import LaunchOptions
from doctor.environment.inventory import Inventory
from doctor.environment.job_environment import of_launch_line
from doctor.hosts.selection import HostSelection
from doctor.preflight.deadline import TimeBudget
from doctor.preflight.decide import decide, decide_unevaluated, with_selection, with_unwritten_lists
from doctor.preflight.gather import _examine_options
from doctor.preflight.gathered import Gathered, NotReady
from doctor.preflight.options import ExitCodePolicy, PreflightOptions
from doctor.preflight.report import status_line
from doctor.preflight.run import PreflightRun
from doctor.session.replay import Examination, replay
from tests.preflight import runs

CHECKS = tuple(runs.ours(runs.gauge_low, runs.gauge_high, runs.gauge_crashes))


def preflight(tmp_path: Path, **options: object) -> PreflightRun:
    settings = {"hosts": HostSelection(), "quiet": True, "report": str(tmp_path / "report.json"), **options}
    return PreflightRun(PreflightOptions(**settings), {}, TimeBudget(time.monotonic(), 60.0))  # type: ignore[arg-type]


def examined(gauge: int = 5, stopped: BaseException | None = None) -> Gathered:
    """Two hosts; ``gauge`` below 5 is a fault of the second."""
    run = runs.run({"n1": 5, "n2": gauge})
    return Gathered(
        tier="standard",
        catalog=CHECKS,
        selected_checks=CHECKS,
        inventory=Inventory(("n1", "n2"), "2 hosts"),
        examination=Examination(run, replay(run, CHECKS), stopped),
    )


@pytest.mark.parametrize(
    ("fields", "hosts"),
    [
        ({}, 1),
        ({"catalog": CHECKS, "selected_checks": CHECKS}, 1),
        ({"selected_checks": CHECKS, "inventory": Inventory(("n1", "n2"), "2 hosts")}, 2),
    ],
)
def test_the_deadline_reports_whatever_was_gathered_by_then(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], fields: dict[str, object], hosts: int
) -> None:
    flight = preflight(tmp_path)
    flight.progress.update(**fields)
    assert flight.finish_at_deadline() == Exit.UNKNOWN
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith(f"doctor preflight: UNKNOWN nodes=0/{hosts} why=budget-ended "), line
    assert json.loads((tmp_path / "report.json").read_text())["exit"] == 12


@pytest.mark.parametrize(
    ("hosts", "environ", "nodes"),
    [
        (HostSelection(nodes="n[1-3]"), {}, "0/3"),
        (HostSelection(hosts="n1,n2"), {"DOCTOR_HOSTS": "a"}, "0/2"),
        (HostSelection(), {"DOCTOR_HOSTS": "n[1-4]"}, "0/4"),
        (HostSelection(), {"SLURM_JOB_NODELIST": "n[01-16],m7"}, "0/17"),
        (HostSelection(nodes="n["), {}, "0/1"),
    ],
)
def test_a_budget_that_ends_before_the_hosts_are_chosen_names_those_of_the_list(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], hosts: HostSelection, environ: dict[str, str], nodes: str
) -> None:
    flight = preflight(tmp_path, hosts=hosts)
    flight.environ = environ
    assert flight.finish_at_deadline() == Exit.UNKNOWN
    assert f" nodes={nodes} why=budget-ended " in capfd.readouterr().out


def test_a_budget_that_ends_while_the_rank_table_is_waited_for_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flight = preflight(tmp_path)
    flight.progress.pending = NotReady("rank table x: it was not completed", "rank-table-not-complete")
    assert flight.finish_at_deadline() == Exit.UNKNOWN
    assert " nodes=0/1 why=rank-table-not-complete " in capfd.readouterr().out


START = """
import sys, time
class Starved:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            time.sleep(60)
sys.meta_path.insert(0, Starved())
sys.argv = ["doctor", "preflight", *{words!r}]
from doctor.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "module", ["doctor.cli.preflight", "doctor.session.select_checks", "doctor.report.formats.oneline"]
)
@pytest.mark.parametrize(
    ("arguments", "nodes", "code"),
    [
        (["--user", "x", "n[1-3]"], 3, 12),
        (["--hosts=n1,n2", "--fail-exit", "99"], 2, 99),
        (["--profile", "prolog", "-q"], 1, 0),
    ],
)
def test_the_budget_holds_where_a_starved_machine_does_not_come_to_load_the_modules(
    module: str, arguments: list[str], nodes: int, code: int
) -> None:
    program = START.format(module=module, words=[*arguments, "--budget", "2s"])
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert time.monotonic() - began < 10
    (line,) = done.stdout.splitlines()
    assert re.match(rf"doctor preflight: UNKNOWN nodes=0/{nodes} why=budget-ended .*exit={code} t=", line), line
    assert done.returncode == code


def test_a_list_of_hosts_that_could_not_be_read_in_time_is_no_single_host() -> None:
    program = f"""
import sys, time
from doctor.preflight import early_end
early_end._hosts_of = lambda *_: time.sleep(60)
{START.format(module="doctor.cli.preflight", words=["--hostfile", "/nfs/hosts", "--budget", "2s"])}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.stdout.startswith("doctor preflight: UNKNOWN nodes=0/? why=budget-ended exit=12 t="), done.stdout


def test_a_verdict_that_stands_is_what_the_deadline_and_a_signal_print_and_only_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when a file system hangs while a list is written. The report is written, too, where that does not hang."""
    flight = preflight(tmp_path)
    gathered = flight.progress.update(catalog=CHECKS, inventory=Inventory(("n1",), "1 host"))
    flight.verdict = decide_unevaluated(gathered, flight.options, "it is so", Exit.NOTHING, "bad-input", 1.0)
    assert flight.finish_at_deadline() == Exit.NOTHING
    assert flight.finish_at_deadline() == Exit.NOTHING
    (line,) = capfd.readouterr().out.splitlines()
    assert "NOTHING nodes=0/1 why=bad-input" in line
    assert json.loads((tmp_path / "report.json").read_text())["exit"] == Exit.NOTHING


def test_a_report_that_hangs_at_the_deadline_leaves_the_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flight = preflight(tmp_path)
    flight.progress.update(inventory=Inventory(("n1",), "1 host"), examination=examined().examination)
    assert flight.finish_without_files() == Exit.UNKNOWN
    (line,) = capfd.readouterr().out.splitlines()
    assert "UNKNOWN nodes=2/2 why=budget-ended" in line
    assert "report=" not in line


def test_what_was_not_evaluated_is_unknown_on_every_host() -> None:
    options = PreflightOptions(hosts=HostSelection(), exit_code_policy=ExitCodePolicy(fail_exit=77))
    gathered = Gathered(tier="quick", inventory=Inventory(("n1", "n2"), "2 hosts"))
    verdict = decide_unevaluated(gathered, options, "interrupted", Exit.UNKNOWN, "interrupted", 1.5, CHECKS)
    assert (verdict.code, verdict.exit_code, verdict.examination) == (12, 77, None)
    assert [outcome.check for outcome in verdict.report.outcomes] == [check.name for check in CHECKS]
    assert {frozenset(outcome.unknown) for outcome in verdict.report.outcomes} == {frozenset({"n1", "n2"})}
    assert verdict.report.notes == ("interrupted",)


def test_a_selected_check_that_does_not_run_is_unknown_and_named() -> None:
    options = PreflightOptions(hosts=HostSelection())
    reasons = {CHECKS[0]: "gauge-low was selected, and needs --tier deep"}
    verdict = decide(msgspec.structs.replace(examined(), left_out=reasons), options)
    assert verdict.code == 12
    assert "gauge-low-was-selected" in status_line(verdict, options, "", 1.0)
    assert decide(msgspec.structs.replace(examined(gauge=1), left_out=reasons), options).code == 10


def test_a_list_that_was_not_written_makes_a_healthy_verdict_unknown_and_leaves_a_bad_one() -> None:
    options = PreflightOptions(hosts=HostSelection())
    healthy = decide(examined(), options)
    assert (healthy.code, healthy.selection) == (0, None)
    assert with_unwritten_lists(healthy, options, []) == healthy
    changed = with_unwritten_lists(healthy, options, ["--write-nodes x: no"])
    assert (changed.code, changed.exit_code, changed.report.notes[-1]) == (12, 12, "--write-nodes x: no")
    failed = decide(examined(gauge=1), options)
    assert failed.code == 10
    assert with_unwritten_lists(failed, options, ["--write-nodes x: no"]) == failed


def test_a_signal_while_hosts_were_visited_sets_the_exit_code() -> None:
    options = PreflightOptions(hosts=HostSelection(), need=1)
    assert with_selection(decide(examined(gauge=1), options), options).code == 0
    stopped = with_selection(decide(examined(gauge=1, stopped=SystemExit(143)), options), options)
    assert (stopped.code, stopped.exit_code) == (143, 143)
    assert stopped.selection is not None
    assert stopped.selection.hosts == ("n1",)


def test_the_settings_of_the_job_that_were_given() -> None:
    given = JobOptions(master_port=29500)
    assert given.launch("A2") == LaunchOptions(product="A2", master_port=29500)


def test_preflight_knows_of_the_launch_line_what_check_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch rules, the launcher's logins and the script's folder: what decides whether the job starts."""
    monkeypatch.chdir(tmp_path)
    source = of_launch_line(["mpirun", "-np", "4", "-H", "n1:2,n2:2", "python3", "train.py"], {})
    flight = preflight(tmp_path, source=source)
    visited = _examine_options(flight.options, examined(), flight.budget)
    assert visited.login is not None and visited.login.program == "mpirun"
    assert visited.training is not None and visited.training.jobs
    assert visited.import_folder == str(tmp_path)
