"""`doctor lint` on several job scripts, and on a folder of them: findings for each file, one exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.app import application
from doctor.engine.errors import InputError
from doctor.session.lint_files import job_scripts
from doctor.session.several_launches import places
from tests.lint.launch_report import lint_report

MISSPELT = "export HCCL_CONECT_TIMEOUT=1800\ntorchrun --standalone --nproc_per_node 2 t.py\n"
LOCAL = "torchrun --nnodes 2 --nproc_per_node 2 \\\n  --master_addr localhost t.py\n"
HEALTHY = "torchrun --standalone --nproc_per_node 2 t.py\n"


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.sh").write_text(f"#!/bin/bash\n{text}")


def lint(folder: Path, *paths: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "doctor", "lint", *paths, "--json"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=folder, timeout=100)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_the_one_line_says_which_command_it_is_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, a=LOCAL)
    words = ["lint", str(tmp_path / "a.sh"), "-q", "-f", "oneline"]
    with pytest.raises(SystemExit) as end:
        application(words)(words)
    assert (end.value.code, capsys.readouterr().out[:25]) == (10, "doctor lint: FAIL checks=")


def test_two_scripts_have_findings_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, a=MISSPELT, b=LOCAL, c=HEALTHY)
    code, report, _ = lint(tmp_path, "a.sh", "b.sh", "c.sh")
    evidence = {
        o["check"]: [f["values"]["evidence"] for f in o["findings"]] for o in report["outcomes"] if o["findings"]
    }
    assert (code, evidence) == (10, {"launch-variable-misspelt": [["a.sh:2"]], "master-address-local": [["b.sh:3"]]})


def test_the_same_mistake_in_two_scripts_is_told_of_both(tmp_path: Path) -> None:
    write(tmp_path, a=LOCAL, b=LOCAL)
    command = [sys.executable, "-m", "doctor", "lint", "a.sh", "b.sh"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=100)
    evidence = [line.split()[-1] for line in done.stdout.splitlines() if "evidence:" in line]
    assert evidence == ["a.sh:3", "b.sh:3"], done.stdout


@pytest.mark.parametrize("command", [("lint", "job.sh"), ("check", "--job-script", "job.sh", "--select", "training")])
def test_a_setting_is_cited_where_it_stands_in_a_script_that_srun_runs(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 1\n\nsrun bash run.sh\n")
    launch = "torchrun --standalone --nproc_per_node 2 pretrain_gpt.py --tensor-model-parallel-size 4\n"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n\n{launch}")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    line = [sys.executable, "-m", "doctor", *command, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=100)
    found = {o["check"]: o["findings"] for o in json.loads(done.stdout)["outcomes"] if o["findings"]}
    assert "run.sh:3" in json.dumps(found), found


def test_a_saved_run_of_several_scripts_is_evaluated_alike(tmp_path: Path) -> None:
    write(tmp_path, a=MISSPELT, b=LOCAL)
    code, report, _ = lint(tmp_path, "a.sh", "b.sh", "--save", "run.json")
    again, replayed, _ = lint(tmp_path, "--from", "run.json")
    assert (code, [o["findings"] for o in report["outcomes"]]) == (again, [o["findings"] for o in replayed["outcomes"]])


def test_a_folder_stands_for_its_job_scripts(tmp_path: Path) -> None:
    (tmp_path / "jobs" / ".git").mkdir(parents=True)
    write(tmp_path / "jobs", a=HEALTHY, b=LOCAL, clean="rm -rf out\n")
    write(tmp_path / "jobs" / ".git", hook=MISSPELT)
    code, report, stderr = lint(tmp_path, "jobs")
    assert (code, [o["check"] for o in report["outcomes"] if o["findings"]]) == (10, ["master-address-local"])
    assert "jobs/clean.sh: starts no training" in stderr


def test_a_folder_without_a_job_script_is_refused(tmp_path: Path) -> None:
    write(tmp_path, clean="rm -rf out\n")
    reasons: list[str] = []
    with pytest.raises(InputError, match="no job script in this folder starts a training"):
        job_scripts([str(tmp_path)], reasons.append)
    assert len(reasons) == 1


def test_a_script_that_is_not_decided_does_not_hide_the_finding_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a="jsrun -n 4 python train.py\n", b=LOCAL)
    monkeypatch.chdir(tmp_path)
    report = lint_report(["a.sh", "b.sh"])
    assert [outcome.check for outcome in report.outcomes if outcome.findings] == ["master-address-local"]
    assert any("jsrun" in reason.text for outcome in report.outcomes for reason in outcome.unknown.values())


def test_a_comment_and_what_stands_behind_the_launch_set_nothing() -> None:
    text = "# A=1\nA=2 torchrun t.py\nA=3\n"
    assert places(text, "x.sh", 2)["A"] == "x.sh:2"


def test_each_script_has_its_own_rank_table(tmp_path: Path) -> None:
    def table(name: str, *ranks: str) -> None:
        devices = [
            {"device_id": str(n), "device_ip": f"10.0.1.{n + 1}", "rank_id": rank} for n, rank in enumerate(ranks)
        ]
        server = {"server_id": "10.0.0.1", "device": devices}
        content = {"version": "1.0", "server_count": "1", "server_list": [server], "status": "completed"}
        (tmp_path / name).write_text(json.dumps(content))

    table("good.json", "0", "1")
    table("twice.json", "0", "0")
    launch = "export RANK_TABLE_FILE={}\ntorchrun --standalone --nproc_per_node 2 t.py\n"
    tables = {name: f"{tmp_path}/{name}.json" for name in ("good", "twice", "absent")}
    write(tmp_path, **{name: launch.format(path) for name, path in tables.items()})
    for first in ("good", "absent", "twice"):
        names = sorted(tables, key=lambda name, first=first: name != first)  # type: ignore[misc]
        code, report, _ = lint(tmp_path, *(f"{name}.sh" for name in names), "--save", "run.json")
        found = {f["values"]["evidence"][-1] for o in report["outcomes"] for f in o["findings"]}
        assert (code, found, lint(tmp_path, "--from", "run.json")[0]) == (10, {"twice.sh:2"}, 10)
    assert lint(tmp_path, "good.sh", "absent.sh")[0] == 0
