"""What the rules are said to do, and what the kernel then does with real connections."""

from __future__ import annotations

import ipaddress
import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.gate import GateQuery, GateResult, Obstacle, evaluate_gate
from doctor.facts.firewall.packets import intersect, to_ranges
from tests.facts.answers import answered
from tests.facts.firewall_random import HOST, PEERS, PORTS, Iptables, Nft
from tests.facts.firewall_wire import EPHEMERAL, Wire, Wish
from tests.hosts.fleet import unavailable

pytestmark = pytest.mark.hosts

WISHES: list[Wish] = [
    *((peer, HOST, port) for peer in PEERS for port in PORTS),
    *((HOST, peer, port) for peer in PEERS[:2] for port in PORTS),
]
CLEAN = {
    "nft": "nft flush ruleset",
    "iptables-nft": "nft flush ruleset",
    "iptables-legacy": "for t in raw mangle filter; do iptables-legacy -t $t -F; iptables-legacy -t $t -X; done;"
    "iptables-legacy -P INPUT ACCEPT; iptables-legacy -P OUTPUT ACCEPT",
}


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    reason = unavailable()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    created_wire = Wire(PORTS)
    yield created_wire
    created_wire.end()


@pytest.fixture(autouse=True)
def clean(wire: Wire) -> Iterator[None]:
    yield
    for script in CLEAN.values():
        wire.host.ask("sh", script)


def number(address: str) -> tuple[int, int]:
    index = int(ipaddress.ip_address(address))
    return index, index


def evaluated_gate(wire: Wire) -> GateResult:
    rules = answered(FirewallRules, wire.host.ask("rules"))
    assert isinstance(rules, FirewallRules), rules
    assert rules.unread == {}
    ports = to_ranges((port, port) for port in PORTS)
    return evaluate_gate(
        rules.tables, GateQuery("eth0", 4, to_ranges(map(number, (HOST, *PEERS))), ports, (EPHEMERAL,), True)
    )


def expected(gate: GateResult, wish: Wish) -> bool | None:
    """Whether the connection is said to be made; None where that is not known."""

    def concerns(obstacle: Obstacle) -> bool:
        inbound = obstacle.outgoing == (obstacle.packet_kind in ("answer", "returned"))
        peer = wish[0] if inbound else wish[1]
        local = wish[1] if inbound else wish[0]
        return local == HOST and all(
            (
                intersect(obstacle.host_addresses, (number(local),)),
                intersect(obstacle.peer_addresses, (number(peer),)),
                intersect(obstacle.ports, ((wish[2], wish[2]),)),
            )
        )

    sure = [obstacle for obstacle in gate.blocked if concerns(obstacle)]
    if any(obstacle.other_ports == (EPHEMERAL,) for obstacle in sure):
        return False
    return None if sure or any(concerns(obstacle) for obstacle in gate.unclear) else True


def unlike(wire: Wire, gate: GateResult) -> list[Wish]:
    """The connections that go otherwise than was said. A slow machine gets a second chance."""
    expected_values = {wish: expected(gate, wish) for wish in WISHES}
    results = wire.passes(WISHES)
    wrong = [wish for wish, expected in expected_values.items() if expected is not None and expected != results[wish]]
    again = wire.passes(wrong, 2.0) if wrong else {}
    return [wish for wish in wrong if again[wish] != expected_values[wish]]


def compare(wire: Wire, tool: str, scripts: Iterator[str], many: int) -> tuple[int, int]:
    """Loads as many rule sets as are accepted; gives how many answers were sure, and how many not."""
    load = {"nft": "nft -f -", "iptables-nft": "iptables-nft-restore", "iptables-legacy": "iptables-legacy-restore"}[
        tool
    ]
    sure = unsure = done = 0
    for script in scripts:
        wire.host.ask("sh", CLEAN[tool])
        try:
            wire.host.ask("sh", f"{load} <<'END'\n{script}END")
        except RuntimeError:
            continue  # not a rule set
        gate = evaluated_gate(wire)
        assert unlike(wire, gate) == [], script
        predictions = [expected(gate, wish) for wish in WISHES]
        unsure += predictions.count(None)
        sure += len(predictions) - predictions.count(None)
        done += 1
        if done == many:
            return sure, unsure
    raise AssertionError("the scripts ran out")


def scripts(kind: Callable[[int], Nft | Iptables], first: int) -> Iterator[str]:
    return (kind(seed).script() for seed in itertools.count(first))


def test_rule_sets_of_nft(wire: Wire) -> None:
    sure, unsure = compare(wire, "nft", scripts(Nft, 1), 60)
    assert sure > 20 * unsure


