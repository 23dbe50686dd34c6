import pytest

from doctor.engine.fact import Fact
from tests.checks.launch_lines import config
from tests.checks.network import GPUS, NPUS, alike_hosts, interfaces, link, named
from tests.checks.run_check import job, messages, run_check, skipped

NAME = "interface-unreachable"
GLOO = {"GLOO_SOCKET_IFNAME": "docker0"}


def blamed(hosts: dict[str, list[Fact]], **environ: str) -> dict[str, str]:
    findings = run_check(NAME, hosts, job(**environ)).findings
    return {host: str(finding.values["reason"]) for finding in findings for host in finding.hosts}


@pytest.mark.parametrize("first", ["10.0.0.", "192.168.0."])
def test_hosts_of_one_network(first: str) -> None:
    assert blamed(alike_hosts(3, first)) == {}


def test_one_host_alone() -> None:
    outcome = run_check(NAME, {"w1": [interfaces(eth0="10.0.0.1/24"), named("w1", "127.0.1.1")]})
    assert skipped(outcome) == {"only one host: any address of its own will do"}


@pytest.mark.parametrize(
    ("first", "guilty"),
    [("10.0.0.", {}), ("192.168.0.", {"w2": "each host would connect to itself"})],
)
def test_the_greater_address_connects(first: str, guilty: dict[str, str]) -> None:
    """Measured with real jobs: 127.0.1.1 among 10.0.0.0/8 is the one that connects, and does no harm."""
    hosts = alike_hosts(3, first)
    hosts["w2"][1] = named("w2", "127.0.1.1")
    assert blamed(hosts) == guilty


def test_two_hosts_on_loopback_never_meet() -> None:
    hosts = alike_hosts(3)
    for name in ("w2", "w3"):
        hosts[name][1] = named(name, "127.0.1.1")
    assert set(blamed(hosts)) == {"w2", "w3"}


def test_the_variable_overrides_the_name() -> None:
    hosts = alike_hosts(2)
    for name, facts in hosts.items():
        facts[1] = named(name, "127.0.1.1")
    assert blamed(hosts, GLOO_SOCKET_IFNAME="eth0") == {}


def test_an_unknown_name_is_loopback() -> None:
    """PyTorch falls back to 127.0.0.1, with a warning."""
    hosts = alike_hosts(2)
    for name in hosts:
        hosts[name][1] = named(name, "")
    assert set(blamed(hosts)) == {"w1", "w2"}


@pytest.mark.parametrize("accelerator", [NPUS, GPUS])
def test_with_accelerators_the_host_name_is_no_error(accelerator: Fact) -> None:
    hosts = {name: [*facts, accelerator] for name, facts in alike_hosts(2).items()}
    for name, facts in hosts.items():
        facts[1] = named(name, "127.0.1.1")
    assert blamed(hosts) == {}


def test_one_address_on_all_hosts() -> None:
    hosts: dict[str, list[Fact]] = {
        n: [interfaces(eth0=f"10.0.0.{n[1]}/24", docker0="172.17.0.1/16"), named(n, f"10.0.0.{n[1]}")]
        for n in ("w1", "w2", "w3")
    }
    assert blamed(hosts, **GLOO)["w1"] == "3 hosts have this address"
    assert set(blamed(hosts, **GLOO)) == {"w1", "w2", "w3"}


def test_networks_without_a_route() -> None:
    hosts = alike_hosts(3)
    hosts["w3"] = [interfaces(eth0="10.0.0.3/24", docker0="172.17.0.1/16"), named("w3", "172.17.0.1")]
    assert blamed(hosts) == {}  # w3 has the greater address, and a way to the others
    hosts["w3"] = [interfaces(docker0="172.17.0.1/16"), named("w3", "172.17.0.1")]
    assert blamed(hosts) == {"w3": "w3 has no route to 10.0.0.1 of w1"}
    hosts["w3"] = [interfaces(eth0="10.0.0.3/32"), named("w3", "10.0.0.3")]
    (finding,) = run_check("interface-unreachable", hosts, job()).findings
    command = "`ip address add 10.0.0.3/24 dev eth0`, then `ip address del 10.0.0.3/32 dev eth0`"
    assert finding.values["case"] == "Route" and command in finding.values["prefix"]
    hosts["w2"] = [interfaces(eth0="10.0.0.2/31"), named("w2", "10.0.0.2")]  # no prefix that most have
    assert {finding.values["case"] for finding in run_check("interface-unreachable", hosts, job()).findings} == {
        "Interface"
    }


