"""What fabric-manager-not-running finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import cards, gpu, gpus, manager
from tests.checks.run_check import messages, run_check, skipped

DOWN = manager(is_running=False, state="inactive")
A100 = gpus(gpu(0, name="NVIDIA A100-SXM4-80GB", fabric_state=""))


def test_running_and_hosts_without_switches() -> None:
    assert messages(run_check("fabric-manager-not-running", {"w1": [manager(), cards(), A100]})) == []
    assert skipped(run_check("fabric-manager-not-running", {"w1": [manager(switches=0), cards(switches=0)]}))


def test_not_running() -> None:
    assert messages(run_check("fabric-manager-not-running", {"w1": [DOWN, cards(), A100]})) == [
        ("w1", "the fabric manager is not running, on a host with 4 NVSwitches")
    ]


def test_not_installed_on_a_host_whose_switches_are_on_the_bus_alone() -> None:
    absent = manager(switches=0, version="", is_installed=False, is_running=False, state="inactive")
    assert messages(run_check("fabric-manager-not-running", {"w1": [absent, cards(switches=6)]})) == [
        ("w1", "the fabric manager is not installed, on a host with 6 NVSwitches")
    ]


def test_gpus_that_are_registered_had_a_fabric_manager() -> None:
    """On GB200 it runs on the switch trays."""
    assert messages(run_check("fabric-manager-not-running", {"w1": [DOWN, cards(), gpus()]})) == []
