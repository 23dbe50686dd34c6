"""What gpud-unhealthy finds."""

from __future__ import annotations

from doctor.facts.vendor_tests import GpudState, GpudStates
from tests.checks.run_check import advice, messages, run_check

XID = GpudState(
    "accelerator-nvidia-error-xid",
    "Unhealthy",
    "XID 48 (Double Bit ECC Error)",
    ("HARDWARE_INSPECTION",),
)


def test_healthy() -> None:
    assert messages(run_check("gpud-unhealthy", {"w1": [GpudStates(problems=())]})) == []


def test_a_component_with_what_gpud_proposes() -> None:
    disk = GpudState("disk", "Degraded", "no reason")
    outcome = run_check("gpud-unhealthy", {"w1": [GpudStates(problems=(XID, disk))]})
    assert [finding.is_warning for finding in outcome.findings] == [False, True]
    assert "have its hardware inspected: no command repairs it" in advice("gpud-unhealthy", outcome)
    assert messages(outcome) == [
        ("w1", "gpud: accelerator-nvidia-error-xid is Unhealthy: XID 48 (Double Bit ECC Error) (HARDWARE_INSPECTION)"),
        ("w1", "gpud: disk is Degraded: no reason"),
    ]
