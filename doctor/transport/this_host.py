"""Which host of a list is the machine that this process runs on: it is read without SSH, under any name in the list.

A job in a container, or on a cluster without SSH logins, can still read its own host. What decides is where a
connection would lead, not the name that a host has for itself: two hosts may have one name, and a name may be wrong in
/etc/hosts. See `ThisHost.place`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from itertools import islice
from typing import Literal

import msgspec

from doctor.engine.addresses import is_plain_address, means_own_host, plain_address
from doctor.remote.runtime.reading import OWN_NETWORK_MARKS

Place = Literal["elsewhere", "here", "here if unreachable"]
"""Where a listed host is. ``here if unreachable``: SSH may lead to another view of this machine, such as that of the
host of this container, and is tried first."""
SSH_PORT = 22
_RESOLVE_SECONDS = 5.0


class Way(msgspec.Struct, frozen=True):
    """How SSH would connect to a host."""

    name: str
    """The name or address to connect to."""
    port: int = SSH_PORT
    user: str = ""
    """Empty for the user of this process."""
    via_another: bool = False
    """Through a jump host or a proxy command: the name means what it means there."""


class ThisHost:
    """The names and addresses of this machine.

    Args:
        nodename: what it calls itself.
        own_addresses: of its interfaces.
        resolve: the addresses of a name; empty where it has none.
        scheduler_name: what the scheduler calls the host of this process, such as SLURMD_NODENAME.
        in_container: this process is in a container, where SSH may lead to the container's host.
    """

    def __init__(
        self,
        nodename: str,
        own_addresses: Callable[[], Collection[str]],
        resolve: Callable[[str], Collection[str]],
        scheduler_name: str = "",
        in_container: bool = False,
    ) -> None:
        self._nodename, self._scheduler_name = nodename.lower().rstrip("."), scheduler_name.lower()
        self._list_addresses, self._resolve, self._in_container = own_addresses, resolve, in_container

    @cached_property
    def own_addresses(self) -> frozenset[str]:
        return frozenset(self._list_addresses())

    def place(self, host: str, way: Way, listed: Iterable[str] = ()) -> tuple[Place, str]:
        """Where a host of the list is, and the address of this machine that its name stands for, if one.

        It is here, if all addresses of its name are addresses of this machine. A loopback address says nothing of a
        name that this machine does not have itself (/etc/hosts of a copied image), and neither does a port that was
        forwarded. Where the name has no address, it must be this machine's own, and no other host of the list may be
        this machine by its address. The scheduler's name for this host counts unless its address is another machine's.
        """
        if way.via_another or way.user:
            return "elsewhere", ""  # the account that the list names is the one that reads, or none
        addresses = [address for address in self._addresses(way.name) if is_plain_address(address)]
        loopback = [address for address in addresses if plain_address(address).is_loopback]
        of_this_host = [address for address in addresses if address in self.own_addresses and address not in loopback]
        # A name that means loopback everywhere needs no name server that knows it, such as ``localhost.``.
        means_own = means_own_host(host) if loopback else not addresses and means_own_host(way.name)
        is_named = self._is_own_name(host) or means_own
        if addresses and len(of_this_host) == len(addresses):
            is_here = way.port == SSH_PORT or is_named
        elif addresses and len(loopback) < len(addresses):
            is_here = False
            if host.lower() == self._scheduler_name:
                return "here if unreachable", ""
        else:
            is_here = is_named and (bool(addresses) or not self._is_listed_by_address(host, listed))
        if not is_here:
            return "elsewhere", ""
        other_view = self._in_container or way.port != SSH_PORT
        return "here if unreachable" if other_view else "here", of_this_host[0] if of_this_host else ""

    def _is_own_name(self, host: str) -> bool:
        """With or without a domain; of two domains both must be the same."""
        name = host.lower().rstrip(".")
        for own_name in filter(None, (self._nodename, self._scheduler_name)):
            if name == own_name or (
                name.partition(".")[0] == own_name.partition(".")[0] and not ("." in name and "." in own_name)
            ):
                return not is_plain_address(name)
        return False

    def _is_listed_by_address(self, host: str, listed: Iterable[str]) -> bool:
        """Whether another name of the list has an address of this machine: ``host`` is a name that two hosts have."""
        return any({*self._addresses(other)} & self.own_addresses for other in islice(listed, 64) if other != host)

    def _addresses(self, name: str) -> Collection[str]:
        return (str(plain_address(name)),) if is_plain_address(name) else self._resolve(name)


def this_host() -> ThisHost:
    """The machine of this process. A container's name may stand in HOSTNAME alone."""
    in_container = any(map(os.path.exists, OWN_NETWORK_MARKS)) or "KUBERNETES_SERVICE_HOST" in os.environ
    nodename = os.uname().nodename
    if in_container and nodename.partition(".")[0] in ("", "localhost"):
        nodename = os.environ.get("HOSTNAME", nodename)
    return ThisHost(
        nodename, addresses_of_interfaces, resolve_name, os.environ.get("SLURMD_NODENAME", ""), in_container
    )


def addresses_of_interfaces() -> set[str]:
    """The addresses of this machine, without the zones of link-local ones."""
    import psutil

    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    texts = {entry.address.partition("%")[0] for entry in entries}
    return {str(plain_address(text)) for text in texts if is_plain_address(text)}


def resolve_name(name: str, seconds: float = _RESOLVE_SECONDS) -> tuple[str, ...]:
    """The addresses of a name; none where it has none, or the name server does not answer in time."""
    answer: list[str] = []

    def ask() -> None:
        try:
            addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        answer.extend(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in addresses))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return tuple(answer)
