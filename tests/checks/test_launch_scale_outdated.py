"""launch-scale-outdated."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_ddp

NAME = "launch-scale-outdated"

SCALED = "num_gpus = 8; base_lr = 0.1; base_lr = base_lr * num_gpus"


def test_eight_devices_on_two() -> None:
    assert judged_program(NAME, torch_ddp(before=SCALED)).status is Status.PASSED
    assert list_messages(judged_program(NAME, torch_ddp(before=SCALED), {"world_size": 2, "ranks_per_node": 2})) == [
        (
            "num_gpus at train.py:16 is not the number of ranks, and scales the batch or the "
            "learning rate | observed 8 | "
            "expected 2, from --world_size 2 (run.sh:2)"
        )
    ]


def test_what_is_computed() -> None:
    assert judged_program(NAME, torch_ddp(before=SCALED), {"world_size": UNDECIDED}).status is Status.UNKNOWN
    assert judged_program(NAME, torch_ddp()).status is Status.SKIPPED
