"""What gpu-fabric-not-ready finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import gpu, gpus
from tests.checks.looked import judged, said


@pytest.mark.parametrize(("state", "status"), [("Completed", "Success"), ("", ""), ("Completed", "")])
def test_registered_or_without_a_fabric(state: str, status: str) -> None:
    host = gpus(gpu(0, fabric_state=state, fabric_status=status))
    assert said(judged("gpu-fabric-not-ready", {"w1": [host]})) == []


@pytest.mark.parametrize(
    ("state", "status", "shown"),
    [
        ("In Progress", "", "In Progress"),
        ("Not Started", "", "Not Started"),
        ("Completed", "Insufficient Resources", "Completed, Insufficient Resources"),
    ],
)
def test_not_registered(state: str, status: str, shown: str) -> None:
    host = gpus(gpu(0, fabric_state=state, fabric_status=status))
    assert said(judged("gpu-fabric-not-ready", {"w1": [host]})) == [
        (
            "w1",
            f"GPU 0 is not registered with the NVLink fabric: its state is {shown}; expected Completed, Success",
        )
    ]
