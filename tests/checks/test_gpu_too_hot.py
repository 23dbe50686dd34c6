"""What gpu-too-hot finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import gpu, gpus, settings
from tests.checks.run_check import messages, run_check, skipped


@pytest.mark.parametrize(
    "change", [{"temperature": 83}, {"temperature": None}, {"temperature_limit": None}, {"temperature_limit": 0}]
)
def test_cool_enough_or_not_reported(change: dict[str, int | None]) -> None:
    assert messages(run_check("gpu-too-hot", {"w1": [gpus(gpu(0, **change))]})) == []


def test_from_three_degrees_below() -> None:
    assert messages(run_check("gpu-too-hot", {"w1": [gpus(gpu(3, temperature=84))]})) == [
        ("w1", "GPU 3 is at 84 C; it slows down at 87 C")
    ]


def test_a_laptop_is_left_out() -> None:
    assert skipped(run_check("gpu-too-hot", {"w1": [gpus(gpu(3, temperature=99)), settings(is_portable=True)]}))
