"""launch-type-not-reduced."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_npu

NAME = "launch-type-not-reduced"

REDUCED = "dist.all_reduce(torch.zeros(1, dtype=torch.{}).npu())"


def reduces(kind: str) -> str:
    return torch_npu(within=REDUCED.format(kind))


def test_types_of_a2() -> None:
    assert judged_program(NAME, reduces("float32")).status is Status.PASSED
    assert judged_program(NAME, reduces("bfloat16"), product="A2").status is Status.PASSED
    assert list_messages(judged_program(NAME, reduces("float64"), product="A2")) == [
        (
            "train.py:25 all-reduces float64, which HCCL does not support | observed float64 | expected int8, "
            "int16, int32, int64, "
            "float16, float32, bfloat16"
        )
    ]


def test_types_of_a1() -> None:
    assert judged_program(NAME, reduces("int16"), product="A1").status is Status.FAILED
    assert judged_program(NAME, reduces("int16")).status is Status.UNKNOWN


def test_other_backends() -> None:
    assert judged_program(NAME, reduces("float64").replace("hccl", "gloo")).status is Status.SKIPPED