def test_a_route_is_enough() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.{n}.1/24", routes=("0.0.0.0/0",)), named(f"w{n}", f"10.0.{n}.1")]
        for n in (1, 2)
    }
    assert blamed(hosts) == {}


def test_an_address_that_only_a_router_may_know() -> None:
    """A real job of Gloo fails there, or runs where the router has a route to the bridge: both were measured."""
    bridge = interfaces(eth0="192.168.0.2/24", aaa0="10.250.1.1/24", routes=("0.0.0.0/0",))
    hosts: dict[str, list[Fact]] = {
        "w1": [interfaces(eth0="192.168.0.1/24", routes=("0.0.0.0/0",)), named("w1", "192.168.0.1")],
        "w2": [bridge, named("w2", "10.250.1.1")],
    }
    outcome = run_check(NAME, hosts)
    assert messages(outcome) == []
    assert "whether w1 reaches 10.250.1.1 (aaa0 of w2) depends on the router" in outcome.unknown[""].text
    hosts["w1"][0] = interfaces(eth0="192.168.0.1/24", routes=("0.0.0.0/0", "10.250.0.0/16"))
    assert blamed(hosts) == {} and not run_check(NAME, hosts).unknown
    hosts["w1"][0] = interfaces(eth0="192.168.0.1/24")
    assert blamed(hosts) == {"w1": "w1 has no route to 10.250.1.1 of w2"}


def test_policy_routing_is_unknown() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.{n}.1/24", has_rules=True), named(f"w{n}", f"10.0.{n}.1")] for n in (1, 2)
    }
    outcome = run_check(NAME, hosts)
    assert messages(outcome) == []
    assert "policy routing" in outcome.unknown[""].text


def test_only_ipv6() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"fd00::{n}/64"), named(f"w{n}", f"fd00::{n}")] for n in (1, 2)
    }
    assert blamed(hosts) == {}
    hosts["w3"] = [interfaces(eth0="10.0.0.3/24"), named("w3", "10.0.0.3")]
    assert blamed(hosts) == {"w3": "it is an IPv4 address; others are IPv6"}


@pytest.mark.parametrize("name", ["bond0", "eth0.100", "macvlan0", "br0", "ib0", "enp4s0f1"])
def test_bonds_vlans_and_bridges_are_like_any(name: str) -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(link(name, kind="bond"), **{name: f"10.0.0.{n}/24"}), named(f"w{n}", f"10.0.0.{n}")]
        for n in (1, 2)
    }
    assert blamed(hosts, GLOO_SOCKET_IFNAME=name) == {}
    assert messages(run_check("interface-doubtful", hosts, job(GLOO_SOCKET_IFNAME=name))) == []


def test_hccl_takes_the_first_by_name() -> None:
    """br-lan stands before eth0, and all hosts have it with one address."""
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", cni0="10.244.0.1/24"), named(f"w{n}", f"10.0.0.{n}"), NPUS]
        for n in (1, 2)
    }
    assert blamed(hosts) == dict.fromkeys(("w1", "w2"), "2 hosts have this address")
    assert blamed(hosts, HCCL_SOCKET_IFNAME="=eth0") == {}
    assert blamed(hosts, RANK_TABLE_FILE="/x.json") == {}


