"""By which interface and addresses a host meets the others: on each of them the rules may say another thing."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from doctor.engine.check import once_per_fleet
from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.grouping import sets_by_key
from doctor.engine.texts import filled
from doctor.facts.firewall.packets import Ranges, intersect, to_ranges
from doctor.facts.names import HostNames, is_address, listed_host
from doctor.facts.network import HostAddresses, is_external
from doctor.job import limit_items

Network = tuple[Literal[4, 6], int, int]


class RouteEntry(msgspec.Struct, frozen=True):
    """One address of a host that no other host has, and its network."""

    device: str
    number: int
    network: Network

    @property
    def text(self) -> str:
        kind = ipaddress.IPv4Address if self.network[0] == 4 else ipaddress.IPv6Address
        return str(kind(self.number))


class _Peers(Mapping[str, Ranges]):
    """The addresses of all hosts but one: what all of them share is kept once."""

    def __init__(self, hosts: Mapping[str, Ranges], host: str) -> None:
        self._hosts, self._host = hosts, host

    def __getitem__(self, peer: str) -> Ranges:
        if peer == self._host:
            raise KeyError(peer)
        return self._hosts[peer]

    def __iter__(self) -> Iterator[str]:
        return (host for host in self._hosts if host != self._host)

    def __len__(self) -> int:
        return len(self._hosts) - (self._host in self._hosts)


class Route(msgspec.Struct, frozen=True):
    """An address of the host, and the addresses of all others that it can meet from there."""

    local: RouteEntry
    peer_addresses: Mapping[str, Ranges]
    fleet_addresses: Ranges
    """All of these, and the own."""
    on_link: bool
    """All peers are in the interface's own network."""


