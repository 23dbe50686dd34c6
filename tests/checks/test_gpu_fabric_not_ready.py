"""What gpu-fabric-not-ready finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.run_check import messages, run_check


@pytest.mark.parametrize(("state", "status"), [("Completed", "Success"), ("", ""), ("Completed", "")])
def test_registered_or_without_a_fabric(state: str, status: str) -> None:
    host = gpus(gpu(0, fabric_state=state, fabric_status=status))
    assert messages(run_check("gpu-fabric-not-ready", {"w1": [host]})) == []


@pytest.mark.parametrize(
    ("state", "status", "output"),
    [
        ("In Progress", "", "In Progress"),
        ("Not Started", "", "Not Started"),
        ("Completed", "Insufficient Resources", "Completed, Insufficient Resources"),
    ],
)
def test_not_registered(state: str, status: str, output: str) -> None:
    host = gpus(gpu(0, fabric_state=state, fabric_status=status))
    assert messages(run_check("gpu-fabric-not-ready", {"w1": [host]})) == [
        (
            "w1",
            f"GPU 0 is not registered with the NVLink fabric: its state is {output}; expected Completed, Success",
        )
    ]