def test_an_address_of_the_job_is_corrected_by_one_of_each_host() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", lo="127.0.0.1/8"), named(f"w{n}", f"10.0.0.{n}"), NPUS]
        for n in (1, 2)
    }
    assert blamed(hosts) == {}
    outcome = run_check(NAME, hosts, job(HCCL_IF_IP="127.0.0.1"))
    assert {finding.values["case"] for finding in outcome.findings} == {"Address"}
    assert "On w2: `export HCCL_IF_IP=10.0.0.2`" in str(outcome.findings[0].values["exports"])


def test_nccl_prefers_ib_and_leaves_docker_out() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [
            interfaces(docker0="172.17.0.1/16", eth0=f"10.0.0.{n}/24", ib0=f"10.1.0.{n}/24"),
            named(f"w{n}", f"10.0.0.{n}"),
            GPUS,
        ]
        for n in (1, 2)
    }
    assert blamed(hosts) == {}
    assert set(blamed(hosts, NCCL_SOCKET_IFNAME="lo")) == {"w1", "w2"}
    assert set(blamed(hosts, NCCL_SOCKET_IFNAME="docker")) == {"w1", "w2"}


def test_hosts_without_a_way_to_tell_the_name_apart_are_left_out() -> None:
    """A saved run of an older version does not tell which of two addresses Gloo takes."""
    from doctor.facts.names import HostNames, NameResolution

    hosts = alike_hosts(3)
    for name in ("w1", "w2"):
        two = NameResolution(("10.0.0.1", "127.0.1.1"))
        hosts[name][1] = HostNames(own=name, names={name: two}, fleet=3)
    assert blamed(hosts) == {}


def test_a_large_fleet_is_judged_in_time() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [
            interfaces(eth0=f"10.{n >> 8}.{n & 255}.2/24", routes=("0.0.0.0/0",)),
            named(f"w{n}", f"10.{n >> 8}.{n & 255}.2"),
        ]
        for n in range(1024)
    }
    assert blamed(hosts) == {}


def test_a_large_fleet_with_one_docker0() -> None:
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(eth0=f"10.0.{n >> 8}.{n & 255}/16", docker0="172.17.0.1/16"), named(f"w{n}", "10.0.0.1")]
        for n in range(1024)
    }
    (finding,) = run_check(NAME, hosts, job(**GLOO)).findings
    assert len(finding.hosts) == 1024


def test_an_interface_without_a_carrier_leads_nowhere() -> None:
    hosts = {
        f"w{n}": [
            interfaces(link("ib0", running=n != 2), eth0=f"10.0.0.{n}/24", ib0=f"10.1.0.{n}/24"),
            named(f"w{n}", ""),
        ]
        for n in (1, 2, 3)
    }
    assert blamed(hosts, GLOO_SOCKET_IFNAME="ib0") == {"w2": "interface ib0 has no carrier"}
    assert blamed(hosts, GLOO_SOCKET_IFNAME="eth0") == {}


def test_an_interface_that_is_down_has_lost_its_address() -> None:
    hosts = {
        f"w{n}": [interfaces(link("ib0", up=n != 1), ib0=f"10.{n}.0.1/24", routes=("10.0.0.0/8",)), named(f"w{n}", "")]
        for n in (1, 2)
    }
    assert blamed(hosts, GLOO_SOCKET_IFNAME="ib0") == {"w1": "interface ib0 is down"}


def test_a_route_over_an_interface_without_a_carrier_is_none() -> None:
    """w1 has the address in a network of its own; the route of w2 to it goes over a dead port."""
    hosts: dict[str, list[Fact]] = {
        "w1": [interfaces(ib0="10.1.0.1/24", routes=("10.2.0.0/24",)), named("w1", "")],
        "w2": [interfaces(link("eth0", running=False), ib0="10.2.0.2/24", routes=("10.1.0.0/24",)), named("w2", "")],
    }
    assert set(blamed(hosts, GLOO_SOCKET_IFNAME="ib0")) == {"w2"}


