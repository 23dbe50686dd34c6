"""What cpu-governor-slow finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import ADAPTERS, cards, settings
from tests.checks.looked import judged, said, skipped


def test_full_frequency() -> None:
    assert said(judged("cpu-governor-slow", {"w1": [settings(), cards()]})) == []


def test_another_governor() -> None:
    slow = settings(governors=("performance", "powersave"))
    assert said(judged("cpu-governor-slow", {"w1": [slow, ADAPTERS]})) == [
        ("w1", "the CPU frequency governor is powersave (intel_pstate); expected performance")
    ]


def test_laptops_virtual_machines_and_plain_hosts_are_left_out() -> None:
    slow = settings(governors=("powersave",))
    assert skipped(judged("cpu-governor-slow", {"w1": [slow]}))
    assert skipped(judged("cpu-governor-slow", {"w1": [settings(governors=("schedutil",), is_portable=True), cards()]}))
    assert skipped(judged("cpu-governor-slow", {"w1": [settings(governors=()), cards()]}))
