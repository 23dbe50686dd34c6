"""What rdma-port-slow finds."""

from __future__ import annotations

import msgspec
import pytest

from doctor.facts.rdma import RdmaDevice, RdmaPort, RdmaPorts
from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import fleet, messages, run_check


def test_one_speed_and_slow_ports_of_ethernet() -> None:
    assert messages(run_check("rdma-port-slow", fleet(3, rdma()))) == []
    assert messages(run_check("rdma-port-slow", {"w1": [rdma(port(rate="25 Gb/sec (1X EDR)"))]})) == []


def test_another_speed() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port(), port(rate="200 Gb/sec (4X HDR)"))]}
    assert messages(run_check("rdma-port-slow", hosts)) == [
        ("w4", "the RDMA port mlx5_1:1 runs at 200 Gb/sec (4X HDR); 3 of 4 hosts have 400 Gb/sec (4X NDR)")
    ]


def test_one_lane_of_infiniband() -> None:
    lane = rdma(port(rate="100 Gb/sec (1X NDR)", layer="InfiniBand"))
    assert messages(run_check("rdma-port-slow", {"w1": [lane]})) == [
        ("w1", "the RDMA port mlx5_0:1 runs at 100 Gb/sec (1X NDR); expected four lanes (4X)")
    ]


def test_an_adapter_of_aws_has_no_lanes() -> None:
    efa = rdma(port(rate="50 Gb/sec (1X HDR)", layer="Unknown"))  # link_layer: linux-rdma/rdma-core pull request 884
    assert messages(run_check("rdma-port-slow", fleet(2, efa))) == []


def test_a_port_that_is_down_has_no_speed() -> None:
    hosts = {**fleet(3, rdma()), "w4": [rdma(port(), port(state="1: DOWN", rate="10 Gb/sec (4X SDR)"))]}
    assert messages(run_check("rdma-port-slow", hosts)) == []


def linked(speed: str, lanes: str, machine: str = "Supermicro SYS-821GE-TNHR") -> RdmaPorts:
    """A port of 400 Gbit/s on a PCIe link of so many lanes of 16."""
    return rdma(port(), pcie=(speed, lanes, "16"), machine=machine)


def test_fewer_lanes_of_pcie_than_the_port_needs() -> None:
    few = linked("32.0 GT/s PCIe", "8")
    text = "the PCIe link of mlx5_0 is x8 at 32.0 GT/s PCIe and carries 252 Gbit/s, its port 400 Gbit/s"
    assert messages(run_check("rdma-port-slow", {"w1": [few]})) == [("w1", text)]
    assert messages(run_check("rdma-port-slow", fleet(3, few))) == [(f"w{number}", text) for number in (1, 2, 3)]


def test_a_pcie_link_that_differs_from_the_other_hosts() -> None:
    hosts = {**fleet(3, linked("32.0 GT/s PCIe", "16")), "w4": [linked("16.0 GT/s PCIe", "16")]}
    assert messages(run_check("rdma-port-slow", hosts)) == [
        ("w4", "the PCIe link of mlx5_0 is x16 at 16.0 GT/s PCIe; 3 of 4 hosts have x16 at 32.0 GT/s PCIe")
    ]


@pytest.mark.parametrize(
    "healthy",
    [
        linked("16.0 GT/s PCIe", "16"),  # an older processor, on all hosts alike
        linked("64.0 GT/s PCIe", "8"),  # carries what the port needs
        linked("2.5 GT/s PCIe", "1", "QEMU Standard PC (Q35 + ICH9, 2009)"),  # the bridge of a virtual machine
        linked("Unknown", "0"),
        linked("", ""),
        rdma(port(state="1: DOWN"), pcie=("32.0 GT/s PCIe", "8", "16")),
        rdma(port(), pcie=("32.0 GT/s PCIe", "8", "16"), virtual=True),
    ],
)
def test_pcie_links_that_are_no_fault(healthy: RdmaPorts) -> None:
    assert messages(run_check("rdma-port-slow", fleet(3, healthy))) == []


