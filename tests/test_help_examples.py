"""The examples at the end of each help are run as they stand, in a shell, on test hosts in the place of those named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from doctor.cli.app import COMMANDS, application, help_table, long_names
from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet, merge
from tests.hosts.npu import npu_fleet

pytestmark = [pytest.mark.hosts, pytest.mark.full, pytest.mark.torch]
ROOT = Path(__file__).parents[1]
NOT_RUN = {
    "slurm:": "needs Slurm: tests/diagnose/test_slurm.py",
    "--attach": "needs a job that runs: tests/watch/test_attached_run.py",
    "--log train.log": "follows the log until it is interrupted: tests/watch/test_follow_logs.py",
    "--apply": "asks at a terminal: tests/playbooks/test_with_doctor_fix.py",
    "--for 10m": "takes ten minutes",
    "mpirun": "needs Open MPI on the hosts: tests/watch/test_rehearsal.py",
    "doctor-logs-": "the name has the time of the archive that the example before it writes",
    "--undo": "tests/playbooks/test_with_doctor_fix.py takes fixes back",
    "--tier smoke": "needs torch on the hosts",
    "doctor smoke 'node": "needs torch on the hosts",
}
"""Words of examples that are not run here, and why."""
FOUND = {
    "doctor diagnose": {0, 10},
    "doctor lint": {0, 11},
    "doctor history": {0, 78},  # the host of the example is in no run
    "doctor changes": {0, 78},  # no run of these hosts is saved yet
    "doctor baseline": {0, 78},  # no run is saved yet
    "doctor preflight --need 15": {10},  # there are no 15
    "doctor merge": {12},  # doctor node ran on this machine alone
    "doctor rehearse": {0, 10},
}
"""Exit codes of the examples that begin so, where others than 0 are right."""
TRAIN = """\
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""
FILES = {
    "train.py": TRAIN,
    "train.sh": "#!/bin/bash\ntorchrun --nproc-per-node 2 train.py\n",
    "train.log": "".join(f"step {step} loss {4 - step / 50:.3f}\n" for step in range(1, 60)),
    "logs/rank0.log": "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n",
}


def lines_of(command: str) -> list[str]:
    return [line for line, _ in help_table().examples[command] if not any(word in line for word in NOT_RUN)]


def takes_ssh_config(command: str) -> bool:
    group: Any = get_command(application([command]))
    return any("ssh-config" in long_names(option) for option in group.commands[command].params)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Two hosts with NPUs."""
    hosts = {name: merge(PREPARED, values) for name, values in npu_fleet("A2", 2).items()}
    return make_fleet(2, hosts, shm="4g")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", [name for name in COMMANDS if lines_of(name)])
def test_examples_of_the_help_run(command: str, fleet: Fleet, folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "hosts").write_text("".join(f"{host}\n" for host in fleet.hosts))
    config = f'-F "{fleet.ssh_config}"' if takes_ssh_config(command) else ""
    start = f'doctor() {{ name=$1; shift; "{sys.executable}" -m doctor "$name" {config} "$@"; }}\n'
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    paths = {
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{bare['PATH']}",
    }
    if command in ("diagnose", "bundle-logs"):
        for host in fleet.hosts:
            fleet.write(host, "/var/log/job/rank0.log", FILES["logs/rank0.log"])
    if command == "merge":
        shell(None, f"{start}doctor node --out shared", folder, bare | paths)
    for saved in ("run.json", "old.json") if command == "report" else ():
        shell(fleet, f"{start}doctor check --select memory --save {saved}", folder, bare | paths)
    for line in lines_of(command):
        typed = re.sub(r"'node\[[\d-]+\]'", f"'{','.join(fleet.hosts)}'", line).replace("node7", fleet.hosts[0])
        typed = typed.replace("/shared/run", str(folder / "shared"))
        done = shell(fleet if typed != line else None, start + typed, folder, bare | paths)
        expected = next((codes for words, codes in FOUND.items() if line.startswith(words)), {0})
        assert done.returncode in expected, (line, done.stdout[-2000:], done.stderr[-2000:])
        assert "Traceback" not in done.stderr, line


def shell(fleet: Fleet | None, text: str, folder: Path, environ: dict[str, str]) -> Any:
    """Runs it where the hosts are reached, or on this machine."""
    argv = ["bash", "-c", text]
    if fleet:
        return fleet.run(argv, cwd=folder, env=environ, timeout=240)
    return subprocess.run(argv, cwd=folder, env=environ, timeout=240, capture_output=True, text=True)


def test_what_is_not_run_is_in_an_example() -> None:
    lines = [line for lines in help_table().examples.values() for line, _ in lines]
    assert [words for words in (*NOT_RUN, *FOUND) if not any(words in line for line in lines)] == []