@pytest.mark.parametrize(("indices", "connects"), [((0, 0), False), ((4, 2), False), ((2, 2), True)])
def test_gloo_connects_by_link_local_addresses_where_the_interfaces_have_one_number(
    indices: tuple[int, int], connects: bool
) -> None:
    """Measured with PyTorch 2.13 in two network namespaces; 0: a saved run that did not read it."""
    hosts: dict[str, list[Fact]] = {
        f"w{n}": [interfaces(link("ib0", index=index), ib0=f"fe80::{n}/64"), named(f"w{n}", "")]
        for n, index in enumerate(indices, 1)
    }
    reason = "it is a link-local address, which has no meaning on other hosts"
    assert blamed(hosts, GLOO_SOCKET_IFNAME="ib0") == ({} if connects else {"w1": reason, "w2": reason})


def test_torchs_rpc_is_a_warning() -> None:
    """Recipes set its variable beside Gloo's, for jobs without any RPC."""
    outcome = run_check(NAME, alike_hosts(2), job(TP_SOCKET_IFNAME="lo"))
    assert {outcome.severity_of(finding).value for finding in outcome.findings} == {"warning"}


DAEMONS = "mpirun -np 3 -H w1,w2,w3 --mca oob_tcp_if_include eno7 ./program"


def daemons(*addresses: str) -> dict[str, list[Fact]]:
    """Hosts whose eno7 has these addresses; eth0's gateway leads to 10.1.0.0/16 as well."""
    return {
        f"w{n}": [interfaces(eth0=f"10.0.0.{n}/24", eno7=address, routes=("10.1.0.0/16",)), named(f"w{n}", "10.0.0.9")]
        for n, address in enumerate(addresses, 1)
    }


def test_the_daemons_of_open_mpi_on_one_network() -> None:
    assert run_check(NAME, daemons("10.1.0.1/24", "10.1.0.2/24", "10.1.0.3/24"), config(DAEMONS)).findings == ()


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (("10.9.0.1/24", "10.1.0.2/24", "10.1.0.3/24"), "w2 has no route to 10.9.0.1 of w1"),
        (("172.17.0.1/16",) * 3, "3 hosts have this address"),
        (("10.7.0.1/24", "10.1.0.2/24"), "w2 has no route to 10.7.0.1 of w1"),
    ],
)
def test_of_the_daemons_the_others_connect_to_that_of_mpirun(addresses: tuple[str, ...], reason: str) -> None:
    (finding,) = run_check(NAME, daemons(*addresses), config(DAEMONS)).findings
    assert (finding.hosts, finding.values["reason"]) == (("w1",), reason)


def test_another_daemon_whose_address_leads_nowhere_is_unknown() -> None:
    """Open MPI 4.1 connects from any address, 5 from one of its list."""
    outcome = run_check(NAME, daemons("10.1.0.1/24", "10.1.0.2/24", "10.9.0.1/24"), config(DAEMONS))
    assert outcome.findings == ()
    assert "Open MPI 5 starts no daemon on w3" in next(iter(outcome.unknown.values())).text


def test_another_daemon_that_cannot_reach_mpiruns_is_an_error() -> None:
    hosts = daemons("10.1.0.1/24", "10.1.0.2/24", "10.9.0.1/24")
    hosts["w3"][0] = interfaces(eth0="10.0.0.3/24", eno7="10.9.0.1/24")
    (finding,) = run_check(NAME, hosts, config(DAEMONS)).findings
    assert finding.hosts == ("w3",)


def test_of_many_daemons_some_are_connected_to_as_well() -> None:
    addresses = [f"10.1.0.{n}/24" for n in range(1, 67)]
    addresses[1] = "10.9.0.1/24"
    (finding,) = run_check(NAME, daemons(*addresses), config(DAEMONS)).findings
    assert finding.hosts == ("w2",)
    outcome = run_check(NAME, daemons(*addresses[:65]), config(DAEMONS))
    assert (outcome.findings, bool(outcome.unknown)) == ((), True)
