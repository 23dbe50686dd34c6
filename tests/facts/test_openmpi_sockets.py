"""Open MPI's choice and pairing of interfaces. `python -m tests.attack interfaces` has a real mpirun beside it."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Unreadable
from doctor.facts.interfaces import Interfaces, Link
from doctor.facts.openmpi_fleet import OpenmpiTraffic
from doctor.facts.openmpi_sockets import Build, connections, openmpi_choices, tcp_modules
from tests.checks.network import interfaces, link

OLD = Build(4, has_ipv6=False)
NEW = Build(5, has_ipv6=False)
EXCLUDE, INCLUDE = "OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_btl_tcp_if_include"


def hosts(*links: Link, **addresses: str) -> dict[str, Interfaces]:
    """Two hosts; a # in an address is the host's number."""
    return {
        f"w{n}": interfaces(*links, **{name: text.replace("#", str(n)) for name, text in addresses.items()})
        for n in (1, 2)
    }


def faults(fleet: dict[str, Interfaces], **environ: str) -> list[tuple[str, str]]:
    environs = {host: {f"OMPI_MCA_{name}": value for name, value in environ.items()} for host in fleet}
    traffic = OpenmpiTraffic.of(environs, fleet)
    traffic.raise_doubt()
    return [(fault.interface, fault.reason) for fault in traffic.faults]


def test_two_ordinary_networks() -> None:
    assert faults(hosts(eth0="10.0.0.#/24", ib0="10.1.0.#/24")) == []


def test_an_exclusion_without_loopback_pairs_loopback_with_itself() -> None:
    fleet = hosts(lo="127.0.0.1/8", eth0="10.0.0.#/24", ib0="10.1.0.#/24")
    assert faults(fleet, btl_tcp_if_exclude="ib0") == [("lo", "each host would connect to itself")]
    assert faults(fleet, btl_tcp_if_exclude="ib0,lo") == []
    assert faults(fleet, btl_tcp_if_exclude="ib0,127.0.0.0/8") == []
    assert faults(fleet) == []


def test_an_exclusion_takes_the_beginning_of_a_name() -> None:
    fleet = hosts(**{"eth0": "10.0.0.#/24", "eth0.20": "10.2#.0.1/24"})
    assert {name for name, _ in faults(fleet)} == {"eth0.20"}
    reason = "its variables leave none that fits one of w2"
    assert faults(fleet, btl_tcp_if_exclude="eth0,lo")[0] == ("no interface", reason)


def test_an_included_network_that_no_host_has_includes_nothing() -> None:
    """Then the rule for exclusion decides."""
    fleet = hosts(eth0="10.0.0.#/24", docker0="172.17.0.1/16")
    assert [name for name, _ in faults(fleet, btl_tcp_if_include="192.168.7.0/24")] == ["docker0"]


def test_what_leaves_tcp_out_is_not_judged() -> None:
    fleet = hosts(eth0="10.0.0.#/24", docker0="172.17.0.1/16")
    assert faults(fleet, btl="self,vader") == []
    assert faults(fleet, pml="ucx") == []


def test_no_carrier_is_told() -> None:
    fleet = hosts(link("ib0", running=False), eth0="10.0.0.#/24", ib0="10.1.0.#/24")
    assert faults(fleet) == [("ib0", "it has no carrier")]


def test_an_interface_that_one_host_lacks_is_paired_with_none() -> None:
    fleet = hosts(eth0="10.0.0.#/24", eno7="10.1.0.#/24")
    fleet["w2"] = interfaces(eth0="10.0.0.2/24")
    assert faults(fleet) == []


def test_the_first_module_of_4_1_takes_the_first_pair() -> None:
    """docker0 stands before eth0, and is paired with nothing: 4.1 connects from docker0's address to eth0's."""
    fleet = hosts(docker0="172.17.0.1/16", eth0="10.0.0.#/24")
    fleet["w2"] = interfaces(eth0="10.0.0.2/24")
    created_tcp_modules = {host: tcp_modules({}, entry, OLD) for host, entry in fleet.items()}
    assert created_tcp_modules["w1"]
    assert created_tcp_modules["w2"]
    observed_connections = connections(created_tcp_modules["w1"], created_tcp_modules["w2"], OLD)
    assert [
        (connection.module.interface, connection.source, connection.peer.address) for connection in observed_connections
    ] == [("docker0", "172.17.0.1", "10.0.0.2")]
    assert [
        connection.module.interface
        for connection in connections(created_tcp_modules["w1"], created_tcp_modules["w2"], NEW)
    ] == ["eth0"]


def test_what_depends_on_the_release_is_unknown() -> None:
    fleet = hosts(docker0="172.17.0.1/16", eth0="10.0.0.#/24")
    fleet["w2"] = interfaces(eth0="10.0.0.2/24")
    with pytest.raises(Unreadable, match=r"cannot be known here: with Open MPI 4\.1 without IPv6 docker0"):
        faults(fleet)


def test_private_and_public_addresses() -> None:
    """4.1 pairs them where nothing else is left, 5 does not."""
    fleet = hosts(eth0="10.0.0.#/24", eno7="10.7#.0.1/24")
    fleet["w2"] = interfaces(eth0="10.0.0.2/24", eno7="203.0.113.2/24")
    created_tcp_modules = {host: tcp_modules({}, entry, OLD) for host, entry in fleet.items()}
    assert created_tcp_modules["w1"]
    assert created_tcp_modules["w2"]
    assert len(connections(created_tcp_modules["w1"], created_tcp_modules["w2"], OLD)) == 2
    assert len(connections(created_tcp_modules["w1"], created_tcp_modules["w2"], NEW)) == 1


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({INCLUDE: "eth0"}, ""),
        ({INCLUDE: "eth0,eno7"}, "there is no interface eno7"),
        ({INCLUDE: "eth0,ib0"}, "interface ib0 has no address"),
        ({"OMPI_MCA_oob_tcp_if_include": "eth0,eno7"}, None),
        ({"OMPI_MCA_oob_tcp_if_include": "eno7"}, "there is no interface eno7"),
        (
            {"OMPI_MCA_oob_tcp_if_include": "virbr0"},
            "Open MPI's daemons pass over virbr0, as all interfaces whose names begin with vir",
        ),
        ({INCLUDE: "virbr0"}, ""),
        ({INCLUDE: "eth0", EXCLUDE: "lo"}, f"{EXCLUDE} is set as well, and Open MPI takes one of the two alone"),
        ({INCLUDE: "10.0.0.0/24"}, None),
    ],
)
def test_what_a_list_leads_to(environ: dict[str, str], problem: str | None) -> None:
    networks = {"lo": "127.0.0.1/8", "eth0": "10.0.0.#/24", "ib0": "10.1.0.#/24", "virbr0": "10.2.0.#/24"}
    fleet = hosts(link("ib0", up=False), **networks)
    choices = openmpi_choices(environ, fleet["w1"])
    assert [choice.problem for choice in choices] == ([] if problem is None else [problem])


def test_more_interfaces_than_can_all_be_tried() -> None:
    names = {f"eth{n}": f"10.{n}.0.#/24" for n in range(12)}
    assert faults(hosts(**names)) == []


def test_addresses_of_both_families() -> None:
    """With IPv6 in the build 5 takes the IPv6 address; both ways lead to the peer."""
    fleet = {f"w{n}": interfaces(eth0=f"10.0.0.{n}/24", eno7=f"fd00:69::{n}/64") for n in (1, 2)}
    assert faults(fleet) == []
