"""What the check launch-restart-shares-store says of a launch, beside what torchrun's restart does.

With `pytest --full`: four launches whose first attempt fails, 10 to 20 s each where the restart does, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.result import Status
from tests.checks.test_launch_restart_shares_store import outcome
from tests.smoke.slurm import free_ports

pytestmark = [pytest.mark.torch, pytest.mark.full]

PROGRAM = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
value = torch.ones(4)
dist.all_reduce(value)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 0:
    raise ValueError("the first attempt fails")
dist.all_reduce(value)
print("trained", flush=True)
dist.destroy_process_group()
"""
LAUNCHES = {
    "static": (["--master-port", "PORT"], "0", {}),
    "static, with the variable": (["--master-port", "PORT"], "1", {"own_store": "1"}),
    "c10d, with the variable": (["--standalone"], "1", {"rdzv_backend": "c10d", "own_store": "1"}),
}
"""What is launched, and what the check is given of it. c10d without the variable works by chance: see the check."""


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_check_fails_where_the_restart_does(name: str, tmp_path: Path) -> None:
    import torch

    options, own_store, settings = LAUNCHES[name]
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    arguments = [str(free_ports(1)[0]) if word == "PORT" else word for word in options]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "4",
        "--max-restarts",
        "1",
        *arguments,
    ]
    run = subprocess.run(
        [*command, str(program)],
        env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": own_store, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    trained = run.stdout.count("trained") == 4
    assert trained is (run.returncode == 0), run.stderr[-2000:]
    assert (outcome(torch.__version__, restarts=1, **settings).status is Status.PASSED) is trained
