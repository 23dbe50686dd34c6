"""launch-data-not-sharded."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import mindspore_program, torch_ddp

NAME = "launch-data-not-sharded"

BARE = {"sampler": "", "loader": "DataLoader(dataset, batch_size=32)", "epoch": ""}


def test_a_sampler() -> None:
    assert judged_program(NAME, torch_ddp()).status is Status.PASSED
    assert list_messages(
        judged_program(NAME, torch_ddp(**BARE).replace("import DistributedSampler", "import Sampler"))
    ) == [
        (
            "every rank reads all of the data: the DataLoader at train.py:14 has no DistributedSampler | observed "
            "DataLoader without a sampler, with DistributedDataParallel | expected sampler=DistributedSampler(dataset)"
        )
    ]


def test_one_rank_and_other_places() -> None:
    assert judged_program(NAME, torch_ddp(**BARE), {"world_size": 1}).status is Status.SKIPPED
    assert judged_program(NAME, torch_ddp(**BARE, imports="from ours import split")).status is Status.UNKNOWN


def test_mindspore() -> None:
    assert judged_program(NAME, mindspore_program()).status is Status.PASSED
    assert judged_program(NAME, mindspore_program(shards="")).status is Status.FAILED
