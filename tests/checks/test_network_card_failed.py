"""What network-card-failed finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

POWER = "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W)."
HOT = "mlx5_core: Port module event[error]: module 0, Cable error, High Temperature"


def test_ordinary_messages_of_the_driver() -> None:
    quiet = log(
        "mlx5_core 0000:01:00.0: firmware version: 20.27.446",
        "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:0d:00.0: mlx5_cmd_out_err:782:(pid 8321): CREATE_CQ(0x400) failed, status bad parameter(0x3)",
    )
    assert messages(run_check("network-card-failed", {"w1": [quiet]})) == []


def test_each_card_once_with_its_newest_message() -> None:
    fact = messages(run_check("network-card-failed", {"w1": [log(POWER, POWER, HOT)]}))
    assert fact == [
        ("w1", f"the network card reported a fault, 1 time in 24 hours, last 60 s ago: {HOT}"),
        ("w1", f"the network card at 0000:5c:00.0 reported a fault, 2 times in 24 hours, last 60 s ago: {POWER}"),
    ]


def test_old_faults_are_past() -> None:
    assert messages(run_check("network-card-failed", {"w1": [log(POWER, age=2 * 86400)]})) == []


def test_a_queue_that_stood_still_names_the_interface() -> None:
    """Public files 3289997771 and 19706602530: the forms of kernels before and since 6.8."""
    old = "NETDEV WATCHDOG: eth1 (mlx5_core): transmit queue 19 timed out"
    new = "ice 0000:b1:00.0 ens801f0np0: NETDEV WATCHDOG: CPU: 38: transmit queue 14 timed out 80692736 ms"
    assert messages(run_check("network-card-failed", {"w1": [log(old, new)]})) == [
        ("w1", f"the network card ens801f0np0 reported a fault, 1 time in 24 hours, last 60 s ago: {new}"),
        ("w1", f"the network card eth1 reported a fault, 1 time in 24 hours, last 60 s ago: {old}"),
    ]