@pytest.mark.parametrize("tool", ["iptables-nft", "iptables-legacy"])
def test_rule_sets_of_iptables(wire: Wire, tool: str) -> None:
    sure, unsure = compare(wire, tool, scripts(Iptables, 1), 25)
    assert sure > 20 * unsure


def test_that_a_difference_would_be_seen(wire: Wire) -> None:
    """The comparison itself: what is said of no rules at all does not hold once there are some."""
    gate = evaluated_gate(wire)
    assert unlike(wire, gate) == []
    wire.host.ask(
        "sh", "nft -f - <<'END'\ntable ip t { chain c { type filter hook input priority 0; policy drop; }; }\nEND"
    )
    assert len(unlike(wire, gate)) == len(WISHES)
    assert unlike(wire, evaluated_gate(wire)) == []


DOCKER = """\
iptables-nft -t nat -N DOCKER
iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
iptables-nft -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables-nft -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
iptables-nft -P FORWARD DROP
"""


def test_a_published_port_is_not_known_and_the_others_are(wire: Wire) -> None:
    wire.host.ask("sh", DOCKER)
    gate = evaluated_gate(wire)
    assert expected(gate, (PEERS[0], HOST, 8080)) is None
    assert expected(gate, (PEERS[0], HOST, 80)) is True
    assert unlike(wire, gate) == []


UNTRACKED = """\
iptables-nft -t raw -A PREROUTING -p tcp -j CT --notrack
iptables-nft -A INPUT -p tcp --dport 29500:60031 -m conntrack --ctstate UNTRACKED -j ACCEPT
iptables-nft -P INPUT DROP
"""
MARKED = """\
iptables-nft -t mangle -A PREROUTING -p tcp --dport 80 -j MARK --set-mark 7
iptables-nft -A INPUT -m mark --mark 7 -j REJECT
"""
NEVER_BACK = """\
iptables-nft -N A
iptables-nft -A INPUT -p tcp --dport 80 -g A
iptables-nft -A INPUT -p tcp -j DROP
"""
NEW_ALONE = """\
nft -f - <<'END'
table ip t {
    chain c {
        type nat hook input priority 100
        ct state established drop
    }
}
END
"""

PUSHED = "iptables-nft -A INPUT -p tcp --dport 80 -m tcp --tcp-flags PSH PSH -j DROP"
PUSHED_OUT = "nft add table ip t; nft add chain ip t c '{ type filter hook output priority 0; }'\n"
PUSHED_OUT += "nft add rule ip t c 'tcp dport 80 tcp flags & (psh|ack) == psh|ack drop'"
NOT_SHORT = "iptables-nft -A INPUT -p tcp --dport 80 -m length --length 30:1400 -j DROP"


@pytest.mark.parametrize("script", [UNTRACKED, MARKED, NEVER_BACK, NEW_ALONE, PUSHED, PUSHED_OUT, NOT_SHORT])
def test_what_chance_seldom_draws(wire: Wire, script: str) -> None:
    wire.host.ask("sh", script)
    assert unlike(wire, evaluated_gate(wire)) == []


def test_tables_of_nft_that_are_switched_off(wire: Wire) -> None:
    chain = "chain c { type filter hook input priority 0; policy drop; }"
    wire.host.ask("sh", f"nft -f - <<'END'\ntable ip t {{ flags dormant\n {chain}\n}}\nEND")
    gate = evaluated_gate(wire)
    assert gate == GateResult()
    assert unlike(wire, gate) == []


def test_what_comes_before_the_ip_layer(wire: Wire) -> None:
    chain = "chain c { type filter hook ingress device eth0 priority 0; tcp dport 29500 drop; }"
    wire.host.ask("sh", f"nft -f - <<'END'\ntable netdev t {{\n {chain}\n}}\nEND")
    gate = evaluated_gate(wire)
    assert expected(gate, (PEERS[0], HOST, 29500)) is False
    assert expected(gate, (PEERS[0], HOST, 29501)) is True
    assert unlike(wire, gate) == []


def test_a_table_of_iptables_with_a_match_that_nft_has_no_words_for(wire: Wire) -> None:
    """``nft -j`` gives such a match a name and no content; iptables-save knows it whole."""
    wire.host.ask("sh", "iptables-nft -A INPUT -p tcp -m multiport --ports 29500 -m mark --mark 0 -j DROP")
    gate = evaluated_gate(wire)
    assert expected(gate, (PEERS[0], HOST, 29500)) is False
    assert unlike(wire, gate) == []
