"""launch-model-not-divisible."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-model-not-divisible"


def test_heads() -> None:
    assert run_check(NAME, "megatron", heads=32, tensor=4).status is Status.PASSED
    assert list_messages(run_check(NAME, "megatron", heads=30, tensor=4)) == [
        (
            "the attention heads at run.sh:3 cannot be divided by 4 tensor parallel ranks | "
            "observed --heads 30 (run.sh:3), "
            "--tensor 4 (run.sh:4) | expected a multiple of 4"
        )
    ]


def test_layers_may_be_uneven_by_intent() -> None:
    assert run_check(NAME, "megatron", layers=31, pipeline=2).status is Status.FAILED
    assert run_check(NAME, "megatron", layers=31, pipeline=2, uneven_layers=15).status is Status.SKIPPED
    assert run_check(NAME, "mindformers", layers=31, pipeline=2).status is Status.PASSED
    assert run_check(NAME, "mindformers", layers=1, pipeline=2).status is Status.FAILED


def test_groups_that_are_repeated() -> None:
    assert run_check(NAME, "megatron", grouped=True, groups=2, tensor=8).status is Status.SKIPPED
    assert run_check(NAME, "megatron", grouped=True, groups=6, tensor=4).status is Status.FAILED
    assert run_check(NAME, "megatron", groups=6, tensor=4).status is Status.SKIPPED


def test_what_is_not_decided_hides_no_finding() -> None:
    outcome = run_check(NAME, "megatron", heads=30, tensor=4, layers=UNDECIDED, pipeline=2)
    assert outcome.status is Status.FAILED and "$LAYERS" in outcome.unknown[""].text
