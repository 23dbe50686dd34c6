"""What npu-health-warning finds."""

from __future__ import annotations

from doctor.facts.npu_health import ChipHealth, NpuHealth
from tests.checks.devices import health, of
from tests.checks.run_check import run_check

look = of("npu_health_warning")


def test_no_code() -> None:
    assert look(health()) == []


def test_a_code_with_which_jobs_start() -> None:
    (finding,) = look(health(ChipHealth(2, 1, "Warning", ("80E20207",), "sub-health")))
    assert str(finding) == (
        "NPU card 2 chip 1 reports fault 80E20207 (sub-health): the NPU works, slower; keep synchronous jobs off it; "
        "expected no code"
    )


def test_other_faults_are_left_to_npu_unhealthy() -> None:
    assert look(health(ChipHealth(2, 0, "Alarm", ("80E01805",)), ChipHealth(3, 0, "Warning", ("80E18402",)))) == []


def test_a_card_that_gave_no_answer_is_no_card_without_codes() -> None:
    """The others are judged all the same; npu-unhealthy names it."""
    facts = NpuHealth(chips=(ChipHealth(2, 1, "Warning", ("80E20207",), "sub-health"),), refused={3: "exit status 1"})
    outcome = run_check("npu-health-warning", {"w1": [facts]})
    assert [finding.values["card"] for finding in outcome.findings] == [2]
    assert [reason.root_cause for reason in outcome.unknown.values()] == ["npu-unhealthy"]
