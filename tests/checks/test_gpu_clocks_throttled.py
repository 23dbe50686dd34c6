"""What gpu-clocks-throttled finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import gpu, gpus, settings
from tests.checks.run_check import messages, run_check, skipped


def test_full_clocks() -> None:
    assert messages(run_check("gpu-clocks-throttled", {"w1": [gpus()]})) == []


def test_reasons_are_named_once() -> None:
    hot = gpu(1, throttles=("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"))
    assert messages(run_check("gpu-clocks-throttled", {"w1": [gpus(hot)]})) == [
        ("w1", "GPU 1 lowers its clocks: heat and power brake of the power supply; expected no such reason")
    ]


def test_a_laptop_is_left_out() -> None:
    hot = gpus(gpu(0, throttles=("hw_slowdown",)))
    assert skipped(run_check("gpu-clocks-throttled", {"w1": [hot, settings(is_portable=True)]}))
