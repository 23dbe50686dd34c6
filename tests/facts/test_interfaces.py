"""The host's network interfaces, from the kernel."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from doctor.collect.collector_request import function_source
from doctor.engine.fact import Unreadable
from doctor.facts.interfaces import Interfaces, LinkAddress, list_interfaces
from doctor.remote.runtime import netlink
from doctor.remote.runtime.netlink import sending_delays
from tests.checks.network import interfaces, link
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6
from tests.hosts.fleet import Fleet

RAW_INTERFACES: dict[str, Any] = {
    "links": [["lo", True, True, True, 65536, "", False, False], ["eth0", True, True, False, 1500, "", True, False]],
    "addresses": [["lo", "lo", "127.0.0.1", 8], ["eth0:1", "eth0", "10.0.0.1", 24]],
    "routes": [["0.0.0.0", 0, "eth0"]],
    "has_rules": False,
}


def test_what_the_kernel_lists() -> None:
    observed_interfaces = answered(Interfaces, RAW_INTERFACES)
    assert isinstance(observed_interfaces, Interfaces)
    assert observed_interfaces.addresses[1] == LinkAddress("eth0:1", "eth0", "10.0.0.1", 24)
    assert observed_interfaces.link("eth0") == observed_interfaces.links[1]
    assert observed_interfaces.leads_to("192.0.2.9") is True


def test_the_facts_of_this_machine_are_read() -> None:
    observed_interfaces = answered(Interfaces, list_interfaces({}))
    assert isinstance(observed_interfaces, Interfaces)
    assert LinkAddress("lo", "lo", "127.0.0.1", 8) in observed_interfaces.addresses
    assert observed_interfaces.links[0].is_loopback


@pytest.mark.parametrize(
    "change",
    [
        {"links": []},
        {"addresses": [["lo", "lo", "localhost", 8]]},
        {"addresses": [["lo", "lo", "127.0.0.1", 99]]},
        {"routes": [["10.0.0.0", 77, "eth0"]]},
        {"links": [["lo", True]]},
        {"addresses": [["eth0", "eth0", "10.0.0.1", 24]] * 2000},
    ],
)
def test_malformed_output_is_unreadable(change: dict[str, Any]) -> None:
    assert isinstance(answered(Interfaces, {**RAW_INTERFACES, **change}), Unreadable)


def test_what_delays_loses_and_limits_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `tc qdisc add ... netem delay 50ms loss 1%` and `tbf rate 200mbit` are dumped (linux/pkt_sched.h)."""
    netem = struct.pack("=6I", 781_250, 1000, 42_949_673, 0, 0, 0)
    exact = netem + struct.pack("=HHq", 12, 10, 50_000_000)
    tbf = struct.pack("=HH8xI24x", 40, 1, 25_000_000)
    rows = [(b"netem", netem), (b"netem", exact), (b"tbf", tbf), (b"tbf", b""), (b"netem", b"x"), (b"fq_codel", b"")]
    entry = struct.pack("=4xi12x", 7)
    entries = [(entry, {1: kind + b"\0", 2: options}) for kind, options in rows]
    monkeypatch.setattr("doctor.remote.runtime.netlink.netlink_entries", lambda *_: entries)
    listed = answered(Interfaces, {**RAW_INTERFACES, "delays": sending_delays({7: "eth0"})})
    assert isinstance(listed, Interfaces)
    assert [delay.deeds for delay in listed.delays] == [
        "delays by 50 ms and drops 1 %",
        "delays by 50 ms and drops 1 %",
        "limits to 200 Mbit/s",
        "",
    ]


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(Interfaces, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(list_interfaces)


def test_where_routes_lead() -> None:
    host = interfaces(eth0="10.0.0.1/24", routes=("10.8.0.0/16",))
    assert [host.leads_to(name) for name in ("10.0.0.9", "10.8.3.3", "10.0.0.1", "10.9.0.1", "fd00::1")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert interfaces(eth0="10.0.0.1/24", has_rules=True).leads_to("10.9.0.1") is None


@pytest.mark.parametrize(
    ("name", "kind", "is_card"),
    [("eth0", "veth", True), ("bond0", "bond", True), ("eth0.7", "vlan", True), ("br0", "bridge", True),
     ("docker0", "bridge", False), ("veth1a2b", "veth", False), ("mac0", "macvlan", False), ("tun0", "tun", False)],
)  # fmt: skip
def test_network_cards(name: str, kind: str, is_card: bool) -> None:
    assert link(name, kind=kind).is_network_card == is_card


@pytest.mark.hosts
def test_kinds_on_a_real_host(make_fleet: Callable[..., Fleet]) -> None:
    """A bridge that is down, an alias, a route and a rule, as the kernel shows them."""
    import json

    fleet = make_fleet(1, name="kin", subnet="10.73.0.0/16")
    host = fleet.hosts[0]
    fleet.enter(
        host,
        "ip link add br7 type bridge && ip addr add 10.7.0.1/24 dev br7 label br7:x\n"
        "ip route add 10.99.0.0/16 via 10.73.0.1\n"
        "ip rule add from 10.7.0.1 lookup 77\n"
        "tc qdisc add dev eth0 root tbf rate 200mbit burst 128kb latency 50ms\n"
        "timeout 20 sh -c 'until ip link show eth0 | grep -q \"state UP\"; do sleep 0.05; done'",  # the kernel is late
    )
    output = fleet.enter(host, ["python3", "-c", body()]).stdout
    observed_interfaces = answered(Interfaces, json.loads(output))
    assert isinstance(observed_interfaces, Interfaces)
    bridge, card = observed_interfaces.link("br7"), observed_interfaces.link("eth0")
    assert bridge and not bridge.is_up and bridge.kind == "bridge"
    assert card and card.is_running and card.is_network_card
    assert LinkAddress("br7:x", "br7", "10.7.0.1", 24) in observed_interfaces.addresses
    assert observed_interfaces.has_rules
    assert [(delay.interface, delay.deeds) for delay in observed_interfaces.delays] == [
        ("eth0", "limits to 200 Mbit/s")
    ]
    assert observed_interfaces.routes and any(
        route.network == "10.99.0.0" and route.prefix == 16 for route in observed_interfaces.routes
    )


def body() -> str:
    """The probe as it is sent, and a line that prints its answer."""
    sent = inspect.getsource(netlink) + function_source(list_interfaces)
    return f"{sent}\nimport json; print(json.dumps(list_interfaces({{}})))"
