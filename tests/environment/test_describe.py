"""A job context in words: for every launcher in every scheduler, whole and with variables missing."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from doctor.environment.launchers import launchers
from doctor.environment.schedulers import schedulers
from tests.environment.contexts import Environ, context, launcher_examples, scheduler_examples

NOTHING: tuple[str, Environ] = ("", {})
MARKERS = [(launcher.name, dict.fromkeys(launcher.markers, "0")) for launcher in launchers() if launcher.markers]
ROOT = Path(__file__).resolve().parents[2]
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize(
    ("launched", "scheduled"),
    list(product([NOTHING, *launcher_examples(), *MARKERS], [NOTHING, *scheduler_examples()])),
    ids=lambda named: f"{named[0] or 'no'}-{len(named[1])}",
)
def test_every_launcher_in_every_scheduler_is_described(
    launched: tuple[str, Environ], scheduled: tuple[str, Environ]
) -> None:
    """Each with all variables, then without each one in turn."""
    environ = {**scheduled[1], **launched[1]}
    kinds = {"alone", "rank-table", *(launcher.kind for launcher in launchers()), *(item.name for item in schedulers())}
    for variables in (environ, *({**environ, absent: ""} for absent in environ)):
        detected = context(variables)
        assert detected.kind in kinds
        assert detected.description and detected.description.isprintable()
        assert detected.tag.split(":")[0].split("/")[0] == detected.kind.replace("alone", "no-job")


@pytest.mark.parametrize(("name", "environ"), [item for item in launcher_examples() if item[1]])
def test_a_launch_without_a_scheduler_is_called_by_its_launchers_kind(name: str, environ: Environ) -> None:
    environ = {
        variable: value for variable, value in environ.items() if variable not in ("SLURM_JOB_ID", "FLUX_JOB_ID")
    }
    kinds = {launcher.name: launcher.kind for launcher in launchers()}
    detected = context(environ)
    assert (detected.kind, detected.tag, detected.launcher) == (kinds[name], kinds[name], name)


def test_a_schedulers_own_launcher_is_not_named_twice() -> None:
    assert context({**STEP, "SLURM_JOB_ID": "7"}).tag == "slurm:7"
    foreign = context({**STEP, "PET_NNODES": "2", "PET_NODE_RANK": "1"})
    assert (foreign.tag, foreign.description) == ("kubeflow/srun", "Kubeflow, srun, step 0, task 0 of 2")


def test_a_preflight_of_a_step_without_the_jobs_variables_ends_with_a_verdict() -> None:
    """It ended in a KeyError and exit code 70, which stops a job whose hosts are healthy."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **STEP}
    argv = (sys.executable, "-m", "doctor", "preflight", "--select", "python3-missing", "--budget", "30")
    result = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 12, result.stderr
    assert result.stdout.startswith("doctor preflight: UNKNOWN nodes=1/1 why=hosts-unknown scope=this-host where=srun ")
    assert "srun does not list them" in result.stderr
    argv = (*argv, "--scope", "local")
    result = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0
    assert result.stdout.startswith("doctor preflight: OK nodes=1/1 scope=this-host where=srun ")
