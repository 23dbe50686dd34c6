"""What gpu-fabric-unhealthy finds."""

from __future__ import annotations

import pytest

from doctor.engine.result import ERROR, WARNING, Severity
from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


def test_a_fabric_without_faults() -> None:
    assert messages(run_check("gpu-fabric-unhealthy", {"w1": [gpus(gpu(0))]})) == []


@pytest.mark.parametrize(
    ("faults", "severity"),
    [
        (("summary: Unhealthy", "route unhealthy: True"), ERROR),
        (("summary: Unhealthy", "bandwidth: Degraded"), ERROR),
        (("summary: Limited Capacity", "bandwidth: Degraded"), WARNING),
    ],
)
def test_faults_and_reduced_bandwidth(faults: tuple[str, ...], severity: Severity) -> None:
    outcome = run_check("gpu-fabric-unhealthy", {"w1": [gpus(gpu(0), gpu(1, fabric_faults=faults))]})
    assert messages(outcome) == [
        (
            "w1",
            f"the NVLink fabric of GPU 1 reports {faults[0]} and {faults[1]}; expected summary: Healthy",
        )
    ]
    assert [finding.is_warning for finding in outcome.findings] == [severity == WARNING]
