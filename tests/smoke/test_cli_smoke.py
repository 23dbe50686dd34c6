"""`doctor smoke` as a person and a script meet it: real ranks on this machine, and every way to stop them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from doctor.cli import smoke
from doctor.engine.errors import CommandError
from doctor.engine.record import LaunchOptions
from doctor.session.select_checks import choose_checks, load_catalog
from tests.schemas import schema_file
from tests.smoke.interpreter import visible_folders
from tests.test_cli import CLEAN, ROOT, doctor

SCHEMA = jsonschema.Draft202012Validator(json.loads(schema_file("report").read_text("utf-8")))
TWO = ("smoke", "--ranks-per-host", "2")

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and os.environ.get("CI") != "true", reason="torch is not installed here"
)


def outcome(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in report["outcomes"] if entry["check"] == name)


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[bytes]]:
    """One run on two ranks, saved; its speeds are a baseline beside it."""
    path = tmp_path_factory.mktemp("smoke") / "run"
    options = ("--json", "--save", str(path), "--save-baseline", str(path.with_name("baseline")))
    return path, doctor(*TWO, "--layout", "dp=2", "--layout", "tp=2", *options)


@needs_torch
class TestTwoRanksOnThisMachine:
    @pytest.mark.every
    def test_all_is_well(self, saved_run: Any) -> None:
        _, done = saved_run
        report = json.loads(done.stdout)
        failed = [entry["check"] for entry in report["outcomes"] if entry["status"] not in ("passed", "skipped")]
        assert (done.returncode, [name for name in failed if outcome(report, name)["severity"] == "error"]) == (0, [])
        assert {entry["area"] for entry in report["outcomes"]} == {"connectivity", "smoke"}

    def test_the_figures_fit_the_schema_and_tell_what_ran(self, saved_run: Any) -> None:
        report = json.loads(saved_run[1].stdout)
        SCHEMA.validate(report)
        run = report["smoke"]
        assert (run["backend"], run["ended"]) == ("gloo", "complete")
        assert run["hosts"] == [{"host": "localhost", "ranks": 2}]
        assert [(layout["layout"], layout["steps"]) for layout in run["layouts"]] == [("dp2", 3), ("tp2", 3)]
        assert all(layout["error"] < 1e-5 for layout in run["layouts"])
        assert [stage["name"] for stage in run["stages"]][:3] == ["start", "rendezvous", "collectives"]
        assert run["unfinished_stages"] == run["failures"] == []
        assert run["environments"][0]["ranks"] == [0, 1]
        assert {collective_speed["op"] for collective_speed in run["collective_speeds"]} >= {
            "all_reduce",
            "all_gather",
            "reduce_scatter",
        }

    def test_the_saved_run_gives_the_identical_report(self, saved_run: Any) -> None:
        path, live = saved_run
        again = doctor("smoke", "--json", "--from", str(path))
        assert (again.returncode, again.stdout) == (live.returncode, live.stdout)

    @pytest.mark.proves("smoke-fleet-slow")
    def test_a_fleet_that_is_slower_than_its_baseline(self, saved_run: Any, tmp_path: Path) -> None:
        """Against its own speeds nothing is slow; against a hundred times of them everything is."""
        path = tmp_path / "baseline"
        before = json.loads(saved_run[0].with_name("baseline").read_text())
        series = [{**row, "values": [100 * value for value in row["values"]]} for row in before["series"]]
        path.write_text(json.dumps({**before, "series": series}))
        done = doctor(*TWO, "--layout", "dp=2", "--json", "--baseline", str(path))
        assert outcome(json.loads(done.stdout), "smoke-fleet-slow")["status"] == "failed"
        path.write_text("{")
        refused = doctor(*TWO, "--baseline", str(path))
        assert refused.returncode == 78
        assert b"expected a file of --save-baseline" in refused.stderr

    def test_the_report_for_a_pipe(self, saved_run: Any, tmp_path: Path) -> None:
        message, config = tmp_path / "message", tmp_path / "doctor.toml"
        config.write_text(f'[notify.file]\ncommand = ["tee", "{message}"]\nwhen = "always"\n')
        ends_soon = {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(int(time.time()) + 30)}
        done = doctor("smoke", "--from", str(saved_run[0]), "--config", str(config), "--notify", "file", env=ends_soon)
        output = done.stdout.decode()
        assert json.loads(message.read_text())["command"] == "smoke"
        assert done.stderr == b"", "nothing runs that the scheduler could end"
        assert "smoke   ran: gloo, 2 ranks on 1 host, " in output
        assert "smoke   layouts: dp2 " in output
        assert "\x1b" not in output

    def test_a_run_of_everything_judges_it_too_and_only_then(self, saved_run: Any) -> None:
        report = json.loads(doctor("check", "--json", "--from", str(saved_run[0])).stdout)
        assert "smoke" in {entry["area"] for entry in report["outcomes"]}
        assert outcome(report, "smoke-rank-died")["status"] == "passed"

    def test_check_makes_one_after_its_rounds(self, tmp_path: Path) -> None:
        """Variables of the job that are not UTF-8, or would colour a terminal, are no fault of the host."""
        arguments = (
            "--select",
            "connectivity",
            "--ranks-per-host",
            "2",
            "-f",
            "plain",
            "-f",
            f"json={tmp_path}/report",
        )
        env = {"NCCL_X": os.fsdecode(b"\xff\xfe"), "GLOO_Y": "\x1b[31m"}
        done = doctor("check", "--smoke", *arguments, env=env)
        report = json.loads((tmp_path / "report").read_text())
        assert done.returncode == 0 and b"\x1b" not in done.stdout
        assert report["smoke"]["ended"] == "complete"
        assert outcome(report, "smoke-rank-died")["status"] == "passed"
        assert outcome(report, "clocks-differ")["status"] == "skipped"


def test_what_it_judges_needs_no_visit_but_that_of_the_runs_agents() -> None:
    selected = choose_checks(load_catalog([]), smoke.AREA, roots=True)
    kinds = {fact.probe.kind for smoke_check in selected for fact in smoke_check.facts}
    assert kinds == {"smoke", "visit"}


def test_a_check_without_a_smoke_run_does_not_speak_of_it() -> None:
    arguments = ("check", "--no-hosts", "--rank-table", "/etc/hostname", "--json")
    report = json.loads(doctor(*arguments).stdout)
    assert report["smoke"] is None
    assert "smoke" not in {entry["area"] for entry in report["outcomes"]}


def test_unless_its_checks_are_selected() -> None:
    report = json.loads(doctor("check", "--select", "smoke", "--json").stdout)
    reasons = {gap["reason"] for entry in report["outcomes"] if entry["area"] == "smoke" for gap in entry["skipped"]}
    assert reasons == {"no smoke run; run doctor smoke for one", "only one host: nothing to compare"}


def test_an_interpreter_without_torch_is_one_clear_finding(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    done = doctor(*TWO, "--json", "--python", str(tmp_path / "bare/bin/python"))
    report = json.loads(done.stdout)
    SCHEMA.validate(report)
    assert done.returncode == 10
    failed = [entry for entry in report["outcomes"] if entry["findings"]]
    assert [entry["check"] for entry in failed] == ["smoke-rank-not-started"]
    (finding,) = failed[0]["findings"]
    assert "No module named 'torch'" in finding["message"]
    text = doctor(*TWO, "--python", str(tmp_path / "bare/bin/python")).stdout.decode()
    assert f"{tmp_path}/bare/bin/python -m pip install" in text
    assert not [line for line in text.splitlines() if line.startswith("unknown")]


def test_an_interpreter_that_is_not_there_is_one_too() -> None:
    done = doctor(*TWO, "--json", "--python", "/nowhere/python")
    report = json.loads(done.stdout)
    assert done.returncode == 10
    assert [entry["check"] for entry in report["outcomes"] if entry["findings"]] == ["smoke-rank-not-started"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("--layout", "dp=3"), "expected 2, the number of ranks"),
        (("--layout", "dp"), "expected a whole number"),
        (("--layout", "cp=2"), "'cp' is not a part of a layout"),
        (("--layout", "zero=1"), "names none of dp, tp, pp"),
        (("--layout", "dp=2", "--layout", "tp=x"), "'tp=x'"),
        (("--devices", "0-"), "--devices '0-'"),
        (("--devices", "0,0-1"), "duplicate number"),
        (("--devices", "0"), "gloo runs on CPUs"),
        (("--backend", "mpi"), "--backend 'mpi'"),
        (("--max-bytes", "lots"), "--max-bytes 'lots'"),
        (("--within", "docker exec 'x"), "--within"),
        (("--transport", "telnet"), "--transport"),
        (("--color", "pink"), "--color"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(arguments: tuple[str, ...], output: str) -> None:
    done = doctor(*TWO, *arguments)
    err = done.stderr.decode()
    assert (done.returncode, done.stdout, err.count("\n")) == (2, b"", 1)
    assert output in err


def test_sizes_and_lists() -> None:
    def wish(**fields: Any) -> Any:
        return smoke.parse_smoke_options(smoke.TrainingOptions(**fields), LaunchOptions(python="p", master_port=5))

    assert [wish(max_bytes=text).max_bytes for text in ("4", "64K", "64kib", "4M", "2G")] == [
        4,
        1 << 16,
        1 << 16,
        4 << 20,
        2 << 30,
    ]
    assert wish(devices="0-2,7").devices == (0, 1, 2, 7)
    assert (wish().python, wish().master_port, wish().backend, wish().max_bytes) == ("p", 5, None, 1 << 20)
    for bad in ("3", "4G", "-1", "1.5", ""):
        with pytest.raises(CommandError):
            wish(max_bytes=bad)


@needs_torch
@pytest.mark.hosts
def test_a_check_trains_on_the_hosts_that_it_reached_and_says_on_which_not(make_fleet: Any) -> None:
    fleet = make_fleet(3, {"*": {"shows": visible_folders()}, "cli0002": {"fault": "refuse"}}, name="cli")
    arguments = ["--select", "connectivity", "--ranks-per-host", "1", "--python", sys.executable, "--json"]
    argv = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--smoke"]
    done = fleet.run([*argv, *arguments], env=CLEAN, cwd=ROOT, timeout=100)
    report = json.loads(done.stdout)
    SCHEMA.validate(report)
    assert done.returncode == 10
    assert [entry["check"] for entry in report["outcomes"] if entry["findings"]] == ["host-unreachable"]
    assert report["smoke"]["ended"] == "complete"
    assert [host["host"] for host in report["smoke"]["hosts"]] == ["cli0001", "cli0003"]
    assert "the smoke run excluded 1 of 3 hosts, which could not be reached" in report["notes"]
    losses = outcome(report, "smoke-loss-differs")
    assert losses["evaluated_hosts"] == ["cli0001", "cli0003"]
    assert [(gap["hosts"], gap["root_cause"]) for gap in losses["unknown"]] == [(["cli0002"], "host-unreachable")]


def relatives(mark: str) -> dict[int, str]:
    """Processes that have this mark in their environment, with their command lines."""
    result = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    result[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
            except OSError:
                continue
    return result


def wait_for(condition: Any, seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (observed := condition()):
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.1)  # each look reads what all processes of the machine have
    return observed


def ranks_of(mark: str) -> list[int]:
    """Processes of a run whose memory maps show torch: the ranks, and what they come from."""

    def has_torch(pid: int) -> bool:
        try:
            return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            return False

    return [pid for pid in relatives(mark) if has_torch(pid)]


@pytest.mark.parametrize("option", ["--python", "--interface", "--master-addr"])
def test_an_option_that_is_not_utf_8_is_refused_in_one_line(option: str) -> None:
    arguments = [sys.executable, "-m", "doctor", *TWO, option, os.fsdecode(b"/x\xff")]
    done = subprocess.run(arguments, cwd=ROOT, env=CLEAN, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"doctor: {option} '/x\\udcff': expected UTF-8\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize("is_apart", [True, False])
def test_ranks_start_in_the_namespaces_of_the_process_of_like(is_apart: bool, tmp_path: Path) -> None:
    """Seen: `smoke --like PID` was healthy in doctor's own network, and that of the job had not even a loopback."""
    python, network = tmp_path / "python", tmp_path / "network"
    python.write_text(f"#!/bin/sh\nreadlink /proc/self/ns/net > {network}\nexit 3\n")
    python.chmod(0o755)
    argv = [*(["unshare", "--net"] if is_apart else []), "sh", "-c", "echo started; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        job_network = os.readlink(f"/proc/{process.pid}/ns/net")
        done = doctor("smoke", "--like", str(process.pid), "--ranks-per-host", "1", "--python", str(python))
        process.kill()
    assert (done.returncode, network.read_text().strip()) == (10, job_network), done


@pytest.mark.sample
@needs_torch
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_leaves_nothing_behind(number: int, code: int, tmp_path: Path) -> None:
    mark = f"DOCTOR_TEST_MARK={os.getpid()}-{number}"
    env = {**CLEAN, **dict([mark.split("=")]), "TMPDIR": str(tmp_path)}
    arguments = [sys.executable, "-m", "doctor", *TWO, "--steps", "100", "--json"]
    process = subprocess.Popen(arguments, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: len(ranks_of(mark)) > 2)  # the interpreter, and the ranks that it became
    started = {str(pid) for pid in relatives(mark)}
    process.send_signal(number)
    out, err = process.communicate(timeout=50)
    wait_for(lambda: not relatives(mark), 10.0)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert not [name for name in os.listdir("/dev/shm") if started & set(re.findall(r"\d+", name))]
    if code > 0:
        report = json.loads(out)
        SCHEMA.validate(report)
        assert (report["exit"], report["smoke"]["ended"], report["verdict"]) == (code, "interrupted", "unknown")
