"""Whether a host's rules let the job's connections through, in and out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Literal, get_args

import msgspec

from doctor.facts.firewall.packets import ARP, Packets, Ranges
from doctor.facts.firewall.rules import RuleTable
from doctor.facts.firewall.walk import INBOUND_HOOKS, OUTBOUND_HOOKS, UNTRACKED, WalkPosition, walk

NEW, ESTABLISHED = ((8, 8),), ((2, 2),)
SYN, SYN_ACK, ACK, RESET, PUSH = ((2, 2),), ((18, 18),), ((16, 16),), ((20, 20),), ((24, 24),)
SHORT, FULL = ((40, 100),), ((1500, 65535),)
"""Bytes of packets without data, whose options differ, and of full-size ones, which the kernel puts together."""
ONLY_0, ONLY_1 = ((0, 0),), ((1, 1),)
LOCAL, UNICAST = ((2, 2),), ((1, 1),)
SEEN_REPLY = ((10, 10),)
BROADCAST, MULTICAST = ((1, 1),), ((2, 2),)
SOLICITED = ((0xFF02 << 112 | 0x1FF << 24, 0xFF02 << 112 | 0x1FFFFFFFFF),)
"""ff02::1:ff00:0/104, to which a host asks for a neighbour's hardware address (RFC 4291)."""

Part = Literal["opening", "answer", "sent", "returned", "neighbour"]
"""The first packet of a connection, the second, and all later ones from the end that opened it, and to it; what asks
for the hardware address of a neighbour before them, and its answer."""


class Obstacle(msgspec.Struct, frozen=True):
    """Connections that a rule stops, or may stop."""

    outgoing: bool
    """By the rules for packets that leave the host."""
    packet_kind: Part
    host_addresses: Ranges
    peer_addresses: Ranges
    ports: Ranges
    """Of the end that listens."""
    other_ports: Ranges
    """Of the end that connects."""
    position: WalkPosition


class GateResult(msgspec.Struct, frozen=True):
    """What the rules do to the connections in question; empty where all of them pass."""

    blocked: tuple[Obstacle, ...] = ()
    unclear: tuple[Obstacle, ...] = ()
    """A rule is not understood, or depends on more than the packet."""


class GateQuery(msgspec.Struct, frozen=True):
    """The connections to evaluate: all of the job on one interface, of one family, in both directions."""

    device: str
    family: Literal[4, 6]
    addresses: Ranges
    """Of the fleet's hosts, this one among them: hosts with the same rules then share one answer."""
    ports: Ranges
    """That the job listens on."""
    ephemeral: Ranges
    """That the kernel gives to the other end of a connection."""
    on_link: bool
    """The peers are in the interface's own network: the route to them is this interface."""
    has_arp: bool = True
    """The interface asks for hardware addresses."""
    is_bridge: bool = False


@lru_cache(maxsize=4096)
def evaluate_gate(tables: tuple[RuleTable, ...], query: GateQuery) -> GateResult:
    """What the rules do with the job's connections."""
    if not any(chain.hook in (*INBOUND_HOOKS, *OUTBOUND_HOOKS) for table in tables for chain in table.chains):
        return GateResult()
    blocked: list[Obstacle] = []
    unclear: list[Obstacle] = []
    for outgoing in (False, True):
        for packet_kind, packets in _packet_kinds(tables, query, outgoing):
            for part in (packets, Packets(packets.fields, {})) if query.is_bridge else (packets,):
                result = walk(tables, OUTBOUND_HOOKS if outgoing else INBOUND_HOOKS, part)
                for traced, kept in zip(result.classify(), (blocked, unclear), strict=True):
                    kept += [_obstacle(outgoing, packet_kind, *stopped, query.addresses) for stopped in traced]
    return GateResult(tuple(blocked), tuple(unclear))


@lru_cache(maxsize=4096)
def may_stop_resets(tables: tuple[RuleTable, ...], query: GateQuery, *, outgoing: bool) -> bool:
    """Whether a rule stops, or may stop, the reset that answers where nothing listens on a port of the job.

    Then no answer does not show that the port cannot be reached.
    """
    hooks = OUTBOUND_HOOKS if outgoing else INBOUND_HOOKS
    if not any(chain.hook in hooks for table in tables for chain in table.chains):
        return False
    packets = dict(_packet_kinds(tables, query, outgoing))["answer"]  # in its place, and known to the kernel as that
    return any(walk(tables, hooks, packets.with_field("flags", RESET)).classify())


