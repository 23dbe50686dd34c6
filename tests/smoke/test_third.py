"""What the smoke run adds to the records of the first two rounds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Output, Unreadable, Visit
from doctor.engine.record import HostRecord
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.session.saved_parts import smoke_run
from doctor.smoke.model import Failure, SmokeResult, SmokeRun
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run import round as smoke_round
from doctor.transport.local import Local
from tests.checks.smoke import ran

VISITED = HostRecord(Visit(python="3.11.7"), {"Sysctls": {"": Output(out="1")}})
LOST = HostRecord(Visit("refused", "port 22 refuses connections"))
SMOKE_OUTPUTS = {"SmokeStart": {"": Output(out='{"reached": true, "events": []}')}}


class Stage:
    """Stands for the launch: notes whom it was given, and returns what it was made with."""

    def __init__(self, created: SmokeResult | Exception) -> None:
        self.result, self.hosts = created, {}  # type: ignore[var-annotated]

    def __call__(self, hosts: Mapping[str, int], *arguments: Any, **more: Any) -> SmokeResult:
        self.hosts = dict(hosts)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def round3(monkeypatch: pytest.MonkeyPatch, created: SmokeResult | Exception, records: dict[str, HostRecord]) -> Any:
    stage = Stage(created)
    monkeypatch.setattr(smoke_round, "smoke", stage)
    return smoke_round.run_smoke_round(records, {"w2": 3}, Local(), SmokeOptions()), stage


def test_only_hosts_that_were_reached_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ran(4, 2)
    smoke_result = SmokeResult(run, {host: HostRecord(Visit(), SMOKE_OUTPUTS) for host in ("w1", "w2")})
    done, stage = round3(monkeypatch, smoke_result, {"w1": VISITED, "dead": LOST, "w2": VISITED})
    assert stage.hosts == {"w1": 0, "w2": 3}
    assert list(done.records) == ["w1", "dead", "w2"]
    assert done.records["dead"] == LOST
    assert done.records["w1"] == HostRecord(VISITED.visit, {**VISITED.outputs, **SMOKE_OUTPUTS})
    assert done.notes == ("the smoke run excluded 1 of 3 hosts, which could not be reached",)
    assert msgspec.convert(done.smoke, SmokeRun, str_keys=True) == run


def test_a_host_whose_agent_did_not_come_up_stays_reached_and_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ran(4, 2, Failure("not-started", (2, 3), stage="start", text="w2: no python3"))
    smoke_result = SmokeResult(
        run, {"w1": HostRecord(Visit(), SMOKE_OUTPUTS), "w2": HostRecord(Visit("no-python", "no python3"))}
    )
    done, _ = round3(monkeypatch, smoke_result, {"w1": VISITED, "w2": VISITED})
    assert done.records["w2"].visit == VISITED.visit
    fact = read_fact(done.records["w2"], SmokeStart)
    assert isinstance(fact, Unreadable)
    assert fact.root_cause == "smoke-rank-not-started"


def test_no_host_at_all_is_unknown_never_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    done, stage = round3(monkeypatch, AssertionError("nothing to start on"), {"dead": LOST})
    assert stage.hosts == {}
    assert smoke_run(done.smoke) == Unreadable("the smoke run was not started: no host could be reached")


def test_a_wish_that_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = round3(monkeypatch, ValueError("w1: has no GPU"), {"w1": VISITED})
    assert done.rejection == "w1: has no GPU"
    assert done.records["w1"].visit == VISITED.visit
    assert read_fact(done.records["w1"], SmokeStart) == Unreadable("the smoke run was not started: w1: has no GPU")
    assert smoke_run(done.smoke) == Unreadable("the smoke run was not started: w1: has no GPU")


def test_an_interrupt_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = SystemExit(143)
    done, _ = round3(monkeypatch, SmokeResult(ran(4, 2), {}, stop), {"w1": VISITED})
    assert done.stopped is stop


def test_a_python_with_mindspore_and_no_torch_is_not_run_and_nobodys_fault(tmp_path: Path) -> None:
    """By a real agent and interpreter: a job of MindSpore may be in order, and nothing is known of it."""
    (tmp_path / "mindspore").mkdir()
    (tmp_path / "mindspore" / "__init__.py").write_text("")
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    argv = [sys.executable, "-m", "doctor", "smoke", "--ranks-per-host", "2", "--python", str(python), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 12, done.stdout
    report = json.loads(done.stdout)
    assert not [outcome for outcome in report["outcomes"] if outcome["findings"]]
    assert "the smoke run was not started: " in done.stdout
    whys = {str(reason) for outcome in report["outcomes"] for reason in outcome["unknown"]}
    assert any("has MindSpore and no torch; a run with MindSpore works on CPUs" in why for why in whys), whys
