"""What gpu-compute-prohibited finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_modes_in_which_a_job_runs() -> None:
    allowed = gpus(gpu(0, compute_mode="Default"), gpu(1, compute_mode="Exclusive_Process"), gpu(2, compute_mode=""))
    assert messages(run_check("gpu-compute-prohibited", {"w1": [allowed]})) == []


def test_prohibited() -> None:
    assert messages(run_check("gpu-compute-prohibited", {"w1": [gpus(gpu(1, compute_mode="Prohibited"))]})) == [
        ("w1", "GPU 1 is in compute mode Prohibited; expected Default or Exclusive_Process")
    ]
