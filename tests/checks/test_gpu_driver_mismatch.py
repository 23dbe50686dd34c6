"""What gpu-driver-mismatch finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import cards, tool
from tests.checks.run_check import messages, run_check


def test_one_version() -> None:
    assert messages(run_check("gpu-driver-mismatch", {"w1": [tool(), cards()]})) == []


def test_both_versions_are_named() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch / NVML library version: 550.144"
    assert messages(run_check("gpu-driver-mismatch", {"w1": [tool("mismatch", text), cards()]})) == [
        ("w1", f"the loaded kernel module is 550.54.15, the driver's libraries are of another version: {text}")
    ]
