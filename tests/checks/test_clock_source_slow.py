"""What clock-source-slow finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import settings
from tests.checks.run_check import messages, run_check, skipped


@pytest.mark.parametrize("source", ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "xen"])
def test_fast_clocks(source: str) -> None:
    assert messages(run_check("clock-source-slow", {"w1": [settings(clock_source=source)]})) == []


@pytest.mark.parametrize("source", ["hpet", "acpi_pm"])
def test_slow_clocks(source: str) -> None:
    assert messages(run_check("clock-source-slow", {"w1": [settings(clock_source=source)]})) == [
        ("w1", f"the kernel's clock source is {source}; available are tsc, hpet and acpi_pm")
    ]


def test_a_laptop_is_left_out() -> None:
    assert skipped(run_check("clock-source-slow", {"w1": [settings(clock_source="hpet", is_portable=True)]}))
