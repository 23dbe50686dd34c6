"""What a host's rules do with the job's connections, in the terms of a finding."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.sanitize import plain
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.gate import Ask, Obstacle, gate
from doctor.facts.firewall.packets import Ranges, count, less, meet, ranges
from doctor.facts.firewall.routes import Route, owners
from doctor.facts.firewall.rules import Chain, Table
from doctor.facts.firewall.walk import Place
from doctor.facts.ports import Listeners, ReservedPorts
from doctor.job import Launch, few

WILDCARDS = ("0.0.0.0", "::")


class Ports(msgspec.Struct, frozen=True):
    """The ports that the job needs on a host."""

    fixed: Ranges
    """HCCL's, on a host with NPUs."""
    master: Ranges
    ephemeral: Ranges
    """All that the kernel may give."""
    free: Ranges
    """Those of them that it can give: neither reserved nor listened on."""

    @property
    def all(self) -> Ranges:
        return ranges([*self.fixed, *self.master, *self.ephemeral])


def job_ports(launch: Launch, reserved: ReservedPorts, listeners: Listeners, npus: bool) -> Ports:
    """MASTER_PORT, HCCL's host ports where there are NPUs, and the ports that the kernel gives."""
    ephemeral = ranges([(reserved.ephemeral.first, reserved.ephemeral.last)])
    taken = [(one.first, one.last) for one in reserved.reserved]
    taken += [(one.port, one.port) for one in listeners.sockets if one.listening and one.address in WILDCARDS]
    return Ports(
        ranges((one.first, one.last) for one in launch.hccl_ports) if npus else (),
        ranges([(launch.master_port, launch.master_port)]),
        ephemeral,
        less(ephemeral, ranges(taken)),
    )


class Block(msgspec.Struct, frozen=True):
    """Connections of the job that one manager's rules stop, in one direction."""

    route: Route
    outgoing: bool
    later: bool
    """New connections are let through, and their later packets are not."""
    places: tuple[Place, ...]
    ports: Ranges
    addresses: Ranges
    """Of the peers."""

    @property
    def peers(self) -> str | list[str]:
        own = (self.route.own.number, self.route.own.number)
        if not less(self.route.fleet, ranges([*self.addresses, own])):
            return "every other host"
        return few(sorted(owners(self.route, self.addresses)))

    @property
    def manager(self) -> str:
        return manager(self.places[0])

    @property
    def what(self) -> str:
        if self.later:
            return "the later packets of connections to"
        return "outgoing connections to" if self.outgoing else "incoming connections to"

    @property
    def rules(self) -> list[str]:
        """The first rules, each with the chain it is in."""
        words = [one.rule if _names_chain(one) else f"{one.rule} (chain {one.chain})" for one in self.places]
        return [short(one) for one in list(dict.fromkeys(words))[:3]]


def blocks(rules: FirewallRules, ways: Sequence[Route], ports: Ports, master: str) -> list[Block]:
    """What is blocked, whichever of the ways the job takes. ``master``: the master's host; empty when not known.

    Raises: Unreadable when it depends on the way, or on a rule that cannot be judged.
    """
    found: list[Block] = []
    clear: list[Route] = []
    doubts: list[Unreadable] = []
    for route in ways:
        try:
            blocked = _on_route(rules, route, ports, master)
        except Unreadable as doubt:
            doubts.append(doubt)
            continue
        found += blocked
        clear += [] if blocked else [route]
    if found and clear:
        raise Unreadable(
            f"{clear[0].own.device} ({clear[0].own.text}) lets the job's ports through, "
            f"{found[0].route.own.device} ({found[0].route.own.text}) does not: {found[0].rules[0]}; "
            "MASTER_ADDR would tell which of the two networks the job uses"
        )
    if doubts:
        raise doubts[0]
    return found


