"""What ascend-dmi-failed finds."""

from __future__ import annotations

from doctor.facts.vendor_tests import AscendDiagnosis, DiagnosisGroup
from tests.checks.run_check import messages, run_check, skipped

FAILED = DiagnosisGroup("Hardware", "FAIL", ("d2h bandwidth diagnosis failed on device 0 with bandwidth 28.2 / 30",))


def test_passed_groups() -> None:
    groups = (DiagnosisGroup("Software", "PASS", ()), DiagnosisGroup("Hardware", "HEALTH", ()))
    assert messages(run_check("ascend-dmi-failed", {"w1": [AscendDiagnosis(age=60.0, groups=groups)]})) == []


def test_a_failed_group_with_its_sentences() -> None:
    fact = messages(run_check("ascend-dmi-failed", {"w1": [AscendDiagnosis(age=7300.0, groups=(FAILED,))]}))
    assert fact == [
        (
            "w1",
            "ascend-dmi: Hardware failed 2 h ago: d2h bandwidth diagnosis failed on device 0 with bandwidth 28.2 / 30",
        )
    ]


def test_an_old_result_says_nothing_of_today() -> None:
    assert skipped(run_check("ascend-dmi-failed", {"w1": [AscendDiagnosis(age=8 * 86400.0, groups=(FAILED,))]}))
