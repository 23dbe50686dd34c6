"""What a host's rules do with the job's connections, in the terms of a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Literal

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.check import once_per_fleet
from doctor.engine.fact import Unreadable
from doctor.engine.texts import filled, joined
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.gate import GateQuery, Obstacle, evaluate_gate
from doctor.facts.firewall.packets import Ranges, count, difference, intersect, to_ranges, union
from doctor.facts.firewall.redirects import describe_redirect, sought_rule
from doctor.facts.firewall.routes import Route, peers_holding
from doctor.facts.firewall.rules import Chain, RuleTable, is_redirecting, shorten_rule
from doctor.facts.firewall.walk import WalkPosition
from doctor.facts.ports import Listeners, ReservedPorts
from doctor.job import LaunchConfig, limit_items

MANY_CONNECTIONS = 512
"""Of one host of a job, for which each rank opens some to each host."""
_COUNTED = re.compile(r"(?:\bct count over|--connlimit-above) (\d{1,9})\b")
_AMOUNT = re.compile(
    r"\b(?:limit rate|quota|numgen|ct (?:original |reply )?(?:bytes|packets|avgpkt)|(?:meta|ip6?) length)\b"
    r"|-m (?:limit|hashlimit|quota|connbytes|rateest|recent|statistic|nfacct|length)\b"
)
"""What a rule decides by how much has passed, or at random."""
_UNTRIED = re.compile(r"\bmeta (?:hour|day|time)\b|-m (?:time|string|u32|bpf)\b|@(?:th|ih|nh|ll),|\bxt match\b")
"""By the hour, or by what stands in a packet."""
UNCLEAR_RULE = "depends on a rule not evaluated here"
"""Stands in the reason of a verdict that is unknown, before the rule that makes it so."""
WILDCARDS = ("0.0.0.0", "::")
_LAST = (1 << 128) - 1
"""The last address."""


class JobPorts(msgspec.Struct, frozen=True):
    """The ports that the job needs on a host."""

    hccl: Ranges
    """HCCL's, on a host with NPUs."""
    master: Ranges
    ephemeral: Ranges
    """All that the kernel may give."""
    free: Ranges
    """Those of them that it can give: neither reserved nor listened on."""
    planned: Ranges = ()
    """Those that it can give once the range is as `local-ports-few` proposes; none where the range stays."""
    is_gloo: bool = False
    """Each pair of hosts connects from the greater address to the smaller one alone (measured with PyTorch 2.13)."""

    @property
    def combined(self) -> Ranges:
        return to_ranges([*self.hccl, *self.master, *self.ephemeral, *self.planned])


def job_ports(
    launch: LaunchConfig, reserved: ReservedPorts, listeners: Listeners, npus: bool, others: bool = True
) -> JobPorts:
    """MASTER_PORT, HCCL's host ports where there are NPUs, and the ports that the kernel gives.

    ``others``: other accelerators, also where that is not known.
    """
    is_gloo = launch.is_gloo_alone(npus or others)
    ephemeral = to_ranges([(reserved.ephemeral.first, reserved.ephemeral.last)])
    taken = [(port_range.first, port_range.last) for port_range in reserved.reserved]
    taken += [
        (socket.port, socket.port) for socket in listeners.sockets if socket.listening and socket.address in WILDCARDS
    ]
    return JobPorts(
        to_ranges((port_range.first, port_range.last) for port_range in launch.hccl_ports if npus and not is_gloo),
        to_ranges([(launch.master_port, launch.master_port)]),
        ephemeral,
        difference(ephemeral, to_ranges(taken)),
        difference(to_ranges((wider.first, wider.last) for wider in reserved.planned_ranges), to_ranges(taken)),
        is_gloo,
    )


Stage = Literal["new", "later", "arp", "discovery"]
"""New connections are stopped, only their later packets, or what asks for hardware addresses, by IPv4 or IPv6."""


