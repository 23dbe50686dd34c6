"""What dcgm-unhealthy finds."""

from __future__ import annotations

from doctor.facts.nvlink import NvLinks
from doctor.facts.vendor_tests import DcgmHealth
from tests.checks.run_check import messages, run_check


def test_healthy() -> None:
    assert messages(run_check("dcgm-unhealthy", {"w1": [DcgmHealth(overall="Healthy", problems=())]})) == []


def test_each_device_with_its_problems() -> None:
    problems = (
        ("GPU 3", "Warning", "PCIe system: 9 replays"),
        ("GPU 3", "Warning", "Thermal system: throttled"),
        ("NvSwitch 1", "Failure", "NVLINK system: link 3 is down"),
    )
    fact = messages(run_check("dcgm-unhealthy", {"w1": [DcgmHealth(overall="Failure", problems=problems)]}))
    assert fact == [
        ("w1", "DCGM: GPU 3: PCIe system: 9 replays and Thermal system: throttled"),
        ("w1", "DCGM: NvSwitch 1: NVLINK system: link 3 is down"),
    ]


def test_an_overall_failure_without_a_device() -> None:
    fact = messages(run_check("dcgm-unhealthy", {"w1": [DcgmHealth(overall="Failure", problems=())]}))
    assert fact == [("w1", "DCGM: overall health is Failure; expected Healthy")]


def test_an_imex_daemon_that_does_not_run_is_no_fault() -> None:
    """NVIDIA/NVSentinel issue 1471 (8 H100 of one host), NVIDIA/aicr issue 2641 (idle GB300), NVIDIA/DCGM issue 308."""
    imex = ("GPU 0", "Failure", "NVLINK system: IMEX daemon status is -3 (not READY)")
    replays = ("GPU 0", "Warning", "PCIe system: 9 replays")
    assert messages(run_check("dcgm-unhealthy", {"w1": [DcgmHealth(overall="Failure", problems=(imex,))]})) == []
    both = DcgmHealth(overall="Failure", problems=(imex, replays))
    assert messages(run_check("dcgm-unhealthy", {"w1": [both]})) == [("w1", "DCGM: GPU 0: PCIe system: 9 replays")]


def test_links_of_a_card_without_a_bridge_are_no_fault() -> None:
    """NVIDIA/NVSentinel pull request 1481: twelve reports of each A100 in a PCIe slot."""
    down = ("GPU 0", "Failure", "NVLINK system: GPU 0's NvLink link 3 is currently down")
    health = DcgmHealth(overall="Failure", problems=(down,))
    accused = [("w1", f"DCGM: GPU 0: {down[2]}")]

    def links(product: str, count: int) -> NvLinks:
        return NvLinks(active={0: count}, inactive={}, products={0: product})

    assert messages(run_check("dcgm-unhealthy", {"w1": [health, links("NVIDIA A100 80GB PCIe", 0)]})) == []
    assert messages(run_check("dcgm-unhealthy", {"w1": [health, links("NVIDIA A100 80GB PCIe", 8)]})) == accused
    assert messages(run_check("dcgm-unhealthy", {"w1": [health, links("NVIDIA A100-SXM4-80GB", 0)]})) == accused
    assert messages(run_check("dcgm-unhealthy", {"w1": [health]})) == accused
