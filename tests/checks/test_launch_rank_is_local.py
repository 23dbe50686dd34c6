"""launch-rank-is-local."""

from __future__ import annotations

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
