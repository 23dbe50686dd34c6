"""launch-epoch-not-set."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_ddp

NAME = "launch-epoch-not-set"


def test_set_epoch() -> None:
    assert judged_program(NAME, torch_ddp()).status is Status.PASSED
    assert list_messages(judged_program(NAME, torch_ddp(epoch=""))) == [
        (
            "every epoch has the same order: no set_epoch for the DistributedSampler at train.py:14 "
            "| observed no call of "
            "set_epoch | expected sampler.set_epoch(epoch) in the loop over epochs"
        )
    ]


def test_where_it_is_not_needed() -> None:
    assert (
        judged_program(NAME, torch_ddp(sampler="sampler = DistributedSampler(dataset, shuffle=False)", epoch="")).status
        is Status.SKIPPED
    )
    assert judged_program(NAME, torch_ddp(epoch="", imports="from .loop import run")).status is Status.UNKNOWN
