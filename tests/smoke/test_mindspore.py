"""Ranks of an interpreter that has MindSpore and no torch: real runs, healthy and with a fault, and under msrun.

They run where ``MINDSPORE_PYTHON`` names such an interpreter (``pip install mindspore`` in a virtual environment of its
own, and doctor with its requirements for the runs under msrun). Without it only the texts are tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.smoke.model import SmokeResult, SmokeRun
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.results.to_facts import unreached_reason
from doctor.smoke.run.mindspore_run import MINDSPORE_STAGES, reason_not_run, repeat_with_mindspore
from tests.checks.broken_off import trouble
from tests.checks.smoke import ran

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("MINDSPORE_PYTHON", "")
LACKS_TORCH = "MindSporeOnly: /opt/ms/bin/python has MindSpore 2.7.2 and no torch"
with_mindspore = pytest.mark.skipif(not PYTHON, reason="MINDSPORE_PYTHON names no interpreter with MindSpore")
HOOK = """
import importlib, os, signal
plain, seen = importlib.import_module, []
def import_module(name, *rest):
    target = plain(name, *rest)
    if name == "mindspore.mint.distributed" and not seen:
        seen.append(True)
        real, calls = target.all_reduce, []
        def all_reduce(tensor, *rest, **more):
            calls.append(1)
            if os.environ.get("RANK_ID") == "1" and len(calls) >= 9:
                {act}
            return real(tensor, *rest, **more)
        target.all_reduce = all_reduce
    return target
importlib.import_module = import_module
"""


def lacking_torch(world: int = 2, waiting: tuple[int, ...] = ()) -> SmokeResult:
    culprits = tuple(rank for rank in range(world) if rank not in waiting)
    failure = trouble("not-started", *culprits, stage="start", text=LACKS_TORCH, waiting_ranks=waiting)
    return SmokeResult(ran(world, 1, failure), {})


class TestWhatIsSaid:
    def test_hosts_without_torch_run_again_with_mindspore(self) -> None:
        requested: list[SmokeOptions] = []

        def repeat(options: SmokeOptions) -> SmokeResult:
            requested.append(options)
            return SmokeResult(ran(2, 1), {})

        result, options = repeat_with_mindspore(lacking_torch(), SmokeOptions(), repeat)
        assert [(smoke_options.library, smoke_options.stages) for smoke_options in requested] == [
            ("mindspore", MINDSPORE_STAGES)
        ]
        assert options == requested[0]
        assert "MindSpore" in result.run.notes[0] and result.run.ended == "complete"

    def test_not_where_only_some_hosts_lack_torch(self) -> None:
        mixed = lacking_torch(3, waiting=(2,))
        mixed = msgspec.structs.replace(mixed, run=msgspec.structs.replace(mixed.run, import_seconds=1.5))
        assert repeat_with_mindspore(mixed, SmokeOptions(), pytest.fail)[0] is mixed  # type: ignore[arg-type]
        assert not reason_not_run(mixed)

    def test_not_where_another_host_lacks_mindspore(self) -> None:
        """It has torch, and had not imported it when the others said that they lack it."""
        text = "ModuleNotFoundError: No module named 'mindspore'"
        again = SmokeResult(ran(3, 1, trouble("not-started", 2, stage="start", text=text)), {})
        early = lacking_torch(3, waiting=(2,))
        assert repeat_with_mindspore(early, SmokeOptions(), lambda options: again) == (early, SmokeOptions())

    def test_a_rank_that_a_launcher_started_says_it_with_its_exit_status(self) -> None:
        failure = trouble(
            "not-started", 0, 1, stage="start", text=LACKS_TORCH.replace("MindSporeOnly", "exit status 4")
        )
        reason = reason_not_run(SmokeResult(ran(2, 1, failure), {}))
        assert reason.startswith("/opt/ms/bin/python has MindSpore 2.7.2 and no torch; ")

    def test_what_is_not_run_is_said(self) -> None:
        run: SmokeRun = ran(2, 1)
        plan = {"library": "mindspore", "stages": MINDSPORE_STAGES}
        run = msgspec.structs.replace(run, plan=msgspec.structs.replace(run.plan, **plan))
        assert unreached_reason(run, "training")[0] == "the training stage does not run with MindSpore"
        assert "--backend gloo" in reason_not_run(lacking_torch())


def smoke(*arguments: str, folder: Path | None = None) -> dict[str, Any]:
    """A run of the command on this machine."""
    environ = {**os.environ, **({"PYTHONPATH": str(folder)} if folder else {})}
    argv = [sys.executable, "-m", "doctor", "smoke", "--python", PYTHON, "--json", *arguments]
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def failed(report: dict[str, Any]) -> dict[str, str]:
    """The message of the first finding of each failed check."""
    return {
        outcome["check"]: outcome["findings"][0]["message"]
        for outcome in report["outcomes"]
        if outcome["status"] == "failed"
    }


@with_mindspore
@pytest.mark.timeout(300)
class TestRanks:
    def test_healthy_ranks(self) -> None:
        report = smoke("--ranks-per-host", "3")
        assert (report["exit"], failed(report)) == (0, {})
        assert [stage["name"] for stage in report["smoke"]["stages"]] == list(MINDSPORE_STAGES)

    @pytest.mark.parametrize(
        ("act", "check"),
        [
            ("os.kill(os.getpid(), signal.SIGKILL)", "smoke-rank-died"),
            ("os.kill(os.getpid(), signal.SIGSTOP)", "smoke-rank-stopped"),
            ("__import__('time').sleep(1000)", "smoke-rank-blocked"),
            ("return None", "smoke-rank-left"),
            ("real(tensor, *rest, **more); tensor.assign_value(tensor * 2); return None", "smoke-collective-wrong"),
        ],
    )
    def test_a_rank_with_a_fault(self, tmp_path: Path, act: str, check: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(HOOK.replace("{act}", act))
        report = smoke("--ranks-per-host", "3", folder=tmp_path)
        results = failed(report)
        # A rank that skips a call may end with an error of its next one before the others are seen to wait.
        name = "smoke-rank-died" if check == "smoke-rank-left" and check not in results else check
        assert "rank 1" in results[name], report["smoke"]["failures"]

    def test_msrun(self, tmp_path: Path) -> None:
        msrun = Path(PYTHON).with_name("msrun")
        argv = [str(msrun), "--worker_num=2", "--local_worker_num=2", "--join=True", f"--log_dir={tmp_path}"]
        argv += [str(ROOT / "doctor/smoke/__main__.py"), "--json"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{msrun.parent}:{os.environ['PATH']}"}
        subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=280, check=False)
        report = json.loads((tmp_path / "scheduler.log").read_text().partition("{")[2].join(["{", ""]))
        assert (report["exit"], failed(report)) == (0, {})
