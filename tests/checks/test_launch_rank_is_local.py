"""launch-rank-is-local."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_ddp

NAME = "launch-rank-is-local"

LOCAL = 'dist.init_process_group("nccl", rank=local_rank, world_size=16)'


def test_the_local_rank_on_two_hosts() -> None:
    assert judged_program(NAME, torch_ddp()).status is Status.PASSED
    assert list_messages(judged_program(NAME, torch_ddp(init=LOCAL))) == [
        (
            "init_process_group at train.py:11 gets the local rank on 2 hosts | observed "
            "rank=local_rank | expected the "
            "global rank, RANK"
        )
    ]


def test_one_host_and_hosts_from_elsewhere() -> None:
    assert judged_program(NAME, torch_ddp(init=LOCAL), {"nodes": 1}).status is Status.PASSED
    assert judged_program(NAME, torch_ddp(init=LOCAL), {"nodes": UNDECIDED}).status is Status.UNKNOWN
    assert judged_program(NAME, "import torch\n").status is Status.SKIPPED


UNNUMBERED = {"launcher": "srun", "unnumbered": "srun"}


def test_a_launcher_that_sets_no_rank() -> None:
    """The real ones: `ValueError: ... environment variable RANK expected, but not set`."""
    told = "init_process_group at train.py:11 expects RANK, and srun does not set it"
    assert told in str(list_messages(judged_program(NAME, torch_ddp(), UNNUMBERED)))


@pytest.mark.parametrize(
    ("program", "counts"),
    [
        (torch_ddp(), {}),
        (torch_ddp(), {**UNNUMBERED, "world_size": 1}),
        (torch_ddp(), {**UNNUMBERED, "world_size": UNDECIDED}),
        (torch_ddp(imports='os.environ["RANK"] = os.environ["SLURM_PROCID"]'), UNNUMBERED),
        (torch_ddp(imports='os.environ.update(RANK="0", WORLD_SIZE="1")'), UNNUMBERED),
        (torch_ddp(imports="from utils import set_ranks"), UNNUMBERED),
        (torch_ddp(init='dist.init_process_group("nccl", init_method="tcp://n1:1", rank=0, world_size=2)'), UNNUMBERED),
        (torch_ddp(init='dist.init_process_group("nccl", **settings)'), UNNUMBERED),
        (torch_ddp(init="torch.multiprocessing.spawn(main, nprocs=8)"), UNNUMBERED),
    ],
)
def test_a_rank_that_may_come_from_elsewhere(program: str, counts: dict[str, object]) -> None:
    assert not judged_program(NAME, program, counts).findings