class BlockedConnections(msgspec.Struct, frozen=True):
    """Connections of the job that one manager's rules stop, in one direction."""

    route: Route
    outgoing: bool
    stage: Stage
    positions: tuple[WalkPosition, ...]
    ports: Ranges
    addresses: Ranges
    """Of the peers."""

    @property
    def peers(self) -> str | list[str]:
        host_range = ((self.route.local.number, self.route.local.number),)
        if difference(self.addresses, host_range) == difference(self.route.fleet_addresses, host_range):
            return "every other host"
        return limit_items(sorted(peers_holding(self.route, self.addresses)))

    @property
    def manager(self) -> str:
        return rule_manager(self.positions[0])

    @property
    def traffic(self) -> str:
        if self.stage == "later":
            return "the later packets of connections to"
        if self.stage != "new":
            return "ARP" if self.stage == "arp" else "IPv6 neighbour discovery"
        return "outgoing connections to" if self.outgoing else "incoming connections to"

    @property
    def rules(self) -> list[str]:
        """The first rules, each with the chain it is in."""
        texts = [
            position.rule
            if _is_policy(position) or position.rule.startswith("-A ")
            else filled("{0} (chain {1})", position.rule, position.chain)
            for position in self.positions
        ]
        return [shorten_rule(rule_text) for rule_text in list(dict.fromkeys(texts))[:3]]


def agreed_blocks(blocks: Sequence[BlockedConnections], agreed: Iterable[str]) -> list[BlockedConnections]:
    """The blocks with only those peers to which the host may be opened; a block without any is left out."""
    numbers = _as_ranges(agreed)
    permitted = []
    for block in blocks:
        addresses = difference(block.addresses, _not_agreed(block.route.fleet_addresses, numbers))
        if addresses:
            permitted.append(msgspec.structs.replace(block, addresses=addresses))
    return permitted


@once_per_fleet
def _as_ranges(addresses: Iterable[str]) -> Ranges:
    return to_ranges((int(plain_address(address)), int(plain_address(address))) for address in addresses)


@once_per_fleet
def _not_agreed(fleet_addresses: Ranges, agreed: Ranges) -> Ranges:
    """Few or none, as a rule: what is without them is then found without a look at each host's peers."""
    return difference(fleet_addresses, agreed)


def find_blocks(
    rules: FirewallRules, candidate_routes: Sequence[Route], ports: JobPorts, master: str
) -> list[BlockedConnections]:
    """What is blocked, whichever of the ways the job takes. ``master``: the master's host; empty when not known.

    Raises: Unreadable when it depends on the way, or on a rule that cannot be judged.
    """
    stopped: list[BlockedConnections] = []
    clear: list[Route] = []
    doubts: list[Unreadable] = []
    for route in candidate_routes:
        try:
            blocked = _find_on_route(rules, route, ports, master)
        except Unreadable as doubt:
            doubts.append(doubt)
            continue
        stopped += blocked
        clear += [] if blocked else [route]
    if stopped and clear:
        raise Unreadable(
            filled(
                "{0} ({1}) lets the job's ports through, {2} ({3}) does not: {4}; MASTER_ADDR is needed to "
                "know which of the two networks the job uses",
                clear[0].local.device,
                clear[0].local.text,
                stopped[0].route.local.device,
                stopped[0].route.local.text,
                stopped[0].rules[0],
            )
        )
    if doubts:
        raise doubts[0]
    return stopped