def _on_route(rules: FirewallRules, route: Route, ports: Ports, master: str) -> list[Block]:
    if route.own.text not in rules.local:
        raise Unreadable(
            f"the job's container has the address {route.own.text} of its own, and the host's rules for packets that "
            "it passes on are not judged"
        )
    asked = Ask(route.own.device, route.own.network[0], route.fleet, ports.all, ports.ephemeral, route.on_link)
    answer = gate(rules.tables, asked)
    sure = [one for found in answer.blocked if (one := _here(found, route, ports, master))]
    if sure:
        return _grouped(sure, route)
    for found in answer.unclear:
        doubt = _here(found, route, ports, master)
        if doubt:
            raise Unreadable(
                f"whether TCP ports {spell(doubt.ports)} are open depends on a rule that cannot be judged from "
                f"outside: {short(doubt.place.rule)} (chain {doubt.place.chain})"
            )
    _unless_bridged(rules, route)
    return []


def _unless_bridged(rules: FirewallRules, route: Route) -> None:
    """Raises: Unreadable when packets also go through rules of a bridge, which are not followed."""
    bridged = [table for table in rules.tables if table.family == "bridge" and any(one.rules for one in table.chains)]
    if bridged and route.own.device in rules.bridges:
        raise Unreadable(f"{route.own.device} is a bridge with rules of its own (table bridge {bridged[0].name})")


def _here(found: Obstacle, route: Route, ports: Ports, master: str) -> Obstacle | None:
    """The part of an obstacle that concerns this host, and what the job needs of it."""
    own = ((route.own.number, route.own.number),)
    peers = meet(less(found.peers, own), route.fleet)
    if not meet(found.own, own) or not peers:
        return None
    needed = ranges([*ports.fixed, *ports.free])
    inbound = found.outgoing == (found.part in ("answer", "returned"))
    if not master or (inbound and master not in route.peers):
        needed = ranges([*needed, *ports.master])
    elif not inbound and meet(peers, route.peers.get(master, ())):
        peers = peers if meet(found.ports, needed) else meet(peers, route.peers[master])
        needed = ranges([*needed, *ports.master])
    blocked, others = meet(found.ports, needed), meet(found.others, ports.free)
    if blocked and 2 * count(others) < count(ports.free):
        blocked = others  # the rule is about the port of the end that connects
    if not blocked:
        return None
    return Obstacle(found.outgoing, found.part, own, peers, blocked, others, found.place)


def _grouped(sure: Sequence[Obstacle], route: Route) -> list[Block]:
    groups: dict[tuple[bool, str, str], list[Obstacle]] = {}
    openings = [one for one in sure if one.part == "opening"]
    for one in openings or sure:  # connections that are never made have no later packets
        table = f"{one.place.table.tool} {one.place.table.family} {one.place.table.name} {one.place.base.name}"
        groups.setdefault((one.outgoing, manager(one.place), table), []).append(one)
    return [
        Block(
            route,
            outgoing,
            not openings,
            tuple(dict.fromkeys(one.place for one in members)),
            ranges(span for one in members for span in one.ports),
            ranges(span for one in members for span in one.peers),
        )
        for (outgoing, _, _), members in groups.items()
    ]


def manager(place: Place) -> str:
    """Whose rule it is, by the names that each manager gives its chains."""
    names = {chain.name for chain in place.table.chains}
    if place.chain.startswith("ufw") or (_is_policy(place) and names & {"ufw-before-input", "ufw6-before-input"}):
        return "ufw"
    own = place.chain != place.base.name or "icmp-host-prohibited" in place.rule
    if place.table.name == "firewalld" or ("INPUT_ZONES" in names and own):
        return "firewalld"
    if place.table.tool == "nft" and not _is_iptables(place.table, place.base):
        return "nftables"
    return "iptables-legacy" if place.table.tool == "iptables-legacy" else "iptables"


def _names_chain(place: Place) -> bool:
    return _is_policy(place) or place.rule.startswith("-A ")


def _is_policy(place: Place) -> bool:
    return place.rule.startswith("policy ")


def _is_iptables(table: Table, base: Chain) -> bool:
    """A table of nftables that iptables made."""
    return table.family in ("ip", "ip6") and table.name in ("filter", "mangle", "raw") and base.name.isupper()


def spell(ports: Ranges, most: int = 8) -> str:
    """``29500, 60000-60031``: at most so many parts."""
    words = [str(low) if low == high else f"{low}-{high}" for low, high in ports]
    return ", ".join(words[:most]) + (f" and {len(words) - most} more ranges" if len(words) > most else "")


def short(rule: str) -> str:
    """A rule, which may be long, and is foreign text."""
    return plain(" ".join(rule.split()), 160)
