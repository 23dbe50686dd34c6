"""Rules that send connections elsewhere than they are opened to, or drop some packets, and how each is deleted."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.gate import GateQuery, evaluate_gate
from doctor.facts.firewall.packets import Ranges, intersect, to_ranges
from doctor.facts.firewall.routes import RouteEntry, route_entries
from doctor.facts.firewall.rules import Rule, is_deletable, is_losing, is_redirecting, shorten_rule
from doctor.facts.firewall.walk import WalkPosition
from doctor.facts.network import HostAddresses

ANY_PORT: Ranges = ((1, 65535),)
UNRELATED_PORTS = (29500, 41234, 51234)
"""A rule that meets two of them is for no single service."""
MAX_COMMAND = 400
"""Characters. A longer command is not printed: it could be cut."""
DELETES = (
    "As root on {0}: `{1}` deletes a rule that drops some packets, {2} (table {3}, chain {4}). Delete it as well in "
    "the file that loads the rules at boot, such as /etc/nftables.conf or those of /etc/iptables."
)
PLAIN_WORD = re.compile(r"[\w./-]+")


def find_redirects(
    rules: FirewallRules,
    addresses: HostAddresses,
    peers: Iterable[HostAddresses],
    ports: Ranges,
    *,
    outgoing: bool,
    is_sought: Callable[[str], bool] = is_redirecting,
) -> list[WalkPosition]:
    """The rules that send connections to these ports elsewhere, each once, as the kernel comes to them.

    ``outgoing``: connections that the host opens to its peers, else those of its peers to it, by any interface.
    ``is_sought``: of a rule's source; `is_losing` for those that drop some packets.

    Example: ``find_redirects(rules, addresses, [peer], ((29500, 29500),), outgoing=False)``.
    """
    ways = dict.fromkeys((entry.device, entry.network[0]) for entry in route_entries(addresses))
    others = [entry for peer in peers for entry in route_entries(peer)]
    positions: dict[WalkPosition, None] = {}
    for device, family in ways:
        here, theirs = _numbers(route_entries(addresses), family), _numbers(others, family)
        query = GateQuery(device, family, to_ranges([*here, *theirs]), ports, ANY_PORT, on_link=True)
        for obstacle in evaluate_gate(rules.tables, query).unclear:
            is_here = intersect(obstacle.host_addresses, here) and intersect(obstacle.peer_addresses, theirs)
            if is_here and obstacle.outgoing == outgoing and obstacle.packet_kind == "opening":
                positions |= {obstacle.position: None} if sought_rule(obstacle.position, is_sought) else {}
    return list(positions)


def losing_rules(
    hosts: Iterable[str],
    peers: Iterable[str],
    rules: Mapping[str, FirewallRules],
    addresses: Mapping[str, HostAddresses],
    is_sought: Callable[[str], bool] = is_losing,
) -> Iterator[tuple[str, str]]:
    """The rules of these hosts that drop some packets of a peer and that a command deletes, each with its remedy.

    As of `doctor.facts.interfaces.delaying`.
    """
    peers = list(peers)
    for host in hosts:
        if host in rules and host in addresses:
            others = [addresses[name] for name in peers if name != host and name in addresses]
            for position in find_losing_rules(rules[host], addresses[host], others, is_sought):
                if (rule := deletion(position)).command:
                    yield filled("; {0} on {1} drops some", rule.rule, host), filled(DELETES, host, *rule)


def find_losing_rules(
    rules: FirewallRules,
    addresses: HostAddresses,
    peers: Iterable[HostAddresses],
    is_sought: Callable[[str], bool] = is_losing,
) -> list[WalkPosition]:
    """The rules that drop some packets between the host and its peers, at random or by rate, in either direction.

    ``is_sought``: of a rule's source; `doctor.facts.firewall.rules.is_hashed` for those that choose by a hash. One for
    a single port or service, as of SSH, is none of them: it has to meet two ports that have nothing in common.
    """
    peers = list(peers)
    counts = Counter(
        (outgoing, position)
        for outgoing in (False, True)
        for port in UNRELATED_PORTS
        for position in find_redirects(rules, addresses, peers, ((port, port),), outgoing=outgoing, is_sought=is_sought)
    )
    return list(dict.fromkeys(position for (_, position), count in counts.items() if count > 1))


def _numbers(entries: Iterable[RouteEntry], family: int) -> Ranges:
    return to_ranges((entry.number, entry.number) for entry in entries if entry.network[0] == family)


def sought_rule(position: WalkPosition, is_sought: Callable[[str], bool] = is_deletable) -> Rule | None:
    """The rule at this place, where it redirects or drops some packets; None for another, or a policy."""
    rules = (rule for chain in position.table.chains if chain.name == position.chain for rule in chain.rules)
    return next((rule for rule in rules if rule.text == position.rule and is_sought(rule.source)), None)


class Deletion(NamedTuple):
    """How a rule is deleted, and which it is, as a remedy says it."""

    command: str
    """Empty: there is none."""
    rule: str
    table: str
    chain: str


def deletion(position: WalkPosition) -> Deletion:
    """Of the rule at this place."""
    table = f"{position.table.family} {position.table.name}"
    return Deletion(delete_command(position), shorten_rule(position.rule), table, position.chain)


def describe_redirect(position: WalkPosition) -> str:
    """The rule with its place, and the command that deletes it."""
    command, *place = deletion(position)
    return joined(
        "",
        (
            filled("the rule {0} (table {1}, chain {2}), which redirects them", *place),
            filled("; as root, `{0}` deletes it", command) if command else "",
        ),
    )


def delete_command(position: WalkPosition) -> str:
    """The command for root that deletes the rule; empty where no plain command does it.

    Such as ``nft delete rule ip nat prerouting handle 5``, ``iptables -t nat -D PREROUTING -p tcp ... -j REDIRECT``.
    """
    rule, table = sought_rule(position), position.table
    if rule is None:
        return ""
    if table.tool == "nft":
        is_plain = bool(rule.handle and PLAIN_WORD.fullmatch(table.name) and PLAIN_WORD.fullmatch(position.chain))
        argv = ["nft", "delete", "rule", table.family, table.name, position.chain, "handle", str(rule.handle)]
        return " ".join(argv) if is_plain else ""
    tool = ("ip6tables" if table.family == "ip6" else "iptables") + "-legacy" * (table.tool == "iptables-legacy")
    try:
        command = shlex.join([tool, "-t", table.name, "-D", *shlex.split(rule.text)[1:]])
    except ValueError:  # an open quote
        return ""
    is_plain = command == strip_control_chars(command, MAX_COMMAND) and "`" not in command
    return command if is_plain else ""