class _FleetAddresses:
    """The addresses of all hosts, by host and by network."""

    def __init__(self, addresses: PerHost[HostAddresses]) -> None:
        lists = addresses.values()
        holders = Counter(address for listed in lists for address in set(listed.addresses))
        owners = Counter(
            address
            for listed in lists
            for address in {entry.address for entry in listed.interfaces if entry.interface != "lo"}
        )
        # One that a second host has on lo is still its owner's, which the others meet there.
        self.entries = {
            host: tuple(
                entry
                for entry, address in _external_entries(host_addresses)
                if holders[address] == 1 or (entry.device != "lo" and owners[address] == 1)
            )
            for host, host_addresses in addresses.items()
        }
        self.hosts = {id(host_addresses): host for host, host_addresses in addresses.items()}
        spans_by_network: dict[Network, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for host, host_entries in self.entries.items():
            for entry in host_entries:
                spans_by_network[entry.network][host].append((entry.number, entry.number))
        self.on_link = {
            network: {host: to_ranges(spans) for host, spans in hosts.items()}
            for network, hosts in spans_by_network.items()
        }
        self.ranges_by_network = {
            network: to_ranges(span for held in hosts.values() for span in held)
            for network, hosts in self.on_link.items()
        }
        numbers = ((entry.number, host) for host, entries in self.entries.items() for entry in entries)
        self.hosts_by_number = sets_by_key(numbers)
        self._reachable: dict[tuple[Network, frozenset[Network]], tuple[dict[str, Ranges], Ranges, bool]] = {}

    def reachable(self, host: str, network: Network) -> tuple[dict[str, Ranges], Ranges, bool]:
        """Whom a host can meet from one of its networks: by host, all together, and whether all are in that network.

        Of hosts in the same networks this is the same; the host itself is among them.
        """
        own_networks = frozenset(entry.network for entry in self.entries[host])
        here, peers = self.on_link[network], {}
        if len(here) == 1 and sum(own[0] == network[0] for own in own_networks) == 1:
            # Hosts that share no network, such as those of /32 addresses, meet the same ones: all of the family.
            own_networks = frozenset()
            network, here = (network[0], 0, 0), {}
        key = (network, own_networks)
        if key not in self._reachable:
            for peer, entries in self.entries.items():
                far = (
                    (entry.number, entry.number)
                    for entry in entries
                    if entry.network[0] == network[0] and entry.network not in own_networks
                )
                held = here.get(peer) or to_ranges(far)
                if held:
                    peers[peer] = held
            everything = to_ranges(span for held in peers.values() for span in held)
            self._reachable[key] = peers, everything, peers.keys() <= here.keys()
        return self._reachable[key]


def route_entries(host_addresses: HostAddresses) -> list[RouteEntry]:
    """The addresses of a host at which others can meet it."""
    return [entry for entry, _ in _external_entries(host_addresses)]


def _external_entries(host_addresses: HostAddresses) -> Iterator[tuple[RouteEntry, str]]:
    for interface in host_addresses.interfaces:
        if is_external(interface.interface, interface.address):
            yield _route_entry(interface.interface, interface.address, interface.prefix), interface.address


def _route_entry(device: str, address: str, prefix: int) -> RouteEntry:
    interface = ipaddress.ip_interface(f"{address}/{prefix}")
    family: Literal[4, 6] = 4 if interface.version == 4 else 6
    return RouteEntry(device, int(interface.ip), (family, int(interface.network[0]), int(interface.network[-1])))


@once_per_fleet
def _fleet_of(addresses: PerHost[HostAddresses]) -> _FleetAddresses:
    return _FleetAddresses(addresses)


class Master(msgspec.Struct, frozen=True):
    """The host of MASTER_ADDR, as far as it is known."""

    host: str = ""
    """Empty when it is not given, or none of the hosts."""
    addresses: tuple[str, ...] = ()


def find_master(
    master_addr: str, names: HostNames, host_addresses: HostAddresses, addresses: PerHost[HostAddresses]
) -> Master:
    """Which host MASTER_ADDR means, in the eyes of this one; where it cannot resolve the name, by the list of hosts."""
    if not master_addr:
        return Master()
    fleet = _fleet_of(addresses)
    master_addresses = (
        names.names[master_addr].non_loopback
        if master_addr in names.names
        else (master_addr,)
        if is_address(master_addr)
        else ()
    )
    if names.is_master(master_addr, host_addresses.addresses):
        return Master(fleet.hosts[id(host_addresses)], master_addresses)
    if not master_addresses:
        return Master(listed_host(addresses, master_addr) or "")
    numbers = {int(ipaddress.ip_address(address)) for address in master_addresses}
    matching_hosts = set().union(*(fleet.hosts_by_number.get(number, ()) for number in numbers))
    return Master(matching_hosts.pop() if len(matching_hosts) == 1 else "", master_addresses)


def find_routes(host_addresses: HostAddresses, addresses: PerHost[HostAddresses], master: Master) -> list[Route]:
    """The ways on which the host can meet all others; with the master's address known, the one that leads to it.

    Raises: Unreadable when there is none.
    """
    fleet = _fleet_of(addresses)
    host = fleet.hosts[id(host_addresses)]
    every = [route for entry in fleet.entries[host] if (route := _build_route(fleet, host, entry)) is not None]
    complete_routes = [route for route in every if len(route.peer_addresses) == len(fleet.entries) - 1]
    complete_routes = [route for route in complete_routes if route.on_link] or complete_routes
    if not complete_routes:
        reachable_hosts = max((set(route.peer_addresses) for route in every), key=len, default=set())
        lost = limit_items(sorted(set(fleet.entries) - reachable_hosts - {host}))
        raise Unreadable(
            filled("doctor found no network that it shares with {0}", ", ".join(lost)), "duplicate-address"
        )
    numbers = [int(ipaddress.ip_address(master_address)) for master_address in master.addresses]
    families = {6 if ":" in master_address else 4 for master_address in master.addresses} or {4}
    sought = [
        route
        for route in complete_routes
        if any(intersect(route.fleet_addresses, ((number, number),)) for number in numbers)
    ]
    return sought or [route for route in complete_routes if route.local.network[0] in families] or complete_routes


def _build_route(fleet: _FleetAddresses, host: str, entry: RouteEntry) -> Route | None:
    here = fleet.on_link[entry.network]
    if len(here) == len(fleet.entries):
        peers, everything, on_link = here, fleet.ranges_by_network[entry.network], True
    else:
        peers, everything, on_link = fleet.reachable(host, entry.network)
    others = _Peers(peers, host)
    return Route(entry, others, everything, on_link) if others else None


def peers_holding(route: Route, held: Ranges) -> Iterator[str]:
    """The peers that have one of these addresses."""
    return (peer for peer, peer_ranges in route.peer_addresses.items() if intersect(peer_ranges, held))
