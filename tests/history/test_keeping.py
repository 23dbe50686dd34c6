"""Every run is kept, and nothing of that fails, slows or changes a run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import pytest

from doctor.config.file import ConfigError, ConfigFile, HistorySettings, parse_history
from doctor.engine.report_parts import FindingAge
from doctor.environment.job_context import JobContext
from doctor.history import run_store
from doctor.preflight.run import RunKeeper
from doctor.session import run_history
from doctor.session.run_history import HistoryOptions, join_unless_blocked, remember
from tests import preloaded
from tests.history.runs import CHECKS, LINK, at, report
from tests.schemas import schema_file

SITE_CHECK = '''
from doctor import WARNING, Finding, check
from doctor.facts.visit import Reachability

@check(severity=WARNING)
def always_found(reach: Reachability):
    """Nothing is found."""
    yield Finding("found")
'''


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "always_found.py").write_text(SITE_CHECK)
    return tmp_path / "site"


def doctor(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not re.match("DOCTOR_|XDG_|SLURM|RANK", key)}
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "doctor", *arguments]
    return preloaded.run(
        argv, cwd=cwd, env={**clean, **root, **environ}, capture_output=True, text=True, timeout=300, check=False
    )


def kept(state: Path) -> list[Path]:
    return sorted((state / "doctor" / "history").glob("*"))


def test_a_second_run_tells_since_when_and_the_history_shows_both(tmp_path: Path, state: Path, site: Path) -> None:
    arguments = ("check", "--checks", str(site), "--select", "always-found")
    first, second = (doctor(*arguments, cwd=tmp_path, XDG_STATE_HOME=str(state)) for _ in range(2))
    assert first.stderr == second.stderr == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert "when: " not in first.stdout
    assert re.search(r"^ {8}when: for 2 runs \(since \d\d:\d\d UTC or before\)$", second.stdout, re.M)
    assert len(kept(state)) == 2
    completed = doctor("history", "--json", cwd=tmp_path, XDG_STATE_HOME=str(state))
    (track,) = json.loads(completed.stdout)["tracks"]
    assert (track["check"], track["kind"], track["states"]) == ("always-found", "stays", ["warning", "warning"])
    unknown = doctor("history", "always-fund", cwd=tmp_path, XDG_STATE_HOME=str(state))
    assert (unknown.returncode, unknown.stdout) == (78, "")
    assert "did you mean always-found?" in unknown.stderr


def test_a_preflight_is_kept_after_its_line_and_its_report_has_the_ages(
    tmp_path: Path, state: Path, site: Path
) -> None:
    arguments = (
        "preflight",
        "--scope",
        "local",
        "--checks",
        str(site),
        "--select",
        "always-found",
        "--report",
        "r.json",
    )
    for _ in range(2):
        done = doctor(*arguments, cwd=tmp_path, XDG_STATE_HOME=str(state))
        assert done.stdout.count("\n") == 1
    document = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(document, json.loads(schema_file("report").read_text("utf-8")))
    (finding,) = (finding for outcome in document["outcomes"] for finding in outcome["findings"])
    (age,) = finding["ages"]
    assert (age["state"], age["runs"], age["at_least"]) == ("present", 2, True)
    assert len(kept(state)) == 2


@pytest.mark.parametrize(
    ("arguments", "environ", "settings"),
    [
        (("--no-history",), {}, ""),
        ((), {"DOCTOR_HISTORY": "off"}, ""),
        ((), {}, "[history]\nkeep = false\n"),
    ],
)
def test_a_run_may_be_kept_out(
    tmp_path: Path, state: Path, arguments: tuple[str, ...], environ: dict[str, str], settings: str
) -> None:
    (tmp_path / "doctor.toml").write_text(settings)
    more = {"XDG_STATE_HOME": str(state), **environ}
    done = doctor("check", "--select", "host-unreachable", *arguments, cwd=tmp_path, **more)
    assert (done.returncode, done.stderr) == (0, "")
    assert not state.exists()


def test_a_place_that_cannot_be_used_costs_one_line(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    arguments = ("check", "--select", "host-unreachable")
    kept_out, done = (
        doctor(*arguments, *more, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
        for more in (("--no-history",), ())
    )
    assert done.returncode == kept_out.returncode == 0
    assert re.fullmatch(r"doctor: history: .*state/doctor/history: .*; this run is not saved\n", done.stderr)
    assert done.stdout.count("\n") == kept_out.stdout.count("\n")


def test_a_run_without_a_home_is_quiet(tmp_path: Path) -> None:
    done = doctor("check", "--select", "host-unreachable", cwd=tmp_path, HOME=str(tmp_path / "absent"))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[history]\nkeep = 1", 'keep: "1"; expected true or false'),
        ("[history]\nruns = 0", 'runs: "0"; expected a number from 1 to 100000'),
        ("[history]\ndays = true", 'days: "True"; expected a number'),
        ("[history]\nrun = 5", '"run": no such key; did you mean runs?'),
        ("history = 5", "expected one table"),
    ],
)
def test_settings_that_cannot_be_followed_are_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_history(ConfigFile("doctor.toml", text))


def test_settings() -> None:
    text = "[history]\nruns = 10\ndays = 7\nmebibytes = 2\n[[waive]]\n"
    assert parse_history(ConfigFile("doctor.toml", text)) == HistorySettings(True, 10, 7, 2)
    assert not parse_history(ConfigFile(), {"DOCTOR_HISTORY": "OFF"}).keep
    assert parse_history(ConfigFile(), {"DOCTOR_HISTORY": ""}).keep


class TestRemember:
    def environ(self, state: Path) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(state), "DOCTOR_CONFIG": os.devnull}

    def test_the_report_gets_the_ages(self, state: Path) -> None:
        for minute, letter in enumerate(".E", 1):
            remember(report(minute, n1=letter), CHECKS, HistoryOptions("check"), environ=self.environ(state))
        now = remember(report(3, n1="E"), CHECKS, HistoryOptions("check"), environ=self.environ(state))
        assert now.ages == {(LINK, "n1"): FindingAge("present", at(2), 2)}

    def test_a_file_server_that_hangs_is_waited_for_only_so_long(
        self, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        release = threading.Event()
        monkeypatch.setattr(run_history, "open_history", lambda *_, **__: release.wait(60))
        now = report(1, n1="E")
        assert remember(now, CHECKS, HistoryOptions("check", seconds=0.05), environ=self.environ(state)) is now
        release.set()
        assert capsys.readouterr().err == "doctor: history: no answer within 0.05 s; this run is not saved\n"

    def test_a_full_disk_costs_one_line(
        self, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(run_store.HistoryFolder, "write", full)
        remember(report(1, n1="E"), CHECKS, HistoryOptions("check"), environ=self.environ(state))
        assert capsys.readouterr().err == "doctor: history: No space left on device; this run is not saved\n"

    def test_a_run_without_hosts_is_none(self, state: Path) -> None:
        remember(report(1), CHECKS, HistoryOptions("check"), environ=self.environ(state))
        assert not state.exists()

    def test_what_is_predicted_for_after_a_reboot_is_neither_kept_nor_compared(self, state: Path) -> None:
        for minute in (1, 2):
            remember(report(minute, n1="."), CHECKS, HistoryOptions("check"), environ=self.environ(state))
        predicted = msgspec.structs.replace(report(3, n1="E"), after_reboot=True)
        assert remember(predicted, CHECKS, HistoryOptions("check"), environ=self.environ(state)) is predicted
        assert len(kept(state)) == 2


@pytest.mark.parametrize(
    ("context", "is_kept"),
    [
        (JobContext(), True),
        (JobContext(started="prolog"), True),
        (JobContext(started="ranks", rank=0, world_size=512), True),
        (JobContext(started="ranks", rank=8, local_rank=0, world_size=512), False),
        (JobContext(started="hosts", node_rank=3), False),
        (JobContext(started="hosts", node_rank=0), True),
    ],
)
def test_of_a_job_only_the_process_that_evaluates_all_hosts_keeps_it(context: JobContext, is_kept: bool) -> None:
    verdict = SimpleNamespace(gathered=SimpleNamespace(context=context))
    keeper = RunKeeper(verdict, SimpleNamespace(keeps_history=True), {})  # type: ignore[arg-type]
    assert keeper.is_kept == is_kept


class TestBusyMachine:
    def test_a_thread_that_runs_is_waited_for_longer_than_one_that_is_blocked(self) -> None:
        ended = threading.Event()

        def work() -> None:
            while time.thread_time() < 0.3:
                pass

        assert join_unless_blocked(started(work), blocked_seconds=0.1, most_seconds=60)
        assert not join_unless_blocked(started(lambda: ended.wait(60)), blocked_seconds=0.1, most_seconds=60)
        assert not join_unless_blocked(started(work), blocked_seconds=60, most_seconds=0.05)
        ended.set()

    def test_twenty_at_once_on_one_cpu_are_all_kept(self, state: Path) -> None:
        """Each waits for the CPU much longer than its file system may take."""
        environ = {"XDG_STATE_HOME": str(state), "DOCTOR_CONFIG": os.devnull}
        now = report(1, **{f"n{number}": "E" for number in range(3000)})
        options = HistoryOptions("check", seconds=0.15)
        remember(now, CHECKS, options, environ=environ)  # the imports
        for file in kept(state):
            file.unlink()
        cpu = min(os.sched_getaffinity(0))
        children = []
        for _ in range(20):
            child = os.fork()
            if not child:
                os.sched_setaffinity(0, {cpu})
                remember(now, CHECKS, options, environ=environ)
                os._exit(0)
            children.append(child)
        assert {os.waitpid(child, 0)[1] for child in children} == {0}
        assert len(kept(state)) == 20


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
