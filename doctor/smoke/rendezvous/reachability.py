"""The way of a launched process to the one that leads its job, and why it cannot be gone."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from doctor.environment.launchers import Adopted
from doctor.smoke.rendezvous.link import SECONDS, Card, Reason, Stranger, introduce, ports

PAUSE = 0.1
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
_ORDER: tuple[Reason, ...] = ("refused", "stranger", "no-route", "dropped", "other")
"""Of several reasons, the first one is told: where something refuses, there is a host."""
_WORDS = {
    "refused": "refuses connections: nothing of this job listens there",
    "stranger": "is open, but what listens there does not belong to this job",
    "no-route": "cannot be routed to",
    "dropped": "does not answer: packets are dropped on the way, or it is down",
}


class Unmet(NamedTuple):
    """Why the leader was not reached."""

    reason: Reason
    text: str


class _Door(NamedTuple):
    name: str
    address: str
    port: int


def reach(
    adopted: Adopted, key: bytes, card: Card, deadline: float, told: Callable[[Unmet], bool]
) -> socket.socket | Unmet:
    """A connection to the leader. ``told`` hears each time why there is none; True gives up."""
    while True:
        found = attempt(adopted, key, card)
        if isinstance(found, socket.socket) or told(found) or time.monotonic() > deadline:
            return found
        time.sleep(PAUSE)


def attempt(adopted: Adopted, key: bytes, card: Card) -> socket.socket | Unmet:
    """One attempt at all addresses and ports together."""
    if not adopted.addresses:
        return Unmet("name", f"{adopted.where}, so that nothing tells where rank 0 is")
    doors = _doors(adopted, ports(key, adopted.port))
    if isinstance(doors, Unmet):
        return doors
    found = _Knocking(doors).until(time.monotonic() + SECONDS, key, card)
    return found if isinstance(found, socket.socket) else _summary(adopted, found)


def _doors(adopted: Adopted, numbers: Sequence[int]) -> list[_Door] | Unmet:
    doors: list[_Door] = []
    why = "it has no address"
    for name in adopted.addresses:
        try:
            found = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            continue
        addresses = dict.fromkeys(str(place[4][0]) for place in found)
        doors += [_Door(name, address, number) for address in addresses for number in numbers]
    return doors or Unmet("name", f"{adopted.where} does not resolve: {why}")


class _Knocking:
    """Attempts at several doors at once. The leader greets first, so that who is silent holds nobody up."""

    def __init__(self, doors: Sequence[_Door]) -> None:
        self._poll = select.poll()
        self._trying: dict[int, tuple[_Door, socket.socket]] = {}
        self._open: set[int] = set()
        self._failed: dict[_Door, Reason] = {}
        for door in doors:
            link = socket.socket(socket.AF_INET6 if ":" in door.address else socket.AF_INET, socket.SOCK_STREAM)
            link.setblocking(False)
            code = link.connect_ex((door.address, door.port))
            if code not in (0, errno.EINPROGRESS):
                self._fail(door, link, _reason(code))
                continue
            self._trying[link.fileno()] = door, link
            self._poll.register(link, select.POLLOUT)

    def until(self, deadline: float, key: bytes, card: Card) -> socket.socket | dict[_Door, Reason]:
        """The connection to the leader, or why there is none, door by door."""
        found: socket.socket | None = None
        while self._trying and not found and (left := deadline - time.monotonic()) > 0:
            for file, _ in self._poll.poll(left * 1000):
                if file not in self._open:
                    self._connected(file)
                elif found := self._greeted(file, key, card):
                    break
        for file, (door, link) in list(self._trying.items()):
            self._fail(door, link, "stranger" if file in self._open else "dropped")
        return found or self._failed

    def _connected(self, file: int) -> None:
        door, link = self._trying[file]
        code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._forget(file)
            self._fail(door, link, _reason(code))
        else:
            self._open.add(file)
            self._poll.modify(file, select.POLLIN)

    def _greeted(self, file: int, key: bytes, card: Card) -> socket.socket | None:
        door, link = self._forget(file)
        try:
            introduce(link, key, card)
        except (Stranger, OSError):
            self._fail(door, link, "stranger")
            return None
        return link

    def _forget(self, file: int) -> tuple[_Door, socket.socket]:
        self._poll.unregister(file)
        return self._trying.pop(file)

    def _fail(self, door: _Door, link: socket.socket, reason: Reason) -> None:
        self._failed[door] = reason
        link.close()


def _reason(code: int) -> Reason:
    if code == errno.ECONNREFUSED:
        return "refused"
    return "no-route" if code in _NO_ROUTE else "dropped" if code == errno.ETIMEDOUT else "other"


def _summary(adopted: Adopted, failed: Mapping[_Door, Reason]) -> Unmet:
    reason = next((one for one in _ORDER if one in failed.values()), _ORDER[-1])
    concerned = [door for door, why in failed.items() if why == reason]
    names = dict.fromkeys(
        door.name if door.name == door.address else f"{door.name} ({door.address})" for door in concerned
    )
    numbers = ", ".join(str(number) for number in sorted({door.port for door in concerned}))
    words = _WORDS.get(reason, "cannot be connected to")
    return Unmet(reason, f"{adopted.address_from}={' or '.join(names)} {words} (port {numbers})")