def _packet_kinds(tables: tuple[RuleTable, ...], query: GateQuery, outgoing: bool) -> Iterator[tuple[Part, Packets]]:
    """The kinds of packets that a connection of the job needs; it may have been opened at either end."""
    sources = [rule.source for table in tables for chain in table.chains for rule in chain.rules]
    header_values = {"opening": (SYN, NEW, ONLY_0), "answer": (SYN_ACK, ESTABLISHED, ONLY_1)}
    header_values |= {"sent": (ACK, ESTABLISHED, ONLY_0), "returned": (ACK, ESTABLISHED, ONLY_1)}
    later_flags = (ACK, PUSH) if any("flags" in source for source in sources) else (ACK,)
    later_lengths = (SHORT, FULL) if any("length" in source for source in sources) else (SHORT,)
    for packets in _asking_packets(query, outgoing) if query.on_link and query.has_arp else ():
        yield "neighbour", packets
    for packet_kind in get_args(Part)[:4]:
        flags, state, direction = header_values[packet_kind]
        fields: dict[str, Ranges] = {"flags": flags, "length": SHORT}
        # What the kernel knows of a connection is open where a rule keeps it from knowing.
        if packet_kind == "opening" or not any("notrack" in source.lower() for source in sources):
            fields |= {"state": state, "direction": direction}
        if packet_kind == "opening" or not any(
            "CONNMARK" in rule_source or '"mangle":{"key":{"ct"' in rule_source for rule_source in sources
        ):
            fields["ctmark"] = ONLY_0
        if packet_kind in ("opening", "answer") and "state" in fields:
            fields["status"] = ONLY_0 if packet_kind == "opening" else SEEN_REPLY
        packets = _packets(query, outgoing, fields, packet_kind in ("opening", "sent"))
        if packet_kind in ("opening", "answer"):
            yield packet_kind, packets
            continue
        for later, length in product(later_flags, later_lengths):
            yield packet_kind, packets.with_field("flags", later).with_field("length", length)


def _asking_packets(query: GateQuery, outgoing: bool) -> Iterator[Packets]:
    """ARP, or the neighbour discovery of IPv6 (RFC 4861), which connection tracking leaves untracked."""
    for is_answer in (False, True):
        fields: dict[str, Ranges] = {"length": SHORT, "sport": ONLY_0, "dport": ONLY_0}
        if query.family == 4:
            fields |= {"family": ((ARP, ARP),), "protocol": ONLY_0, "operation": ((1 + is_answer, 1 + is_answer),)}
            fields |= {"htype": ONLY_1, "hlen": ((6, 6),), "plen": ((4, 4),), "ptype": ((4, 4),)}
            cast = BROADCAST
        else:
            fields |= {"protocol": ((58, 58),), "icmptype": ((135 + is_answer, 135 + is_answer),)}
            fields |= {"state": UNTRACKED, "hoplimit": ((255, 255),)}
            cast = MULTICAST
            if not is_answer:
                to_all = {**fields, "daddr": SOLICITED, "dtype": ((5, 5),)} | ({} if outgoing else {"cast": cast})
                yield _packets(query, outgoing, to_all, True)
        yield _packets(query, outgoing, fields | ({} if outgoing or is_answer else {"cast": cast}), True)


def _packets(query: GateQuery, outgoing: bool, fields: dict[str, Ranges], to_job: bool) -> Packets:
    ports = (query.ephemeral, query.ports) if to_job else (query.ports, query.ephemeral)
    header_fields: dict[str, Ranges] = {
        "family": ((query.family, query.family),),
        "protocol": ((6, 6),),
        "saddr": query.addresses,
        "daddr": query.addresses,
        "sport": ports[0],
        "dport": ports[1],
        "mark": ONLY_0,
        "extension": ONLY_0,
        "routed": ONLY_1,
        "stype": LOCAL if outgoing else UNICAST,
        "dtype": UNICAST if outgoing else LOCAL,
        **({} if outgoing else {"cast": ONLY_0}),
        **fields,
    }
    if not outgoing and query.on_link:
        header_fields["reverse"] = ONLY_1
    return Packets(header_fields, {"iif": "" if outgoing else query.device, "oif": query.device if outgoing else ""})


def _obstacle(outgoing: bool, packet_kind: Part, packets: Packets, position: WalkPosition, fleet: Ranges) -> Obstacle:
    if packets.fields["daddr"] == SOLICITED:
        packets = packets.with_field("daddr", fleet)
    host_field, peer_field = ("saddr", "daddr") if outgoing else ("daddr", "saddr")
    job_field, other_field = ("dport", "sport") if packet_kind in ("opening", "sent") else ("sport", "dport")
    return Obstacle(
        outgoing,
        packet_kind,
        packets.fields[host_field],
        packets.fields[peer_field],
        packets.fields[job_field],
        packets.fields[other_field],
        position,
    )
