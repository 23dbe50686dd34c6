"""What network-link-flapping finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import log
from tests.checks.looked import judged, said

DOWN = "mlx5_core 0000:3b:00.0 ens1f0np0: Link down"


def test_a_link_that_went_down_twice() -> None:
    assert said(judged("network-link-flapping", {"w1": [log(DOWN, DOWN)]})) == []


@pytest.mark.parametrize(
    ("message", "interface"),
    [
        (DOWN, "ens1f0np0"),
        ("r8169 0000:03:00.1 eth0: Link is Down", "eth0"),
        ("ixgbe 0000:01:00.0 eno1: NIC Link is Down", "eno1"),
        ("i40e 0000:3d:00.0 eno3: NIC Link is Down", "eno3"),
    ],
)
def test_three_times(message: str, interface: str) -> None:
    assert said(judged("network-link-flapping", {"w1": [log(message, message, message)]})) == [
        ("w1", f"the link of {interface} went down 3 times in 24 hours, last 60 s ago")
    ]
