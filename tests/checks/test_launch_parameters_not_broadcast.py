"""launch-parameters-not-broadcast."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import mindspore_program

NAME = "launch-parameters-not-broadcast"

DATA_PARALLEL = 'parallel_mode="data_parallel", gradients_mean=True'


def test_a_seed_or_the_broadcast() -> None:
    assert judged_program(NAME, mindspore_program()).status is Status.PASSED
    assert (
        judged_program(NAME, mindspore_program(seed="", parallel=DATA_PARALLEL + ", parameter_broadcast=True")).status
        is Status.PASSED
    )
    assert list_messages(judged_program(NAME, mindspore_program(seed="", parallel=DATA_PARALLEL))) == [
        (
            "each rank may start from other parameters: train.py:9 sets data_parallel without "
            "parameter_broadcast or a seed | "
            "observed parameter_broadcast=False, and no set_seed | expected parameter_broadcast=True, or set_seed"
        )
    ]


def test_what_is_elsewhere_is_not_decided() -> None:
    assert judged_program(NAME, mindspore_program(seed="", imports="import ours")).status is Status.UNKNOWN
    assert judged_program(NAME, "import torch\n").status is Status.SKIPPED
