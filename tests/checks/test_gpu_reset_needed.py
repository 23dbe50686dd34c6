"""What gpu-reset-needed finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_gpus_that_wait_for_nothing() -> None:
    assert messages(run_check("gpu-reset-needed", {"w1": [gpus()]})) == []


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("row_remap_pending", True, "the GPU must replace a memory row"),
        ("page_retirement_pending", True, "the GPU must retire a memory page"),
        ("reset_required", True, "the driver requires a reset"),
        ("recovery_action", "Drain and Reset", "the driver recommends: Drain and Reset"),
    ],
)
def test_each_reason(field: str, value: object, text: str) -> None:
    fact = messages(run_check("gpu-reset-needed", {"w1": [gpus(gpu(2, **{field: value}))]}))
    assert fact == [("w1", f"GPU 2 waits for a reset: {text}")]


@pytest.mark.parametrize(
    ("fields", "is_warning"),
    [
        ({"row_remap_pending": True}, True),
        ({"reset_required": True}, False),
        ({"recovery_action": "Reset"}, False),
        ({"recovery_action": "Reboot"}, False),
        ({"recovery_action": "Drain P2P"}, False),
        ({"recovery_action": "Drain and Reset", "row_remap_pending": True}, False),
    ],
)
def test_what_the_driver_demands_is_an_error(fields: dict[str, object], is_warning: bool) -> None:
    (finding,) = run_check("gpu-reset-needed", {"w1": [gpus(gpu(2, **fields))]}).findings
    assert finding.is_warning == is_warning


def test_an_action_that_nvml_does_not_list_is_unknown() -> None:
    outcome = run_check("gpu-reset-needed", {"w1": [gpus(gpu(2, recovery_action="Do Something"))]})
    assert not outcome.findings
    assert "gpu_recovery_action: Do Something" in outcome.unknown["w1"].text


def test_a_repair_that_waits() -> None:
    assert messages(run_check("gpu-reset-needed", {"w1": [gpus(gpu(0, repair_pending=True))]})) == [
        ("w1", "GPU 0 waits for a reset: a part needs repair")
    ]
