"""Whether a host's rules let the job's connections through, in and out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from doctor.facts.firewall.packets import Packets, Ranges
from doctor.facts.firewall.rules import Table
from doctor.facts.firewall.walk import IN, OUT, Place, walk

NEW, ESTABLISHED = ((8, 8),), ((2, 2),)
SYN, SYN_ACK, ACK = ((2, 2),), ((18, 18),), ((16, 16),)
ZERO, ONE = ((0, 0),), ((1, 1),)
LOCAL, UNICAST = ((2, 2),), ((1, 1),)
SEEN_REPLY = ((10, 10),)

Part = Literal["opening", "answer", "sent", "returned"]
"""The first packet of a connection, the second, and all later ones from the end that opened it, and to it."""


class Obstacle(msgspec.Struct, frozen=True):
    """Connections that a rule stops, or may stop."""

    outgoing: bool
    """By the rules for packets that leave the host."""
    part: Part
    own: Ranges
    peers: Ranges
    ports: Ranges
    """Of the end that listens."""
    others: Ranges
    """Of the end that connects."""
    place: Place


class Gate(msgspec.Struct, frozen=True):
    blocked: tuple[Obstacle, ...] = ()
    unclear: tuple[Obstacle, ...] = ()
    """A rule is not understood, or depends on more than the packet."""


class Ask(msgspec.Struct, frozen=True):
    """Which connections are asked about: all of the job on one interface, of one family, both ways."""

    device: str
    family: Literal[4, 6]
    addresses: Ranges
    """Of the fleet's hosts, this one among them: hosts with the same rules then share one answer."""
    ports: Ranges
    """That the job listens on."""
    ephemeral: Ranges
    """That the kernel gives to the other end of a connection."""
    on_link: bool
    """The peers are in the interface's own network: the way back to them is this interface."""


@lru_cache(maxsize=4096)
def gate(tables: tuple[Table, ...], ask: Ask) -> Gate:
    """What the rules do with the job's connections."""
    if not any(chain.hook in (*IN, *OUT) for table in tables for chain in table.chains):
        return Gate()
    blocked: list[Obstacle] = []
    unclear: list[Obstacle] = []
    for outgoing in (False, True):
        for part, packets in _parts(tables, ask, outgoing):
            course = walk(tables, OUT if outgoing else IN, packets)
            for found, kept in zip(course.settle(), (blocked, unclear), strict=True):
                kept += [_obstacle(outgoing, part, one, place) for one, place in found]
    return Gate(tuple(blocked), tuple(unclear))


def _parts(tables: tuple[Table, ...], ask: Ask, outgoing: bool) -> Iterator[tuple[Part, Packets]]:
    """The kinds of packets that a connection of the job needs; it may have been opened at either end."""
    sources = [rule.source for table in tables for chain in table.chains for rule in chain.rules]
    known = {"opening": (SYN, NEW, ZERO), "answer": (SYN_ACK, ESTABLISHED, ONE)}
    known |= {"sent": (ACK, ESTABLISHED, ZERO), "returned": (ACK, ESTABLISHED, ONE)}
    for part in get_args(Part):
        flags, state, direction = known[part]
        fields: dict[str, Ranges] = {"flags": flags}
        # What the kernel knows of a connection is open where a rule keeps it from knowing.
        if part == "opening" or not any("notrack" in source.lower() for source in sources):
            fields |= {"state": state, "direction": direction}
        if part == "opening" or not any("CONNMARK" in one or '"mangle":{"key":{"ct"' in one for one in sources):
            fields["ctmark"] = ZERO
        if part in ("opening", "answer") and "state" in fields:
            fields["status"] = ZERO if part == "opening" else SEEN_REPLY
        yield part, _packets(ask, outgoing, fields, part in ("opening", "sent"))


def _packets(ask: Ask, outgoing: bool, fields: dict[str, Ranges], to_job: bool) -> Packets:
    ports = (ask.ephemeral, ask.ports) if to_job else (ask.ports, ask.ephemeral)
    known = {
        **fields,
        "family": ((ask.family, ask.family),),
        "protocol": ((6, 6),),
        "saddr": ask.addresses,
        "daddr": ask.addresses,
        "sport": ports[0],
        "dport": ports[1],
        "mark": ZERO,
        "extension": ZERO,
        "routed": ONE,
        "stype": LOCAL if outgoing else UNICAST,
        "dtype": UNICAST if outgoing else LOCAL,
    }
    if not outgoing:
        known["cast"] = ZERO
        if ask.on_link:
            known["reverse"] = ONE
    return Packets(known, {"iif": "" if outgoing else ask.device, "oif": ask.device if outgoing else ""})


def _obstacle(outgoing: bool, part: Part, packets: Packets, place: Place) -> Obstacle:
    own, peers = ("saddr", "daddr") if outgoing else ("daddr", "saddr")
    job, other = ("dport", "sport") if part in ("opening", "sent") else ("sport", "dport")
    return Obstacle(
        outgoing,
        part,
        packets.fields[own],
        packets.fields[peers],
        packets.fields[job],
        packets.fields[other],
        place,
    )
