"""What each process of a job checks: one process each host, and one the fleet."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.environment.job_context import choose_scope
from tests.environment.contexts import Environ, context
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN
from tests.environment.schedulers.test_modelarts import EXAMPLE as MODELARTS
from tests.environment.schedulers.test_slurm import BATCH, TASK


@pytest.mark.parametrize(
    ("environ", "requested", "chosen"),
    [
        (BATCH, "local", "local"),
        (BATCH, "cluster", "cluster"),
        (TASK, "cluster", "cluster"),
        ({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}, "auto", "cluster"),
        ({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}, "local", "local"),
        ({**TASK, "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}, "auto", "follower"),
        ({**TASK, "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}, "local", "follower"),
        (TORCHRUN, "local", "follower"),
        ({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"}, "auto", "cluster"),
        (MODELARTS, "cluster", "cluster"),
    ],
)
def test_what_is_requested(environ: Environ, requested: Any, chosen: str) -> None:
    assert choose_scope(context(environ), requested) == chosen


@pytest.mark.parametrize("counts", [(3, 1), (1, 1), (2, 5)])
def test_one_process_checks_each_host_and_one_the_fleet(counts: tuple[int, ...]) -> None:
    """salloc and mpirun placed 3 and 1 ranks on two nodes: the counts are never equal by nature."""
    chosen: list[list[str]] = []
    rank = 0
    for node, count in enumerate(counts):
        chosen.append([])
        for local in range(count):
            numbers = {"PROCID": rank, "LOCALID": local, "NODEID": node, "STEP_NUM_TASKS": sum(counts)}
            variables = {f"SLURM_{name}": str(value) for name, value in numbers.items()}
            variables["SLURM_STEP_TASKS_PER_NODE"] = ",".join(map(str, counts))
            chosen[-1].append(choose_scope(context({**TASK, **variables})))
            rank += 1
    first, *others = chosen
    assert first == ["cluster", *["follower"] * (counts[0] - 1)]
    assert others == [["local", *["follower"] * (count - 1)] for count in counts[1:]]
