"""What gpu-persistence-off finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_on_and_products_for_desktops() -> None:
    assert messages(run_check("gpu-persistence-off", {"w1": [gpus()]})) == []
    desktop = gpus(gpu(0, name="NVIDIA GeForce RTX 4090", persistence=False), gpu(1, persistence=None))
    assert messages(run_check("gpu-persistence-off", {"w1": [desktop]})) == []


def test_off() -> None:
    off = gpus(*(gpu(index, persistence=index < 2) for index in range(4)))
    assert messages(run_check("gpu-persistence-off", {"w1": [off]})) == [
        ("w1", "persistence mode is off for 2 GPUs: 2 and 3")
    ]
