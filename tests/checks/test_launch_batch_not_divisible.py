"""launch-batch-not-divisible."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-batch-not-divisible"


def test_megatron() -> None:
    assert run_check(NAME, "megatron", batch=64, micro_batch=2, tensor=4).status is Status.PASSED
    assert list_messages(run_check(NAME, "megatron", batch=36, micro_batch=2, tensor=4)) == [
        (
            "the global batch at run.sh:3 is no multiple of 8, a micro batch on each data parallel rank | observed "
            "--batch 36 (run.sh:3), --micro_batch 2 (run.sh:4), 4 data parallel ranks | expected a multiple of 8"
        )
    ]
    assert run_check(NAME, "megatron", batch=64, micro_batch=2, tensor=3).status is Status.SKIPPED


def test_deepspeed_without_the_program_may_have_other_ranks() -> None:
    assert run_check(NAME, "deepspeed", batch=256, micro_batch=4, accumulation=4).status is Status.PASSED
    assert run_check(NAME, "deepspeed", batch=128, micro_batch=4, accumulation=4).status is Status.UNKNOWN
    assert run_check(NAME, "deepspeed", batch=250, micro_batch=4, accumulation=4).status is Status.FAILED
    assert run_check(NAME, "deepspeed", batch=250, elastic=True).status is Status.SKIPPED


def test_mindformers() -> None:
    assert run_check(NAME, "mindformers", pipeline=4, micro_batches=4).status is Status.PASSED
    assert run_check(NAME, "mindformers", pipeline=4, micro_batches=2).status is Status.FAILED
    assert run_check(NAME, "mindformers", pipeline=4, micro_batches=UNDECIDED).status is Status.UNKNOWN