def _find_on_route(rules: FirewallRules, route: Route, ports: JobPorts, master: str) -> list[BlockedConnections]:
    if route.local.text not in rules.local_addresses:
        raise Unreadable(
            filled(
                "the job's container has the address {0} of its own, and the host's rules for forwarded "
                "packets are not checked",
                route.local.text,
            )
        )
    answer = evaluate_gate(rules.tables, gate_query(rules, route, ports))
    certain = [relevant for obstacle in answer.blocked if (relevant := _relevant_part(obstacle, route, ports, master))]
    if certain:
        return _group_blocks(certain, route)
    doubts = [_relevant_part(obstacle, route, ports, master) for obstacle in answer.unclear]
    tried = [(_is_tried(doubt, route, ports), doubt) for doubt in doubts if doubt]
    if tried:
        raise _doubt(*min(tried, key=itemgetter(0)))  # what no trial of the network answers comes first
    return []


def _doubt(is_tried: bool, doubt: Obstacle) -> Unreadable:
    if sought_rule(doubt.position, is_redirecting):
        return Unreadable(
            filled(
                "whether connections to TCP ports {0} reach the job depends on {1}",
                format_ranges(doubt.ports),
                describe_redirect(doubt.position),
            ),
            "net-answered-by-other",
            by_trial=is_tried,
        )
    if doubt.packet_kind == "neighbour":
        rule = shorten_rule(doubt.position.rule)
        text = "whether hosts learn each other's hardware addresses {0}: {1} (chain {2})"
        return Unreadable(filled(text, UNCLEAR_RULE, rule, doubt.position.chain), by_trial=is_tried)
    return Unreadable(
        filled(
            "whether TCP ports {0} are open {1}, from outside: {2} (chain {3})",
            format_ranges(doubt.ports),
            UNCLEAR_RULE,
            shorten_rule(doubt.position.rule),
            doubt.position.chain,
        ),
        by_trial=is_tried,
    )


def _is_tried(doubt: Obstacle, route: Route, ports: JobPorts) -> bool:
    """Whether the network test tries what a rule is about: all peers, and all ports that the kernel may give or none.

    It tries one or two of those that the kernel gives: a rule about a part of them may spare these. So may one that
    counts connections, or packets and bytes of those that are open: the test has few at a time. Nor does it try the
    hours to come.
    """
    is_later = doubt.packet_kind in ("sent", "returned")
    if (is_later and _AMOUNT.search(doubt.position.rule)) or _UNTRIED.search(doubt.position.rule):
        return False
    most = _COUNTED.search(doubt.position.rule)
    if most and int(most[1]) < MANY_CONNECTIONS:
        return False
    host_range = to_ranges([(route.local.number, route.local.number)])
    spared = difference(route.fleet_addresses, to_ranges([*doubt.peer_addresses, *host_range]))
    kernel_ports = intersect(doubt.ports, ports.free)
    return not spared and (not kernel_ports or not difference(ports.free, kernel_ports))


def gate_query(rules: FirewallRules, route: Route, ports: JobPorts) -> GateQuery:
    """All connections of the job on one way."""
    return GateQuery(
        route.local.device,
        route.local.network[0],
        route.fleet_addresses,
        ports.combined,
        ports.ephemeral,
        route.on_link,
        route.local.device not in rules.without_arp,
        route.local.device in rules.bridges,
    )


def _relevant_part(obstacle: Obstacle, route: Route, ports: JobPorts, master: str) -> Obstacle | None:
    """The part of an obstacle that concerns this host, and what the job needs of it."""
    host_range = ((route.local.number, route.local.number),)
    peers = difference(intersect(obstacle.peer_addresses, route.fleet_addresses), host_range)
    if not intersect(obstacle.host_addresses, host_range) or not peers:
        return None
    if obstacle.packet_kind == "neighbour":
        return msgspec.structs.replace(obstacle, host_addresses=host_range, peer_addresses=peers, ports=())
    inbound = obstacle.outgoing == (obstacle.packet_kind in ("answer", "returned"))
    is_met = not master or (inbound and master not in route.peer_addresses)
    meeting = peers if is_met else () if inbound else intersect(peers, route.peer_addresses.get(master, ()))
    if ports.is_gloo:
        peers = difference(peers, ((0, route.local.number),) if inbound else ((route.local.number, _LAST),))
    between = to_ranges([*ports.hccl, *ports.free]) if peers else ()
    needed = to_ranges([*between, *(ports.master if meeting else ())])
    peers = peers if intersect(obstacle.ports, between) else ()
    peers = to_ranges([*peers, *(meeting if intersect(obstacle.ports, ports.master) else ())])
    blocked, others = intersect(obstacle.ports, needed), intersect(obstacle.other_ports, ports.free)
    if blocked and 2 * count(others) < count(ports.free):
        blocked = others  # the rule is about the port of the end that connects
    if not blocked:
        return None
    blocked = to_ranges([*blocked, *intersect(obstacle.ports, ports.planned)])
    return Obstacle(obstacle.outgoing, obstacle.packet_kind, host_range, peers, blocked, others, obstacle.position)


