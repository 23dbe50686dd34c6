"""What gpu-power-limit-differs finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import fleet, messages, run_check


def test_a_limit_that_all_hosts_have() -> None:
    assert messages(run_check("gpu-power-limit-differs", fleet(3, gpus(gpu(0, power_limit=350.0))))) == []


def test_a_host_with_another_limit() -> None:
    hosts = {**fleet(3, gpus()), "w4": [gpus(gpu(0), gpu(1, power_limit=500.0))]}
    ((host, text),) = messages(run_check("gpu-power-limit-differs", hosts))
    assert (host, text) == (
        "w4",
        "the power limit of its NVIDIA H100 80GB HBM3 is 500 and 700 W; 3 of 4 hosts have 700 W",
    )


def test_other_products_are_not_compared() -> None:
    other = gpus(gpu(0, name="NVIDIA L4", power_limit=72.0))
    assert messages(run_check("gpu-power-limit-differs", {"w1": [gpus()], "w2": [other]})) == []
