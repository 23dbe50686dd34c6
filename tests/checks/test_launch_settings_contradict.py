"""launch-settings-contradict."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-settings-contradict"


def test_precision() -> None:
    assert run_check(NAME, "deepspeed", fp16=False, bf16=True).status is Status.PASSED
    assert list_messages(run_check(NAME, "deepspeed", fp16=True, bf16=True)) == [
        "run.sh:3 sets fp16 and bf16 | observed --fp16 true (run.sh:3), --bf16 true (run.sh:4) | expected one of them"
    ]
    assert run_check(NAME, "megatron", fp16=True, bf16=UNDECIDED).status is Status.UNKNOWN


def test_names_and_numbers() -> None:
    assert run_check(NAME, "deepspeed", zero_stage=4).status is Status.FAILED
    assert run_check(NAME, "fsdp", sharding="HYBRID_SHARD").status is Status.PASSED
    assert run_check(NAME, "fsdp", sharding="SHARDED").status is Status.FAILED
    assert run_check(NAME, "megatron", virtual_layers=2).status is Status.FAILED
    assert run_check(NAME, "megatron", virtual_layers=2, pipeline=2).status is Status.PASSED
