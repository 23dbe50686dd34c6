"""By which interface and addresses a host meets the others: on each of them the rules may say another thing."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from doctor.engine.fact import PerHost, Unreadable
from doctor.facts.firewall.packets import Ranges, meet, ranges
from doctor.facts.names import HostNames, is_address
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.job import few

OF_CONTAINERS = ("docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "tunl", "vxlan", "kube-", "podman")
"""Interfaces between a host and its own containers, by the first letters of their names."""

Network = tuple[Literal[4, 6], int, int]


class Place(msgspec.Struct, frozen=True):
    """One address of a host that no other host has, and its network."""

    device: str
    number: int
    network: Network

    @property
    def text(self) -> str:
        kind = ipaddress.IPv4Address if self.network[0] == 4 else ipaddress.IPv6Address
        return str(kind(self.number))


class Route(msgspec.Struct, frozen=True):
    """An address of the host, and the addresses of all others that it can meet from there."""

    own: Place
    peers: Mapping[str, Ranges]
    fleet: Ranges
    """All of these, and the own."""
    on_link: bool
    """All peers are in the interface's own network."""


class _Fleet:
    """The addresses of all hosts, by host and by network."""

    def __init__(self, addresses: PerHost[HostAddresses]) -> None:
        count = Counter(one for own in addresses.values() for one in set(own.addresses))
        self.places = {
            host: tuple(
                _place(one.interface, one.address, one.prefix)
                for one in own.interfaces
                if count[one.address] == 1 and _leads_out(one)
            )
            for host, own in addresses.items()
        }
        self.hosts = {id(own): host for host, own in addresses.items()}
        met: dict[Network, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for host, places in self.places.items():
            for place in places:
                met[place.network][host].append((place.number, place.number))
        self.on_link = {
            network: {host: ranges(spans) for host, spans in hosts.items()} for network, hosts in met.items()
        }
        self.whole = {
            network: ranges(span for held in hosts.values() for span in held) for network, hosts in self.on_link.items()
        }


def _leads_out(one: InterfaceAddress) -> bool:
    address = ipaddress.ip_address(one.address)
    return not (address.is_loopback or address.is_link_local or one.interface.startswith(OF_CONTAINERS))


def _place(device: str, address: str, prefix: int) -> Place:
    one = ipaddress.ip_interface(f"{address}/{prefix}")
    family: Literal[4, 6] = 4 if one.version == 4 else 6
    return Place(device, int(one.ip), (family, int(one.network[0]), int(one.network[-1])))


class _Same:
    """The very same fleet, not an equal one: a fleet of 1000 hosts is then looked through once."""

    def __init__(self, addresses: PerHost[HostAddresses]) -> None:
        self.addresses = addresses

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.addresses is self.addresses

    def __hash__(self) -> int:
        return id(self.addresses)


@lru_cache(maxsize=1)
def _fleet(same: _Same) -> _Fleet:
    return _Fleet(same.addresses)


class Master(msgspec.Struct, frozen=True):
    """The host of MASTER_ADDR, as far as it is known."""

    host: str = ""
    """Empty when it is not given, or none of the hosts."""
    addresses: tuple[str, ...] = ()


def find_master(said: str, names: HostNames, own: HostAddresses, addresses: PerHost[HostAddresses]) -> Master:
    """Which host MASTER_ADDR means, in the eyes of this one."""
    if not said:
        return Master()
    fleet = _fleet(_Same(addresses))
    known = names.names[said].outside if said in names.names else (said,) if is_address(said) else ()
    if names.is_master(said, own.addresses):
        return Master(fleet.hosts[id(own)], known)
    numbers = {int(ipaddress.ip_address(one)) for one in known}
    found = {host for host, places in fleet.places.items() for place in places if place.number in numbers}
    return Master(found.pop() if len(found) == 1 else "", known)


def routes(own: HostAddresses, addresses: PerHost[HostAddresses], master: Master) -> list[Route]:
    """The ways on which the host can meet all others; with the master's address known, the one that leads to it.

    Raises: Unreadable when there is none.
    """
    fleet = _fleet(_Same(addresses))
    host = fleet.hosts[id(own)]
    every = [route for place in fleet.places[host] if (route := _route(fleet, host, place)) is not None]
    found = [route for route in every if len(route.peers) == len(fleet.places) - 1]
    found = [route for route in found if route.on_link] or found
    if not found:
        met = max((set(route.peers) for route in every), key=len, default=set())
        lost = few(sorted(set(fleet.places) - met - {host}))
        raise Unreadable(f"no address that it and {', '.join(lost)} could meet at is known")
    numbers = [int(ipaddress.ip_address(one)) for one in master.addresses]
    families = {6 if ":" in one else 4 for one in master.addresses} or {4}
    sought = [route for route in found if any(_holds(route, number) for number in numbers)]
    return sought or [route for route in found if route.own.network[0] in families] or found


def _holds(route: Route, number: int) -> bool:
    return bool(meet(route.fleet, ((number, number),)))


def _route(fleet: _Fleet, host: str, place: Place) -> Route | None:
    here = fleet.on_link[place.network]
    if len(here) == len(fleet.places):
        peers = {peer: held for peer, held in here.items() if peer != host}
        return Route(place, peers, fleet.whole[place.network], True) if peers else None
    own_networks = {one.network for one in fleet.places[host]}
    peers = {}
    for peer, places in fleet.places.items():
        far = [one for one in places if one.network[0] == place.network[0] and one.network not in own_networks]
        held = here.get(peer) or ranges((one.number, one.number) for one in far)
        if held and peer != host:
            peers[peer] = held
    spans = [span for held in peers.values() for span in held]
    whole = ranges([*spans, (place.number, place.number)])
    return Route(place, peers, whole, set(peers) <= set(here)) if peers else None


def owners(route: Route, held: Ranges) -> Iterator[str]:
    """The peers that have one of these addresses."""
    return (peer for peer, own in route.peers.items() if meet(own, held))
