"""launch-device-not-chosen."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_ddp

NAME = "launch-device-not-chosen"


def test_a_device_for_each_rank() -> None:
    assert judged_program(NAME, torch_ddp()).status is Status.PASSED
    assert list_messages(judged_program(NAME, torch_ddp(device="pass", local_rank="pass"))) == [
        (
            "all 8 ranks of a host use device 0: nothing chooses a device before train.py:11 | "
            "observed no set_device, and "
            "LOCAL_RANK is not used | expected set_device with the local rank"
        )
    ]


def test_one_rank_gloo_and_other_places() -> None:
    bare = {"device": "pass", "local_rank": "pass"}
    assert judged_program(NAME, torch_ddp(**bare), {"ranks_per_node": 1}).status is Status.PASSED
    assert judged_program(NAME, torch_ddp(backend="gloo", **bare)).status is Status.SKIPPED
    assert judged_program(NAME, torch_ddp(imports="import ours", **bare)).status is Status.UNKNOWN
    assert judged_program(NAME, torch_ddp(**bare), {"ranks_per_node": UNDECIDED}).status is Status.UNKNOWN
