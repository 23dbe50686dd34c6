"""What amd-gpu-settings-differ finds; what amd-smi prints is tried in tests/facts/test_amd_smi.py."""

from __future__ import annotations

from doctor.facts.amd_smi import AmdGpu, AmdGpus
from tests.checks.amd_hosts import BUS, gpus, hosts_with_findings
from tests.checks.run_check import messages, run_check


def test_healthy_hosts() -> None:
    assert hosts_with_findings("amd-gpu-settings-differ") == set()


def test_the_fault_is_found() -> None:
    sick = gpus(AmdGpu(0, "0000:05:00.0", "AMD Instinct MI250X", uncorrectable=2))
    assert hosts_with_findings("amd-gpu-settings-differ", sick) == {"w3"}


def test_each_setting() -> None:
    usual = AmdGpu(0, "0000:05:00.0", "MI300X", "6.10.5", compute_partition="SPX", memory_partition="NPS1")
    other = AmdGpu(0, "0000:05:00.0", "MI250X", "6.8.0", compute_partition="CPX", memory_partition="NPS4")
    hosts = {"w1": [gpus(usual), BUS], "w2": [gpus(usual), BUS], "w3": [gpus(other), BUS]}
    assert [text.partition(": ")[0] for _, text in messages(run_check("amd-gpu-settings-differ", hosts))] == [
        "its AMD GPUs differ in product",
        "its AMD GPUs differ in driver",
        "its AMD GPUs differ in compute partition",
        "its AMD GPUs differ in memory partition",
    ]


def test_fewer_links_than_on_the_other_hosts() -> None:
    """Two MI210 with a bridge, and a host where it was not plugged in; hosts whose tool shows no links say nothing."""

    def linked(kind: str) -> AmdGpus:
        ends = ((0, 1), (1, 0))
        return gpus(*(AmdGpu(n, f"0000:{n}3:00.0", "MI210", links=((peer, kind, ""),)) for n, peer in ends))

    hosts = {"w1": [linked("XGMI"), BUS], "w2": [linked("XGMI"), BUS], "w3": [linked("PCIE"), BUS]}
    ((host, text),) = messages(run_check("amd-gpu-settings-differ", hosts))
    assert host == "w3" and text.startswith("its AMD GPUs differ in number of XGMI links: 0; 2 of 3 hosts have 1")
    hosts["w3"] = [gpus(*(AmdGpu(n, f"0000:{n}3:00.0", "MI210") for n in (0, 1))), BUS]
    assert messages(run_check("amd-gpu-settings-differ", hosts)) == []


def test_one_gpu_of_a_host_in_another_partition_mode() -> None:
    modes = ("SPX", "SPX", "SPX", "CPX", "SPX", "SPX", "SPX", "SPX")
    eight = gpus(*(AmdGpu(n, f"0000:{n}5:00.0", "MI300X", compute_partition=mode) for n, mode in enumerate(modes)))
    assert messages(run_check("amd-gpu-settings-differ", {"w1": [eight, BUS]})) == [
        ("w1", "AMD GPU 3 differs in compute partition: CPX; 7 of 8 GPUs have SPX")
    ]


def test_a_processors_own_gpu_beside_four_cards() -> None:
    """It has another name and no modes."""
    cards = [AmdGpu(n, f"0000:{n}5:00.0", "AMD Radeon Pro W7900", compute_partition="SPX") for n in range(4)]
    listed = gpus(*cards, AmdGpu(4, "0000:75:00.0", "AMD Radeon Graphics"))
    assert messages(run_check("amd-gpu-settings-differ", {"w1": [listed, BUS]})) == []
