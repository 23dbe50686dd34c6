"""Addresses that may be written down on other hosts: no single host decides about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from doctor.engine.addresses import is_plain_address, plain_address
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.visit import Reachability


def hosts_file_lines(
    requested_names: Iterable[str],
    names: Mapping[str, HostNames],
    addresses: Mapping[str, HostAddresses],
    visits: Mapping[str, Reachability],
) -> list[str]:
    """Lines for /etc/hosts, ``ADDRESS NAME``, of the names whose address is agreed.

    That is the one address that the named host itself has, and that SSH reached it by or another host resolves the
    name to. A name that no host of the fleet has, or several, and one with two such addresses, gets no line.
    """
    lines = []
    for name in sorted(set(requested_names)):
        owner = owner_of(name, names)
        if not owner or owner not in addresses or not name.isprintable() or any(map(str.isspace, name)):
            continue
        own_addresses = set(_usable(addresses[owner].addresses))
        reached = visits[owner].address if owner in visits else ""
        resolved = {
            address
            for host, host_names in names.items()
            if host != owner and name in host_names.names
            for address in host_names.names[name].addresses
        }
        agreed = own_addresses & resolved or own_addresses & {reached}
        if reached in agreed:
            agreed = {reached}
        if len(agreed) == 1:
            lines.append(f"{agreed.pop()} {name}")
    return lines


def owner_of(name: str, names: Mapping[str, HostNames]) -> str:
    """The host that a name is for, by the list of hosts or by what one host calls itself; empty if not exactly one."""
    owners = {host for host, host_names in names.items() if name in (host, host_names.own)}
    return owners.pop() if len(owners) == 1 else ""


def agreed_addresses(
    names: Mapping[str, HostNames], addresses: Mapping[str, HostAddresses], visits: Mapping[str, Reachability]
) -> set[str]:
    """The addresses of the fleet that a firewall may be opened to.

    Of each host: the one that SSH reached it by, those that another host resolves its name to, and its only address in
    a network that other hosts are in, too. A host that does not have the address by which SSH reached it has none: its
    list is not true, or it is behind a translation of addresses.
    """
    agreed: set[str] = set()
    resolved: dict[str, set[str]] = {}
    for host, host_names in names.items():
        for name, meaning in host_names.names.items():
            if host not in (name, host_names.own) and name != host_names.own:
                resolved.setdefault(name, set()).update(meaning.addresses)
    networks = {host: _by_network(host_addresses) for host, host_addresses in addresses.items()}
    shared = Counter(network for by_network in networks.values() for network in by_network)
    for host, by_network in networks.items():
        own_addresses = {address for members in by_network.values() for address in members}
        reached = visits[host].address if host in visits else ""
        if reached and reached not in own_addresses and not plain_address(reached).is_loopback:
            continue
        own_names = {host, names[host].own} if host in names else {host}
        witnessed = {address for name in own_names for address in resolved.get(name, ())} | {reached}
        for network, members in by_network.items():
            confirmed = [address for address in members if address in witnessed]
            agreed.update(confirmed or (members if len(members) == 1 and shared[network] > 1 else ()))
    return agreed


_Network = tuple[int, int, int]
"""Version, prefix length in bits, and the bits of the prefix."""


def _by_network(host_addresses: HostAddresses) -> dict[_Network, list[str]]:
    by_network: dict[_Network, list[str]] = {}
    usable = set(_usable(host_addresses.addresses))
    for interface in host_addresses.interfaces:
        if interface.address in usable:
            number = plain_address(interface.address)
            bits = int(number) >> (number.max_prefixlen - interface.prefix)
            by_network.setdefault((number.version, interface.prefix, bits), []).append(interface.address)
    return by_network


def _usable(addresses: Iterable[str]) -> Iterable[str]:
    for address in addresses:
        if is_plain_address(address) and not (
            plain_address(address).is_loopback or plain_address(address).is_link_local
        ):
            yield address
