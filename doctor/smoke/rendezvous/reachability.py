"""Connects a launched process to its job's leader, or finds out why it cannot."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from doctor.engine.texts import filled, joined
from doctor.environment.job_context import JobContext
from doctor.remote.runtime.connecting import NO_ROUTE
from doctor.smoke.rendezvous.link import SECONDS, Hello, UnreachableReason, leader_ports, send_hello
from doctor.transport.peer_handshake import ForeignPeer

RETRY_PAUSE = 0.1
_ORDER: tuple[UnreachableReason, ...] = ("refused", "stranger", "no-route", "dropped", "other")
"""Of several reasons, the first one is reported: where something refuses, there is a host."""
_REASON_TEXTS = {
    "refused": "refuses connections: nothing of this job listens there",
    "stranger": "is open, but what listens there does not belong to this job",
    "no-route": "cannot be routed to",
    "dropped": "does not answer: packets are dropped, or the host is down",
}


class RendezvousError(NamedTuple):
    """Why the leader was not reached."""

    reason: UnreachableReason
    text: str


class _Endpoint(NamedTuple):
    name: str
    address: str
    port: int


def connect_to_leader(
    context: JobContext, key: bytes, hello: Hello, deadline: float, on_failure: Callable[[RendezvousError], bool]
) -> socket.socket | RendezvousError:
    """A connection to the leader. ``on_failure`` hears each time why there is none; True gives up."""
    while True:
        outcome = attempt_connection(context, key, hello)
        if isinstance(outcome, socket.socket) or on_failure(outcome) or time.monotonic() > deadline:
            return outcome
        time.sleep(RETRY_PAUSE)


def attempt_connection(context: JobContext, key: bytes, hello: Hello) -> socket.socket | RendezvousError:
    """One attempt at all addresses and ports together."""
    if not context.leader_addresses:
        return RendezvousError("name", filled("{0}, so the address of rank 0 is unknown", context.leader_location))
    endpoints = _endpoints(context, leader_ports(key, context.leader_port))
    if isinstance(endpoints, RendezvousError):
        return endpoints
    outcome = _ConnectionAttempts(endpoints).connect(time.monotonic() + SECONDS, key, hello)
    return outcome if isinstance(outcome, socket.socket) else _summary(context, outcome)


def _endpoints(context: JobContext, numbers: Sequence[int]) -> list[_Endpoint] | RendezvousError:
    endpoints: list[_Endpoint] = []
    why = "it has no address"
    for name in context.leader_addresses:
        try:
            resolved = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            continue
        addresses = dict.fromkeys(str(place[4][0]) for place in resolved)
        endpoints += [_Endpoint(name, address, number) for address in addresses for number in numbers]
    return endpoints or RendezvousError("name", filled("{0} does not resolve: {1}", context.leader_location, why))


class _ConnectionAttempts:
    """Attempts at several doors at once. The leader greets first, so that a silent one delays no other."""

    def __init__(self, endpoints: Sequence[_Endpoint]) -> None:
        self._poll = select.poll()
        self._attempts: dict[int, tuple[_Endpoint, socket.socket]] = {}
        self._connected_files: set[int] = set()
        self._failed: dict[_Endpoint, UnreachableReason] = {}
        for endpoint in endpoints:
            link = socket.socket(socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET, socket.SOCK_STREAM)
            link.setblocking(False)
            code = link.connect_ex((endpoint.address, endpoint.port))
            if code not in (0, errno.EINPROGRESS):
                self._fail(endpoint, link, _reason(code))
                continue
            self._attempts[link.fileno()] = endpoint, link
            self._poll.register(link, select.POLLOUT)

    def connect(self, deadline: float, key: bytes, hello: Hello) -> socket.socket | dict[_Endpoint, UnreachableReason]:
        """The connection to the leader, or why there is none, door by door."""
        connection: socket.socket | None = None
        while self._attempts and not connection and (remaining := deadline - time.monotonic()) > 0:
            for file, _ in self._poll.poll(remaining * 1000):
                if file not in self._connected_files:
                    self._on_connected(file)
                elif connection := self._handshake(file, key, hello):
                    break
        for file, (endpoint, link) in list(self._attempts.items()):
            self._fail(endpoint, link, "stranger" if file in self._connected_files else "dropped")
        return connection or self._failed

    def _on_connected(self, file: int) -> None:
        endpoint, link = self._attempts[file]
        code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._unregister(file)
            self._fail(endpoint, link, _reason(code))
        else:
            self._connected_files.add(file)
            self._poll.modify(file, select.POLLIN)

    def _handshake(self, file: int, key: bytes, hello: Hello) -> socket.socket | None:
        endpoint, link = self._unregister(file)
        try:
            send_hello(link, key, hello)
        except (ForeignPeer, OSError):
            self._fail(endpoint, link, "stranger")
            return None
        return link

    def _unregister(self, file: int) -> tuple[_Endpoint, socket.socket]:
        self._poll.unregister(file)
        return self._attempts.pop(file)

    def _fail(self, endpoint: _Endpoint, link: socket.socket, reason: UnreachableReason) -> None:
        self._failed[endpoint] = reason
        link.close()


def _reason(code: int) -> UnreachableReason:
    if code == errno.ECONNREFUSED:
        return "refused"
    return "no-route" if code in NO_ROUTE else "dropped" if code == errno.ETIMEDOUT else "other"


def _summary(context: JobContext, failed: Mapping[_Endpoint, UnreachableReason]) -> RendezvousError:
    reason = next((candidate for candidate in _ORDER if candidate in failed.values()), _ORDER[-1])
    concerned = [endpoint for endpoint, why in failed.items() if why == reason]
    names = dict.fromkeys(
        endpoint.name if endpoint.name == endpoint.address else filled("{0} ({1})", endpoint.name, endpoint.address)
        for endpoint in concerned
    )
    numbers = ", ".join(str(number) for number in sorted({endpoint.port for endpoint in concerned}))
    description = _REASON_TEXTS.get(reason, "cannot be connected to")
    return RendezvousError(
        reason,
        filled("{0}={1} {2} (port {3})", context.leader_address_source, joined(" or ", names), description, numbers),
    )
