"""What network-link-flapping finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

DOWN = "mlx5_core 0000:3b:00.0 ens1f0np0: Link down"


def test_a_link_that_went_down_twice() -> None:
    assert messages(run_check("network-link-flapping", {"w1": [log(DOWN, DOWN)]})) == []


@pytest.mark.parametrize(
    ("message", "interface"),
    [
        (DOWN, "ens1f0np0"),
        ("r8169 0000:03:00.1 eth0: Link is Down", "eth0"),
        ("ixgbe 0000:01:00.0 eno1: NIC Link is Down", "eno1"),
        ("i40e 0000:3d:00.0 eno3: NIC Link is Down", "eno3"),
        ("hns3 0000:bd:00.0 enp189s0f0: link down", "enp189s0f0"),
        ("mlx5_core 0000:53:00.0 mlx5_3: Port: 1 Link DOWN", "mlx5_3"),
    ],
)
def test_three_times(message: str, interface: str) -> None:
    assert messages(run_check("network-link-flapping", {"w1": [log(message, message, message)]})) == [
        ("w1", f"the link of {interface} went down 3 times in 24 hours, last 60 s ago")
    ]


def test_a_card_is_named_by_its_interface_where_it_has_one() -> None:
    """Public file 53115452667: a RoCE card reports each time as an interface and as an RDMA adapter."""
    card = ["mlx5_core 0000:53:00.0 enp83s0f0np0: Link down", "mlx5_core 0000:53:00.0 mlx5_3: Port: 1 Link DOWN"]
    fact = messages(run_check("network-link-flapping", {"w1": [log(*card * 3)]}))
    assert fact == [("w1", "the link of enp83s0f0np0 went down 3 times in 24 hours, last 60 s ago")]


@pytest.mark.parametrize(
    "message",
    ["ata3: SATA link down (SStatus 0 SControl 300)", "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Down"],
)
def test_links_of_other_devices(message: str) -> None:
    assert messages(run_check("network-link-flapping", {"w1": [log(message, message, message)]})) == []
