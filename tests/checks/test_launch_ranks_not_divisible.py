"""launch-ranks-not-divisible."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-ranks-not-divisible"


def test_the_product_divides_the_ranks() -> None:
    assert run_check(NAME, "megatron", tensor=4, pipeline=2).status is Status.PASSED
    assert list_messages(run_check(NAME, "megatron", tensor=4, pipeline=3)) == [
        (
            "the parallel sizes at run.sh:3 do not fit 16 ranks | observed a product of 12: --tensor 4 (run.sh:3), "
            "--pipeline 3 (run.sh:4) | expected a divisor of 16, from --world_size 16 (run.sh:2)"
        )
    ]


def test_mindformers_wants_the_product_itself() -> None:
    assert run_check(NAME, "mindformers", data=4, tensor=4).status is Status.PASSED
    assert run_check(NAME, "mindformers", data=2, tensor=4).status is Status.FAILED
    assert run_check(NAME, "mindformers", data=2, tensor=4, use_parallel=False).status is Status.SKIPPED
    assert run_check(NAME, "mindformers", data=2, tensor=4, parallel_mode=0).status is Status.SKIPPED


def test_context_and_experts_count_differently_between_versions() -> None:
    outcome = run_check(NAME, "megatron", tensor=2, context=2, expert=16, expert_tensor=1)
    assert outcome.status is Status.PASSED
    outcome = run_check(NAME, "megatron", tensor=2, context=2, expert=16)
    assert outcome.status is Status.UNKNOWN and "versions" in outcome.unknown[""].text


def test_a_size_that_is_not_decided() -> None:
    outcome = run_check(NAME, "megatron", tensor=UNDECIDED)
    assert outcome.unknown[""].text == "not decided: --tensor $TENSOR (run.sh:3)"
    assert run_check(NAME).status is Status.SKIPPED
