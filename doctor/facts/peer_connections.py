"""The second round's: whether the hosts can open TCP connections to one another, on ports that a job would take."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces, same_address
from doctor.facts.names import HostNames
from doctor.facts.network import is_external
from doctor.facts.ports import ReservedPorts
from doctor.facts.visit import Reachability
from doctor.job import PortRange
from doctor.remote.runtime.connecting import connect_all

SECONDS = 5
"""The kernel sends the first packet of a connection three times in it: at once, after 1 s and after 3 s."""
EVERY_PAIR = 9
"""In a fleet of up to so many hosts each tries all others; in a larger one those 1, 2, 4, 8, ... places on."""
LONGEST_TURN = 1.0
"""Seconds at a stretch that a program did not run, from which on its host is busy. It takes 0.25 s by itself."""
MAX_ADDRESSES = 4
"""Of one host, that another one tries."""
NO_ROOM = "its kernel's table of neighbours (ARP) has no room: net.ipv4.neigh.default.gc_thresh3 is too small"
"""Why a host could not try another one."""


def _end_text(outcome: Any) -> str:
    if isinstance(outcome, Exception):
        return "not tried: " + str(getattr(outcome, "strerror", "") or outcome)
    if outcome in (0, errno.EISCONN):
        return "connected"
    return "no answer" if outcome is None else "refused" if outcome == errno.ECONNREFUSED else os.strerror(outcome)


def open_connections(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: begins all connections at once, those without an answer once more, and reports how they end."""
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    targets, results, longest = task["targets"], [], 0.0
    for is_last in (False, True):
        outcomes, gap = connect_all(targets, task["seconds"])  # type: ignore[no-untyped-call]
        longest = max(longest, gap)
        for target, outcome, _, at_once in outcomes:
            if outcome is not None or is_last:
                # Where the host's own kernel has refused before any packet was sent: a route or a rule of its own.
                is_own = at_once and isinstance(outcome, int) and outcome not in (0, errno.ECONNREFUSED)
                results.append([*target, _end_text(outcome), *([True] if is_own else [])])
        targets = [target for target, outcome, _, _ in outcomes if outcome is None]
    return {"connections": results, "longest": round(longest, 3)}


class PeerConnection(msgspec.Struct, frozen=True, array_like=True):
    """One attempt to connect to another host."""

    address: str
    port: int
    end: str
    """``connected``, ``refused``, ``no answer``, or the kernel's error, such as "No route to host"."""
    is_own: bool = False
    """The host's own kernel let no packet out."""

    @property
    def answered(self) -> bool | None:
        """Whether the other host answered: a refusal is an answer. None where it was not tried."""
        return None if self.why_untried else self.end in ("connected", "refused")

    @property
    def why_untried(self) -> str:
        """Empty where it was tried."""
        why = self.end.partition("not tried: ")[2]
        return NO_ROOM if why == os.strerror(errno.ENOBUFS) else why


class PeerConnections(Fact, frozen=True):
    """What came of TCP connections from the host to two ports of other hosts that their kernels give to programs.

    Nothing has to listen there: a refusal shows that packets go both ways.

    Raw output, as JSON; older ones are the list of connections alone::

        {"connections": [["10.0.0.2", 38213, "refused"], ["10.0.0.3", 55011, "no answer"],
                         ["10.0.0.4", 41802, "Network is unreachable", true]],
         "longest": 0.251}
    """

    probe = ask(open_connections, job=True, timeout=2 * SECONDS + 15)
    needs = (Interfaces, ReservedPorts, HostNames, Reachability)
    is_trial = True

    connections: tuple[PeerConnection, ...]
    longest: float = 0.0
    """Seconds for which the program did not run while it waited, at a stretch."""

    @property
    def is_busy(self) -> bool:
        """Whether the host stood still for so long that what had no answer says nothing of the network."""
        return self.longest >= LONGEST_TURN

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        interfaces, ports, names, visits = (fleet_facts[need] for need in cls.needs)
        planned: dict[str, object] = {}
        for host, peers in connection_partners(list(interfaces)).items():
            targets = [
                [address, port]
                for peer in peers
                if peer in ports
                for address in target_addresses(
                    interfaces[host], interfaces[peer], _known_addresses(peer, names.get(host), visits.get(peer))
                )
                for port in sample_ports(ports[peer].ephemeral, f"{host} {peer}")
            ]
            if targets:
                planned[host] = {"targets": targets, "seconds": SECONDS}
        return planned

    @classmethod
    def read(cls, answer: ProbeAnswer) -> PeerConnections:
        value = answer.json()
        try:
            return msgspec.convert(value if isinstance(value, dict) else {"connections": value}, cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("no list of connections: {0}", error)) from None


def connection_partners(hosts: Sequence[str]) -> dict[str, list[str]]:
    """Whom each host connects to.

    >>> connection_partners(["a", "b", "c"])
    {'a': ['b', 'c'], 'b': ['c', 'a'], 'c': ['a', 'b']}
    """
    count = len(hosts)
    steps = list(range(1, count)) if count <= EVERY_PAIR else [1 << power for power in range(count.bit_length() - 1)]
    return {host: [hosts[(place + step) % count] for step in steps] for place, host in enumerate(hosts)}


def _known_addresses(peer: str, names: HostNames | None, visit: Reachability | None) -> list[str]:
    """By which SSH reached the peer, and what its name means on the host that connects."""
    resolution = names.names.get(peer) if names else None
    return [*(resolution.addresses if resolution else ()), *([visit.address] if visit and visit.address else ())]


def target_addresses(source: Interfaces, peer: Interfaces, confirmed: Sequence[str]) -> list[str]:
    """The peer's addresses that a host may be sent to: in a network of its own, or known from another source.

    What a host says of itself sends no other host anywhere else.
    """
    networks = {entry.network for entry in source.addresses}
    running = {link.name for link in peer.links if link.is_running}
    chosen = [
        entry.address
        for entry in peer.addresses
        if entry.interface in running and is_external(entry.interface, entry.address)
        if not source.holder(entry.address)
        if entry.network in networks or any(same_address(entry.address, address) for address in confirmed)
    ]
    return list(dict.fromkeys(chosen))[:MAX_ADDRESSES]


def sample_ports(ephemeral: PortRange, pair: str) -> Iterator[int]:
    """A port of the lower and one of the upper half of the range, others for each pair of hosts."""
    middle = (ephemeral.first + ephemeral.last) // 2
    number = zlib.crc32(pair.encode())
    yield ephemeral.first + number % (middle - ephemeral.first + 1)
    if middle < ephemeral.last:
        yield middle + 1 + number % (ephemeral.last - middle)
