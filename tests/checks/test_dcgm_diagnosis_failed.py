"""What dcgm-diagnosis-failed finds; what DCGM prints is in tests/facts/test_dcgm_diagnosis.py."""

from __future__ import annotations

from doctor.facts.vendor_tests import DcgmDiagnosis, DcgmFailure
from tests.checks.run_check import messages, run_check


def test_each_failure_but_those_of_settings() -> None:
    failures = (
        DcgmFailure("software", "GPU 3", "a row could not be replaced", 2),
        DcgmFailure("software", "GPU 1", "Persistence mode for GPU 1 is disabled", 5),
        DcgmFailure("Persistence Mode", "GPU 1", "Persistence mode for GPU 1 is disabled"),
        DcgmFailure("Denylist", "", "Found driver on the denylist: nouveau"),
    )
    result = run_check("dcgm-diagnosis-failed", {"w1": [DcgmDiagnosis(failures=failures)]})
    assert messages(result) == [
        ("w1", "DCGM's test software failed: GPU 3: a row could not be replaced"),
        ("w1", "DCGM's test Denylist failed: Found driver on the denylist: nouveau"),
    ]
    assert [finding.is_warning for finding in result.findings] == [False, True]
    assert messages(run_check("dcgm-diagnosis-failed", {"w1": [DcgmDiagnosis(failures=())]})) == []