def divided(lanes: tuple[str, str], slots: tuple[str, str], chip: str = "506b:4b03:00f9:a1ba") -> RdmaPorts:
    """An adapter of 100 Gbit/s whose 16 lanes of generation 3 are divided between two slots (Socket Direct).

    docs.nvidia.com/networking/display/cx5vpisd/introduction: each half has eight lanes and its own bus number, and sees
    both ports. The addresses are those of Linux, Documentation/networking/multi-pf-netdev.rst.
    """
    halves = rdma(port(rate="100 Gb/sec (4X EDR)"), port(rate="100 Gb/sec (4X EDR)"))
    devices = zip(halves.devices, lanes, slots, strict=True)
    return RdmaPorts(
        devices=tuple(
            msgspec.structs.replace(device, pcie=("8.0 GT/s PCIe", count, "16"), slot=slot, chip=chip)
            for device, count, slot in devices
        )
    )


BUSES = ("0000:08:00.0", "0000:09:00.0")


def test_an_adapter_that_divides_its_lanes_between_two_processors() -> None:
    assert messages(run_check("rdma-port-slow", {"w1": [divided(("8", "8"), BUSES)]})) == []
    assert messages(run_check("rdma-port-slow", fleet(3, divided(("8", "8"), BUSES)))) == []


@pytest.mark.parametrize(
    ("adapter", "accused"),
    [
        (divided(("8", "8"), ("0000:08:00.0", "0000:08:00.1")), 2),  # two ports behind one link
        (divided(("8", "8"), BUSES, "0000:0000:0000:0000"), 2),  # two adapters, of which neither says its GUID
        (divided(("8", "8"), BUSES, ""), 2),
        (divided(("8", "1"), BUSES), 1),  # a half that lost lanes: both together carry less than the port
    ],
)
def test_lanes_that_are_lost_and_not_divided(adapter: RdmaPorts, accused: int) -> None:
    assert len(messages(run_check("rdma-port-slow", {"w1": [adapter]}))) == accused


NDR, SPLIT = port(layer="InfiniBand"), port(layer="InfiniBand", rate="200 Gb/sec (2X NDR)")
RAILS = [NDR] * 8
TEXT = "the RDMA port mlx5_3:1 runs at 200 Gb/sec; {0} of {1} ports of its board at 400"


def test_one_rail_with_half_of_its_siblings_lanes() -> None:
    slow = rdma(*RAILS[:3], SPLIT, *RAILS[4:])
    assert messages(run_check("rdma-port-slow", {"w1": [slow]})) == [("w1", TEXT.format(7, 8))]
    of_hosts = "the RDMA port mlx5_3:1 runs at 200 Gb/sec (2X NDR); {0} of {1} hosts have 400 Gb/sec (4X NDR)"
    for count in (1, 4):  # of two hosts, the other ports say which of them is slow
        hosts = {**fleet(count, rdma(*RAILS)), "w9": [slow]}
        assert messages(run_check("rdma-port-slow", hosts)) == [("w9", of_hosts.format(count, count + 1))]


def boards(*rows: tuple[RdmaPort, str]) -> RdmaPorts:
    own = rdma(*(row[0] for row in rows))
    devices = zip(own.devices, rows, strict=True)
    return RdmaPorts(devices=tuple(msgspec.structs.replace(device, board=row[1]) for device, row in devices))


@pytest.mark.parametrize(
    "own",
    [
        rdma(*RAILS, SPLIT, SPLIT),  # two for storage, behind a cable that is split
        boards(*((rail, "MT_0000000838") for rail in RAILS), (SPLIT, "MT_0000000225")),  # one of another board
        rdma(NDR, SPLIT),  # too few to say
        rdma(NDR, SPLIT, NDR),
        rdma(*RAILS[:7], port(state="1: DOWN", rate="10 Gb/sec (4X SDR)")),
        rdma(*RAILS[:7], port(layer="Ethernet", rate="100 Gb/sec (4X EDR)")),  # management, over Ethernet
        RdmaPorts(devices=tuple(RdmaDevice(f"mlx5_{n}", "MT4119", "", "", (NDR if n else SPLIT,)) for n in range(5))),
    ],
)
def test_slower_ports_that_are_meant_so(own: RdmaPorts) -> None:
    assert messages(run_check("rdma-port-slow", {"w1": [own]})) == []
    assert messages(run_check("rdma-port-slow", fleet(3, own))) == []


def test_one_slower_rail_in_the_same_place_of_all_hosts() -> None:
    assert messages(run_check("rdma-port-slow", fleet(2, rdma(*RAILS, SPLIT)))) == []
