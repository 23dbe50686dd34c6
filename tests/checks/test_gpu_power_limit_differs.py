"""What gpu-power-limit-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import fleet, messages, run_check


def test_a_limit_that_all_hosts_have() -> None:
    assert messages(run_check("gpu-power-limit-differs", fleet(3, gpus(gpu(0, power_limit=350.0))))) == []


def test_a_host_with_another_limit() -> None:
    hosts = {**fleet(3, gpus()), "w4": [gpus(gpu(0, power_limit=500.0), gpu(1, power_limit=500.0))]}
    assert messages(run_check("gpu-power-limit-differs", hosts)) == [
        ("w4", "the power limit of its NVIDIA H100 80GB HBM3 is 500 W; 3 of 4 hosts have 700 W"),
    ]


def test_one_gpu_of_a_host_with_a_lower_limit() -> None:
    low = gpus(gpu(0), gpu(1), gpu(2, power_limit=350.5), gpu(3))
    text = "the power limit of GPU 2 is 350.5 W; {0} of {1} GPUs NVIDIA H100 80GB HBM3 have 700 W"
    assert messages(run_check("gpu-power-limit-differs", {"w1": [low]})) == [("w1", text.format(3, 4))]
    hosts = {**fleet(3, gpus()), "w4": [low]}
    assert messages(run_check("gpu-power-limit-differs", hosts)) == [("w4", text.format(27, 28))]


def test_other_products_are_not_compared() -> None:
    other = gpus(gpu(0, name="NVIDIA L4", power_limit=72.0))
    assert messages(run_check("gpu-power-limit-differs", {"w1": [gpus()], "w2": [other]})) == []


def test_one_gpu_with_a_lower_application_clock() -> None:
    clocks = (1980, 1980, 1110, 1980)
    low = gpus(*(gpu(number, clock_limit=clock) for number, clock in enumerate(clocks)))
    text = "the application clock of GPU 2 is 1110 MHz; 3 of 4 GPUs NVIDIA H100 80GB HBM3 have 1980"
    assert messages(run_check("gpu-power-limit-differs", {"w1": [low]})) == [("w1", text)]
    alike = gpus(*(gpu(number, clock_limit=1110) for number in range(4)))
    assert messages(run_check("gpu-power-limit-differs", {"w1": [alike]})) == []
