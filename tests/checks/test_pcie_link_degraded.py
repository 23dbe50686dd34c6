"""What pcie-link-degraded finds; links as lspci and sysfs of real machines have them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.facts.pcie_links import PcieLink, PcieLinks
from tests.checks.containers import place
from tests.checks.run_check import messages, run_check
from tests.facts.test_pcie_links import link

CHECK = "pcie-link-degraded"
SILENT = link("63 at Unknown", "63 at Unknown", "16 at 16.0")
H100 = {"pci_id": "10de:2330", "pci_class": "0302", "driver": "nvidia"}
NIC = {"pci_id": "8086:1572", "pci_class": "0200", "driver": "i40e", "slot": "0000:3b:00.0"}
DISK = {"pci_id": "144d:a80a", "pci_class": "0108", "driver": "nvme", "slot": "0000:5e:00.0"}
BOTH = "x16 at 32.0 GT/s"
MI300X = {"pci_id": "1002:74a1", "driver": "amdgpu"}


def found(*links: PcieLink, virtual: bool = False) -> list[tuple[str, str]]:
    return messages(run_check(CHECK, {"w1": [PcieLinks(links, virtual)]}))


def npus(number: int, **of_one: str) -> list[PcieLink]:
    buses = ("c1", "c2", "81", "82", "01", "02", "41", "42")
    return [link(slot=f"0000:{bus}:00.0", **of_one if at == number else {}) for at, bus in enumerate(buses)]


def test_a_healthy_server() -> None:
    """Eight 910B at PCIe 4.0 x16: current and most are equal (public file 58866378813)."""
    assert found(*npus(-1)) == []


@pytest.mark.parametrize(
    ("current", "observed"),
    [("8 at 16.0", "x8 at 16.0 GT/s"), ("16 at 8.0", "x16 at 8.0 GT/s"), ("1 at 2.5", "x1 at 2.5 GT/s")],
)
def test_an_npu_that_lost_lanes_or_speed(current: str, observed: str) -> None:
    outcome = run_check(CHECK, {"w1": [PcieLinks(tuple(npus(5, current=current)))]})
    assert messages(outcome) == [
        ("w1", f"the PCIe link of the NPU at 0000:02:00.0 is {observed}; both its ends support x16 at 16.0 GT/s")
    ]
    assert [finding.is_warning for finding in outcome.findings] == [True]


def test_an_older_slot_is_no_fault() -> None:
    """A card of PCIe 4.0 in a slot of PCIe 3.0 with eight lanes has all that its port has."""
    assert found(link("8 at 8.0", "16 at 16.0", "8 at 8.0")) == []


def test_a_port_of_which_nothing_is_known_accuses_nobody() -> None:
    assert found(link("8 at 16.0", "16 at 16.0", "")) == []


@pytest.mark.parametrize("more", [{}, H100, NIC, DISK, MI300X])
def test_a_device_that_reads_as_ones(more: dict[str, str]) -> None:
    silent = msgspec.structs.replace(SILENT, **more)
    ((_, text),) = found(silent, virtual=True)
    assert text.endswith(f"at {silent.slot} is on the PCI bus and does not answer: its registers read as ones")


def test_a_silent_device_is_an_error_but_for_a_container_that_may_not_use_it() -> None:
    (finding,) = run_check(CHECK, {"w1": [PcieLinks((SILENT,))]}).findings
    assert not finding.is_warning
    (finding,) = run_check(CHECK, {"w1": [PcieLinks((SILENT,)), place(engine="docker")]}).findings
    assert finding.is_warning


@pytest.mark.parametrize(
    ("more", "warning"), [(H100, False), (NIC, True), ({**NIC, "is_rdma": True}, False), (DISK, True)]
)
def test_a_job_may_do_without_a_silent_card_or_disk(more: dict[str, Any], warning: bool) -> None:
    (finding,) = run_check(CHECK, {"w1": [PcieLinks((msgspec.structs.replace(SILENT, **more),))]}).findings
    assert finding.is_warning == warning


@pytest.mark.parametrize("more", [H100, {**MI300X, "pci_class": "0300"}])
def test_an_idle_gpu_lowers_its_speed(more: dict[str, str]) -> None:
    """janhq/jan issue 183: LnkSta 2.5 GT/s (downgraded), Width x16 (ok), of an idle RTX 4090."""
    assert found(link("16 at 2.5", "16 at 32.0", "16 at 32.0", **more)) == []


def test_the_lanes_of_an_accelerator_do_not_depend_on_its_load() -> None:
    assert found(link("16 at 2.5", "16 at 32.0", "16 at 32.0", **MI300X)) == []
    assert found(link("8 at 2.5", "16 at 32.0", "16 at 32.0", **MI300X)) == [
        ("w1", "the PCIe link of the accelerator at 0000:c1:00.0 is x8 at 2.5 GT/s; both its ends support " + BOTH)
    ]


def test_in_a_virtual_machine_the_ports_show_links_of_their_own() -> None:
    assert found(link("8 at 2.5", "16 at 16.0", "32 at 64.0"), virtual=True) == []


@pytest.mark.parametrize(
    ("more", "kind", "low", "observed"),
    [
        (NIC, "the network card at 0000:3b:00.0", "4 at 8.0", "x4 at 8.0 GT/s"),
        (DISK, "the NVMe disk at 0000:5e:00.0", "2 at 8.0", "x2 at 8.0 GT/s"),
    ],
)
def test_a_card_is_compared_with_the_same_slot_of_other_hosts(
    more: dict[str, str], kind: str, low: str, observed: str
) -> None:
    hosts = {f"w{n}": [PcieLinks((link("8 at 8.0", "8 at 16.0", "16 at 16.0", **more),))] for n in range(1, 6)}
    assert messages(run_check(CHECK, hosts)) == []
    hosts["w3"] = [PcieLinks((link(low, "8 at 16.0", "16 at 16.0", **more),))]
    assert messages(run_check(CHECK, hosts)) == [
        ("w3", f"the PCIe link of {kind} is {observed}; 4 of 5 hosts have x8 at 8.0 GT/s")
    ]


def test_rdma_adapters_and_nvidias_gpus_have_checks_of_their_own() -> None:
    for more in ({**NIC, "is_rdma": True}, H100):
        hosts = {f"w{n}": [PcieLinks((link("16 at 16.0", **more),))] for n in range(1, 6)}
        hosts["w3"] = [PcieLinks((link("8 at 16.0", **more),))]
        assert messages(run_check(CHECK, hosts)) == []


def test_one_host_of_two_accuses_nobody() -> None:
    hosts = {"w1": [PcieLinks((link("4 at 8.0", **NIC),))], "w2": [PcieLinks((link("8 at 8.0", **NIC),))]}
    assert messages(run_check(CHECK, hosts)) == []


def disks(*current: str, port: str = "4 at 16.0") -> list[PcieLink]:
    return [
        link(now, "4 at 16.0", port if now[0] != "4" else "4 at 16.0", **{**DISK, "slot": f"0000:{slot}e:00.0"})
        for slot, now in enumerate(current)
    ]


@pytest.mark.parametrize(
    ("links", "slots"),
    [
        (disks("4 at 16.0", "4 at 16.0", "2 at 16.0", "4 at 16.0"), ["0000:2e:00.0"]),
        (disks("4 at 16.0", "4 at 16.0", "2 at 16.0", "4 at 16.0", port="2 at 16.0"), []),  # a slot of two lanes
        (disks("4 at 16.0", "2 at 16.0", "2 at 16.0", "4 at 16.0"), []),  # two are meant so
        (disks("4 at 16.0", "4 at 16.0", "2 at 16.0"), []),
    ],
)
def test_the_one_with_fewer_lanes_of_its_kind_on_a_host(links: list[PcieLink], slots: list[str]) -> None:
    assert found(*links) == [
        ("w1", f"the PCIe link of the NVMe disk at {slot} has 2 lanes; 3 of 4 of its kind have 4") for slot in slots
    ]


def test_a_link_is_named_once() -> None:
    usual, slow = disks(*["4 at 16.0"] * 4), disks("4 at 16.0", "4 at 16.0", "2 at 16.0", "4 at 16.0")
    hosts = {f"w{number}": [PcieLinks(tuple(slow if number == 5 else usual))] for number in range(1, 6)}
    assert [host for host, _ in messages(run_check(CHECK, hosts))] == ["w5"]
