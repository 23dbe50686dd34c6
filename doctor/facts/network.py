"""The host's own addresses."""

from __future__ import annotations

import _socket as socket

import msgspec

from doctor.engine.addresses import plain_address
from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.remote.runtime.netlink import listed_addresses

MAX_ADDRESSES = 512
"""Addresses of one host, without those of loopback and of single links. More would cost the whole fleet's time."""


def list_addresses(arguments: ProbeArguments) -> list:  # type: ignore[type-arg]
    """Runs on the host: interface, address and prefix length of all its addresses."""
    return [
        [socket.if_indextoname(index), socket.inet_ntop(family, value), prefix]
        for index, family, value, prefix, _ in listed_addresses()
    ]


CONTAINER_INTERFACES = (
    *("docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "tunl", "vxlan"),
    *("podman", "lxcbr", "lxdbr", "kube-"),
)
"""How the names of interfaces between a host and its own containers begin."""


def is_external(interface: str, address: str) -> bool:
    """Whether other hosts may reach an address of a host: it is not one of loopback, a single link, or containers.

    >>> [is_external(*entry) for entry in (("eth0", "10.0.0.1"), ("usb0", "169.254.3.1"), ("docker0", "172.17.0.1"))]
    [True, False, False]
    """
    number = plain_address(address)
    return not (number.is_loopback or number.is_link_local or interface.startswith(CONTAINER_INTERFACES))


class InterfaceAddress(msgspec.Struct, frozen=True, array_like=True):
    """An address of an interface, with its prefix length in bits."""

    interface: str
    address: str
    prefix: int


class HostAddresses(Fact, frozen=True):
    """Every address of the host's own interfaces, IPv4 and IPv6, where the job runs.

    Raw output, as JSON::

        [["lo", "127.0.0.1", 8], ["eth0", "10.0.0.1", 24], ["eth0", "fe80::1", 64]]
    """

    probe = ask(list_addresses, job=True)
    is_shared = False

    interfaces: tuple[InterfaceAddress, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HostAddresses:
        interfaces = msgspec.convert(answer.json(), list[InterfaceAddress])
        if not interfaces:
            raise Unreadable("the kernel lists no address, not even that of lo")
        numbers = []
        for interface in interfaces:
            number = plain_address(interface.address)
            if not 0 <= interface.prefix <= number.max_prefixlen:
                raise Unreadable(filled("{0} has a prefix of {1} bits", interface.address, interface.prefix))
            numbers.append(number)
        count = sum(not (number.is_link_local or number.is_loopback) for number in numbers)
        if count > MAX_ADDRESSES:
            raise Unreadable(filled("it has {0} addresses; expected at most {1}", count, MAX_ADDRESSES))
        return cls(interfaces=tuple(interfaces))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(interface.address for interface in self.interfaces)
