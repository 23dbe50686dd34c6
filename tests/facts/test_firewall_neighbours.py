"""Rules about what asks for hardware addresses, and those of a bridge: what doctor says, and what the kernel then does.

Both ends forget each other's hardware addresses before each connection: hosts do not know them when a job starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from doctor.engine.fact import Fact
from doctor.engine.result import Status
from doctor.facts.firewall import FirewallRules
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.ports import Listeners
from tests.checks.ports import reserved
from tests.checks.run_check import run_check
from tests.facts.answers import answered
from tests.facts.firewall_random import HOST, PEERS
from tests.facts.firewall_wire import Wire
from tests.hosts.fleet import unavailable

pytestmark = pytest.mark.hosts

PORT = 29500
PEER, OTHER = PEERS[0], "10.9.0.200"
SIX = ("fd09::1", "fd09::2")
TABLE = "nft 'add table {0} t; add chain {0} t c {{ type filter hook {1} priority 0; policy {2}; }}'; "


def nft(family: str, hook: str, *rules: str, policy: str = "accept") -> str:
    lines = "".join(f"nft 'add rule {family} t c {rule}'; " for rule in rules)
    return TABLE.format(family, hook, policy) + lines


BRIDGE_CLOSED = nft("bridge", "input", "drop")
ARP_FAULTS = [
    nft("arp", "input", policy="drop"),
    nft("arp", "input", "arp operation request accept", policy="drop"),
    nft("arp", "input", f"arp saddr ip {PEER} drop"),
    nft("arp", "input", "arp operation reply drop"),
    nft("arp", "input", f"arp daddr ip {HOST} drop"),
    nft("arp", "output", "arp operation request drop"),
    nft("arp", "output", "arp operation { request, reply } arp saddr ip 10.9.0.0/16 drop"),
    nft("netdev", "ingress device eth0", "meta protocol arp drop"),
    nft("netdev", "ingress device eth0", f"ether type arp arp saddr ip {PEER} drop"),
    f"arptables-nft -A INPUT -s {PEER} -j DROP",
    "arptables-nft -P OUTPUT DROP",
]
ARP_INNOCENT = [
    nft("arp", "input", "arp operation { request, reply } accept", policy="drop"),
    nft("arp", "input", f"arp saddr ip {OTHER} drop"),
    nft("arp", "input", f"arp daddr ip != {{ {HOST}, {PEER} }} drop"),
    nft("arp", "output", f"arp daddr ip {OTHER} drop"),
    nft("arp", "input", "arp operation nak drop", "arp htype 32 drop"),
    nft("netdev", "ingress device eth0", f"ether type arp arp saddr ip {OTHER} drop", "meta l4proto udp drop"),
    f"arptables-nft -A INPUT -s {OTHER} -j DROP; arptables-nft -A INPUT --opcode Request -j ACCEPT",
    BRIDGE_CLOSED,
    nft("inet", "input", "meta l4proto ipv6-icmp drop"),
]
DISCOVERY_FAULTS = [
    nft("inet", "input", "icmpv6 type nd-neighbor-solicit drop"),
    nft("inet", "input", "ct state untracked drop"),
    nft("ip6", "input", "ct state established,related accept", "meta l4proto tcp accept", policy="drop"),
    nft("ip6", "output", "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } drop"),
    nft("netdev", "ingress device eth0", "icmpv6 type nd-neighbor-advert drop"),
    "ip6tables-nft -A INPUT -p icmpv6 -j DROP",
    "ip6tables-nft -A INPUT -d ff00::/8 -j DROP",
    "ip6tables-nft -A OUTPUT -p icmpv6 --icmpv6-type neighbour-advertisement -j DROP",
    "ip6tables-legacy -A INPUT -p icmpv6 --icmpv6-type neighbour-solicitation -j DROP",
    "ip6tables-legacy -P INPUT DROP; ip6tables-legacy -A INPUT -p tcp -j ACCEPT",
]
_UFW = "ip6tables-nft -A INPUT -p icmpv6 --icmpv6-type {} -m hl --hl-eq 255 -j ACCEPT; "
DISCOVERY_INNOCENT = [
    nft("inet", "input", "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept", "tcp dport 1-65535 accept",
        "ct state established accept", policy="drop"),
    nft("inet", "input", "icmpv6 type { echo-request, nd-redirect } drop", "ct state invalid drop"),
    nft("inet", "input", "ip6 saddr fd09::99 icmpv6 type nd-neighbor-solicit drop"),
    nft("ip6", "input", "ip6 hoplimit 255 icmpv6 type 135-136 accept", "ip6 nexthdr icmpv6 drop"),
    _UFW.format("neighbour-solicitation") + _UFW.format("neighbour-advertisement")
    + "ip6tables-nft -A INPUT -p tcp -j ACCEPT; ip6tables-nft -P INPUT DROP",
    "ip6tables-legacy -A INPUT -p icmpv6 --icmpv6-type echo-request -j DROP",
    nft("arp", "input", policy="drop"),
]  # fmt: skip
BRIDGE_FAULTS = [
    nft("bridge", "input", "ether type arp drop"),
    nft("bridge", "prerouting", f"ip saddr {PEER} tcp dport 20000-65535 drop"),
    nft("bridge", "output", "ether type ip meta l4proto tcp drop"),
    "ebtables-nft -A INPUT -p ARP -j DROP",
    f"ebtables-nft -A INPUT -p ARP --arp-ip-src {PEER} -j DROP",
    "ebtables-nft -A INPUT -p ARP --arp-op Request -j ACCEPT; ebtables-nft -A INPUT -p ARP -j DROP",
    "ebtables-nft -A OUTPUT -p IPv4 --ip-proto tcp --ip-dport 1024:65535 -j DROP",
]
BRIDGE_INNOCENT = [
    nft("bridge", "input", "ether type arp accept", "ip protocol tcp accept", policy="drop"),
    nft("bridge", "input", "ether type vlan drop", "tcp dport 22 drop", "arp operation inreply drop"),
    nft("bridge", "forward", policy="drop"),
    f"ebtables-nft -A INPUT -p ARP --arp-ip-src {OTHER} -j DROP; ebtables-nft -A FORWARD -p ARP -j DROP",
    "ebtables-nft -A INPUT -p IPv4 --ip-proto tcp --ip-dport 22 -j DROP",
]
NOT_KNOWN = [
    nft("arp", "input", "arp saddr ether 02:00:00:00:00:99 drop"),
    nft("bridge", "input", 'iifname "vnet0" drop'),
    "ebtables-nft -A INPUT -p ARP -i vnet0 -j DROP",
]
"""The kernel lets the job through, by what doctor does not know."""
CASES = [
    *((script, 4, True) for script in (*ARP_FAULTS, *BRIDGE_FAULTS)),
    *((script, 4, False) for script in (*ARP_INNOCENT, *BRIDGE_INNOCENT)),
    *((script, 6, True) for script in DISCOVERY_FAULTS),
    *((script, 6, False) for script in DISCOVERY_INNOCENT),
    *((script, 4, None) for script in NOT_KNOWN),
]
CLEAN = "nft flush ruleset; ip6tables-legacy -F; ip6tables-legacy -P INPUT ACCEPT"


class Hosts(NamedTuple):
    """Two of them; the first has the rules, and its address on ``device``."""

    wire: Wire
    device: str


@pytest.fixture(scope="module", params=["eth0", "br0"])
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    reason = unavailable()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    wire, device = Wire([PORT]), str(request.param)
    if device == "br0":
        script = "ip addr flush dev eth0; ip link add br0 type bridge; ip link set eth0 master br0"
        wire.host.ask("sh", f"{script}; ip addr add {HOST}/16 dev br0; ip link set br0 up")
    wire.host.ask("sh", f"ip addr add {SIX[0]}/64 dev {device} nodad")
    wire.peer.ask("sh", f"ip addr add {SIX[1]}/64 dev eth0 nodad")
    yield Hosts(wire, device)
    wire.end()


def status(hosts: Hosts, family: int) -> Status:
    """What firewall-blocks-job says of both; the peer has no rules."""
    ends = (("w1", hosts.wire.host, hosts.device), ("w2", hosts.wire.peer, "eth0"))
    facts: dict[str, list[Fact]] = {}
    for (name, end, device), address in zip(ends, (HOST, PEER) if family == 4 else SIX, strict=True):
        addresses = HostAddresses(interfaces=(InterfaceAddress(device, address, 16 if family == 4 else 64),))
        rest = HostNames(own=name, names={}, fleet=2), reserved(""), Listeners(sockets=())
        facts[name] = [answered(FirewallRules, end.ask("rules")), addresses, *rest]
    outcome = run_check("firewall-blocks-job", facts)
    assert not outcome.crashed and {host for finding in outcome.findings for host in finding.hosts} <= {"w1"}
    return outcome.status


def is_connected(wire: Wire, family: int) -> bool:
    """Both ways, each from the start. What fails is tried again, with patience."""
    own, peer = (HOST, PEER) if family == 4 else SIX
    for wish in ((peer, own, PORT), (own, peer, PORT)):
        for patience in (0.15, 1.0):
            for end in (wire.host, wire.peer):
                end.ask("sh", "ip neigh flush all; ip -6 neigh flush all")
            (from_one,) = (wire.host if wish[0] == own else wire.peer).ask("connect", [wish], patience)
            if from_one[3]:
                break
        else:
            return False
    return True


@pytest.mark.parametrize(("script", "family", "dies"), CASES)
def test_a_rule_is_named_where_hosts_no_longer_find_each_other(
    hosts: Hosts, script: str, family: int, dies: bool | None
) -> None:
    if hosts.device == "eth0" and (script in BRIDGE_FAULTS or "vnet0" in script):
        dies = False
    if hosts.device == "br0" and script == BRIDGE_CLOSED:
        dies = True
    host = hosts.wire.host
    try:
        host.ask("sh", script)
        said = status(hosts, family)
        assert is_connected(hosts.wire, family) is not bool(dies)
    finally:
        host.ask("sh", CLEAN)
    assert said is {True: Status.FAILED, False: Status.PASSED, None: Status.UNKNOWN}[dies]
