"""launch-parallel-mode-refused."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import mindspore_program

NAME = "launch-parallel-mode-refused"

SEMI = 'parallel_mode="semi_auto_parallel"'


def test_pynative_mode() -> None:
    assert judged_program(NAME, mindspore_program(parallel=SEMI)).status is Status.PASSED
    assert list_messages(judged_program(NAME, mindspore_program(mode="ms.PYNATIVE_MODE", parallel=SEMI))) == [
        (
            "train.py:9 sets a parallel mode that PyNative mode does not run | observed semi_auto_parallel with "
            "PYNATIVE_MODE (train.py:7) | expected GRAPH_MODE, or data_parallel"
        )
    ]


def test_strategies() -> None:
    program = mindspore_program(parallel=SEMI, network="self.multiply = ops.MatMul().shard(((3, 1), (1, 1)))")
    assert judged_program(NAME, program).status is Status.FAILED
    assert judged_program(NAME, program, {"world_size": 12}).status is Status.PASSED
    assert judged_program(NAME, program, {"world_size": UNDECIDED}).status is Status.UNKNOWN


def test_a_mode_from_elsewhere_is_not_decided() -> None:
    outcome = judged_program(NAME, mindspore_program(parallel="parallel_mode=config.mode"))
    assert outcome.unknown[""].text == "not decided: parallel_mode config.mode (train.py:9)"