def _group_blocks(certain: Sequence[Obstacle], route: Route) -> list[BlockedConnections]:
    groups: dict[tuple[bool, Stage, str, str], list[Obstacle]] = {}
    unmade = union([obstacle.peer_addresses for obstacle in certain if obstacle.packet_kind == "opening"])
    openings = {(obstacle.outgoing, obstacle.position) for obstacle in certain if obstacle.packet_kind == "opening"}
    asking: Stage = "arp" if route.local.network[0] == 4 else "discovery"
    for obstacle in certain:
        stage = {"opening": "new", "neighbour": asking}.get(obstacle.packet_kind, "later")
        if stage == "later":  # connections that are never made have no later packets
            obstacle = msgspec.structs.replace(obstacle, peer_addresses=difference(obstacle.peer_addresses, unmade))
            if not obstacle.peer_addresses:
                continue
            if (obstacle.outgoing, obstacle.position) in openings:  # one rule, one finding: answers come to these ports
                stage, obstacle = "new", msgspec.structs.replace(obstacle, ports=obstacle.other_ports or obstacle.ports)
        position = obstacle.position
        table = f"{position.table.tool} {position.table.family} {position.table.name} {position.base.name}"
        groups.setdefault((obstacle.outgoing, stage, rule_manager(position), table), []).append(obstacle)
    return [
        BlockedConnections(
            route,
            outgoing,
            stage,
            tuple(dict.fromkeys(member.position for member in members)),
            union([member.ports for member in members]),
            union([member.peer_addresses for member in members]),
        )
        for (outgoing, stage, _, _), members in groups.items()
    ]


def rule_manager(position: WalkPosition) -> str:
    """Whose rule it is, by the names that each manager gives its chains."""
    names = {chain.name for chain in position.table.chains}
    if position.chain.startswith("ufw") or (_is_policy(position) and names & {"ufw-before-input", "ufw6-before-input"}):
        return "ufw"
    is_firewalld_rule = position.chain != position.base.name or "icmp-host-prohibited" in position.rule
    if position.table.name == "firewalld" or ("INPUT_ZONES" in names and is_firewalld_rule):
        return "firewalld"
    is_of_nft = position.table.tool == "nft" or position.table.family in ("arp", "bridge")
    if is_of_nft and position.table.tool != "iptables-legacy" and not _is_iptables(position.table, position.base):
        return "nftables"
    return "iptables-legacy" if position.table.tool == "iptables-legacy" else "iptables"


def _is_policy(position: WalkPosition) -> bool:
    return position.rule.startswith("policy ")


def _is_iptables(table: RuleTable, base: Chain) -> bool:
    """A table of nftables that iptables made."""
    return table.family in ("ip", "ip6") and table.name in ("filter", "mangle", "raw") and base.name.isupper()


def format_ranges(ports: Ranges, limit: int = 8) -> str:
    """``29500, 60000-60031``: at most so many parts."""
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in ports]
    return joined(
        "", (", ".join(texts[:limit]), filled(" and {0} more ranges", len(texts) - limit) if len(texts) > limit else "")
    )
