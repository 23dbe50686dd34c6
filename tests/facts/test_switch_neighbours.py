"""Which switch a host hangs from, by the output of lldpd 1.0.16."""

from __future__ import annotations

from doctor.engine.fact import Absent, Output
from doctor.facts.switch_neighbours import SwitchNeighbours
from tests.facts.answers import read_outputs

RECORDED = """\




lldp.eth0.via=LLDP
lldp.eth0.rid=1
lldp.eth0.age=0 day, 00:00:03
lldp.eth0.chassis.mac=86:ac:5e:b5:66:80
lldp.eth0.chassis.name=leaf1
lldp.eth0.chassis.descr=Debian GNU/Linux 12 (bookworm) Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0 x86_64
lldp.eth0.chassis.mgmt-ip=fe80::84ac:5eff:feb5:6680
lldp.eth0.chassis.mgmt-iface=2
lldp.eth0.chassis.Bridge.enabled=off
lldp.eth0.port.mac=86:ac:5e:b5:66:80
lldp.eth0.port.descr=swp7
lldp.eth0.port.ttl=4
lldp.eth0.port.auto-negotiation.current=10GbaseT - Four-pair Category 6A or better, full duplex mode only
"""
"""Of lldpd in a network namespace; the names are ours."""


def neighbours(text: str) -> SwitchNeighbours:
    value = read_outputs(SwitchNeighbours, one=Output(out=text))
    assert isinstance(value, SwitchNeighbours)
    return value


def test_the_name_of_the_switch() -> None:
    assert neighbours(RECORDED).by_interface == {"eth0": ("leaf1",)}
    assert neighbours(RECORDED).switch_of("eth0") == "leaf1"
    assert neighbours(RECORDED).switch_of("eth1") == ""


def test_a_switch_without_a_name_is_its_hardware_address() -> None:
    text = "".join(line for line in RECORDED.splitlines(keepends=True) if "chassis.name" not in line)
    assert neighbours(text).switch_of("eth0") == "86:ac:5e:b5:66:80"


def test_two_neighbours_of_one_interface() -> None:
    twice = RECORDED + RECORDED.replace("leaf1", "leaf0").replace("rid=1", "rid=2")
    assert neighbours(twice).switch_of("eth0") == "leaf0, leaf1"


def test_a_bond_is_behind_the_switches_of_its_ports() -> None:
    both = neighbours(RECORDED + RECORDED.replace("eth0", "ens1f0np0").replace("leaf1", "leaf2"))
    assert both.switch_of("bond0", ["eth0", "ens1f0np0"]) == "leaf1, leaf2"
    assert both.switch_of("eth0", ["ens1f0np0"]) == "leaf1"


def test_what_a_neighbour_sends_is_bounded_and_cleaned() -> None:
    hostile = RECORDED.replace("leaf1", "\x1b[2Jleaf" + "x" * 200)
    assert len(neighbours(hostile).switch_of("eth0")) <= 60
    assert "\x1b" not in neighbours(hostile).switch_of("eth0")
    many = "".join(RECORDED.replace("eth0", f"eth{number}") for number in range(1000))
    assert len(neighbours(many).by_interface) == 256


def test_without_a_neighbour_or_the_program_there_is_none() -> None:
    assert isinstance(read_outputs(SwitchNeighbours, one=Output(out="\n\n")), Absent)
    assert isinstance(read_outputs(SwitchNeighbours, one=Output(ended="absent")), Absent)
