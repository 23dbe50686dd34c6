"""launch-gradients-summed."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import mindspore_program

NAME = "launch-gradients-summed"

DATA_PARALLEL = 'parallel_mode="data_parallel"'


def test_the_mean_is_said() -> None:
    assert judged_program(NAME, mindspore_program()).status is Status.PASSED
    assert (
        judged_program(NAME, mindspore_program(parallel=DATA_PARALLEL + ", gradients_mean=False")).status
        is Status.PASSED
    )
    assert list_messages(judged_program(NAME, mindspore_program(parallel=DATA_PARALLEL))) == [
        (
            "the gradients are summed over the ranks: train.py:9 sets data_parallel without gradients_mean | "
            "observed gradients_mean=False, the default | expected gradients_mean=True"
        )
    ]


def test_other_modes_and_other_places() -> None:
    assert (
        judged_program(NAME, mindspore_program(parallel='parallel_mode="semi_auto_parallel"')).status is Status.PASSED
    )
    assert judged_program(NAME, mindspore_program(parallel=DATA_PARALLEL + ", **more")).status is Status.UNKNOWN
    assert (
        judged_program(NAME, mindspore_program(parallel=DATA_PARALLEL, imports="import ours")).status is Status.UNKNOWN
    )
    assert judged_program(NAME, "import torch\n").status is Status.SKIPPED
