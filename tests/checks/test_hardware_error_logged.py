"""What hardware-error-logged finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check


@pytest.mark.parametrize(
    "message",
    [
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
        "{1}[Hardware Error]: event severity: corrected",
        "mce: [Hardware Error]: Machine check events logged",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010090",
        "[Hardware Error]: Corrected error, no action required.",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    ],
)
def test_what_was_corrected_is_no_finding(message: str) -> None:
    assert messages(run_check("hardware-error-logged", {"w1": [log(message)]})) == []


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("mce: Uncorrected hardware memory error in user-access at 3f8000", "uncorrected memory errors"),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0", "uncorrected memory errors"),
        ("mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 5: bea0000000000108", "a machine check"),
        ("[Hardware Error]: Uncorrected, software restartable error.", "a machine check"),
        ("{2}[Hardware Error]: event severity: fatal", "a fatal error reported by the firmware"),
        (
            "pcieport 0005:00:00.0: AER: Uncorrectable (Fatal) error received: 0005:01:00.0",
            "an uncorrected PCIe error at 0005:01:00.0",
        ),
        (
            "nvme 0000:3d:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
            "an uncorrected PCIe error at 0000:3d:00.0",
        ),
    ],
)
def test_errors_that_were_not_corrected(message: str, kind: str) -> None:
    assert messages(run_check("hardware-error-logged", {"w1": [log(message)]})) == [
        ("w1", f"the kernel reported {kind}, 1 time in 24 hours, last 60 s ago: {message}")
    ]
