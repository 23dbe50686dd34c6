"""The second round's: whether the hosts can open TCP connections to one another, on ports that a job would take."""

from __future__ import annotations

import _socket as socket
import errno
import os
import select
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces, LinkAddress, same_address
from doctor.facts.names import HostNames, is_loopback
from doctor.facts.ports import ReservedPorts
from doctor.facts.visit import Reachability
from doctor.job import PortRange

SECONDS = 5
"""The kernel sends the first packet of a connection three times in it: at once, after 1 s and after 3 s."""
EVERY_PAIR = 9
"""Hosts of a fleet of which each tries all others; in a larger one each tries those 1, 2, 4, 8, ... places on."""
LONGEST_TURN = 1.0
"""Seconds at a stretch that a program did not run, from which on its host is busy. It takes 0.25 s by itself."""
MAX_ADDRESSES = 4
"""Of one host, that another one tries."""


def _words(code: int) -> str:
    if code in (0, errno.EISCONN):
        return "connected"
    return "refused" if code == errno.ECONNREFUSED else os.strerror(code)


def _begin(address: str, port: int, results: list, waiting: dict, poll: Any) -> None:  # type: ignore[type-arg]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    tried = None
    try:
        tried = socket.socket(family, socket.SOCK_STREAM)
        tried.setblocking(False)
        code = tried.connect_ex((address, port))
    except OSError as error:
        if tried:
            tried.close()
        results.append([address, port, "not tried: " + str(error.strerror or error)])
        return
    if code == errno.EINPROGRESS:
        waiting[tried.fileno()] = (tried, address, port)
        poll.register(tried, select.POLLOUT)
    else:
        # The host's own kernel has refused before any packet was sent: a route or a rule of its own.
        results.append([address, port, _words(code), code not in (0, errno.ECONNREFUSED)])
        tried.close()


def _connect(targets: list, seconds: float, results: list) -> tuple:  # type: ignore[type-arg]
    """Those without an answer, and the longest time that this program did not run for meanwhile."""
    waiting: dict = {}  # type: ignore[type-arg]
    poll = select.poll()
    for address, port in targets:
        _begin(address, port, results, waiting, poll)
    longest = 0.0
    turn = time.monotonic()
    end = turn + seconds
    while waiting and turn < end:
        for number, _ in poll.poll(max(1, int(1000 * min(0.25, end - turn)))):
            tried, address, port = waiting.pop(number)
            poll.unregister(number)
            results.append([address, port, _words(tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))])
            tried.close()
        longest = max(longest, time.monotonic() - turn)
        turn = time.monotonic()
    for tried, _, _ in waiting.values():
        tried.close()
    return [[address, port] for _, address, port in waiting.values()], longest


def open_connections(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: begins all connections at once, those without an answer once more, and reports how they end."""
    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    results: list = []  # type: ignore[type-arg]
    silent, longest = _connect(task["targets"], task["seconds"], results)
    if silent:
        silent, again = _connect(silent, task["seconds"], results)
        longest = max(longest, again)
    results += [[address, port, "no answer"] for address, port in silent]
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
        return None if self.end.startswith("not tried") else self.end in ("connected", "refused")


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
    usable = [entry for entry in peer.addresses if _is_external(entry, peer) and not source.holder(entry.address)]
    chosen = [
        entry.address
        for entry in usable
        if entry.network in networks or any(same_address(entry.address, address) for address in confirmed)
    ]
    return list(dict.fromkeys(chosen))[:MAX_ADDRESSES]


def _is_external(entry: LinkAddress, interfaces: Interfaces) -> bool:
    link = interfaces.link(entry.interface)
    inner = link is None or link.is_container_bridge or not link.is_running
    return not (inner or is_loopback(entry.address) or entry.is_link_local)


def sample_ports(ephemeral: PortRange, pair: str) -> Iterator[int]:
    """A port of the lower and one of the upper half of the range, others for each pair of hosts."""
    middle = (ephemeral.first + ephemeral.last) // 2
    number = zlib.crc32(pair.encode())
    yield ephemeral.first + number % (middle - ephemeral.first + 1)
    if middle < ephemeral.last:
        yield middle + 1 + number % (ephemeral.last - middle)
