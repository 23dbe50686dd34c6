from collections.abc import Iterator, Mapping
from itertools import combinations

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.engine.addresses import plain_address
from doctor.facts.hardware_addresses import HardwareAddresses
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.visit import Reachability

ONE_HOST = "only one host: no other can have its address"
VIRTUAL_SERVICE = ("lo", "kube-ipvs0", "nodelocaldns")
"""Interfaces with addresses of services, which each host of a cluster may have."""
LOOPBACK, IPV4 = "lo", 4


CARDS = ("names", "hardware")
"""Who answers for a host that was not reached."""
ELSEWHERE = frozenset({"no-route", "dropped", "silent", "lost", "key-unknown", "key-changed"})
"""How SSH ends where another host gets its packets."""


@check(severity=ERROR, area="connectivity", single_host=ONE_HOST, advisory=CARDS)
def duplicate_address(
    reach: PerHost[Reachability],
    addresses: PerHost[HostAddresses],
    names: PerHost[HostNames] | None,
    hardware: PerHost[HardwareAddresses] | None,
) -> Iterator[Finding]:
    """No host has the address of another one.

    ## Why it matters
    Where two hosts have one address, the neighbour tables of the other hosts decide which of the two gets a packet.
    Ranks connect to the wrong host, connections break when a table changes, and ssh sees another host key.

    ## What to do
    - An address: {address} leads to {host} in the list of hosts. On {holder}: `ip address del {address}/{prefix} dev
      {interface}`, and delete the line that sets it at boot, which `grep -rnwF {address} /etc/netplan /etc/network
      /etc/NetworkManager /etc/systemd/network /etc/sysconfig 2>/dev/null` prints with its file. Should {holder} keep
      it, give {host} another one. Where it is not on lo, `arping -c 3 -I {interface} {address}` from a third host, with
      the name of its own interface, prints two hardware addresses as long as both have it.
    - A card: on {holder}, `ip -o link | grep -iF {card}` prints the interface, `ip address` whether it has {address} as
      well. Else {host} has the same hardware address: it is a copied virtual machine, or one is set for its card. At
      the console of {host}, `ip -o link` prints the address, and `ethtool -P <interface>` the one that the card was
      made with. Give one of the two hosts another one.

    ## Source
    RFC 5227 (IPv4 address conflict detection), RFC 4862 section 5.4 (duplicate address detection of IPv6). Compared are
    the address by which SSH connected to a host and the addresses that another host's kernel lists. Hosts that were
    reached by one address, as ports of one machine, are left out, and interfaces of virtual services (lo, kube-ipvs0).
    Of lo counts only what is the first address of an interface of the host that was reached: it is no service's, which
    its holders have beside their own, and the host that has it on lo reaches itself in place of the other.
    Of a host that SSH does not reach: at which card two others find the address that they resolve its name to.
    This verdict can be wrong where an address has moved between two hosts in the seconds of the run, as that of a
    failover service does.
    """
    if len(reach) < 2:
        raise Skip(ONE_HOST)
    holders: dict[str, list[tuple[str, InterfaceAddress]]] = {}
    for host, listed in addresses.items():
        for entry in listed.interfaces:
            if entry.interface not in VIRTUAL_SERVICE or entry.interface == LOOPBACK:
                holders.setdefault(str(plain_address(entry.address)), []).append((host, entry))
    reached = {host: plain_address(visit.address) for host, visit in reach.items() if visit.address}
    conflicts = {
        (host, holder): entry
        for host, number in reached.items()
        if not (number.is_loopback or number.is_link_local)
        for holder, entry in holders.get(str(number), ())
        if holder != host and holder in reached and reached[holder] != number
        if entry.interface != LOOPBACK or _is_own(str(number), addresses.get(host))
    }
    for (host, holder), (address, card) in _answering(reach, names or {}, hardware or {}).items():
        yield Finding(
            "neither {host} nor {holder} is reached, and one card, {card}, answers for both, {address}"
            if reach[holder].failure
            else "{host} is not reached, and the card {card} of {holder} answers for its address {address}",
            hosts=(host, holder),
            host=host,
            holder=holder,
            card=card,
            address=address,
            observed=holder,
            expected=host,
            case="A card",
        )
    for (host, holder), entry in conflicts.items():
        is_mutual = (holder, host) in conflicts
        if is_mutual and host > holder:
            continue
        yield Finding(
            "SSH meets one host for both: {host} and {holder} list {address} and {other_address}"
            if is_mutual
            else "{holder} has the address of {host}, {address}, on lo: what it sends to {host} comes back to itself"
            if entry.interface == LOOPBACK
            else "{holder} has the address of {host}, {address}, on {interface}",
            hosts=(host, holder),
            holder=holder,
            host=host,
            address=reach[host].address,
            other_address=reach[holder].address,
            interface=entry.interface,
            prefix=entry.prefix,
            case="An address",
            observed=f"{host}, {holder}",
            expected=host,
        )


def _answering(
    reach: Mapping[str, Reachability], names: Mapping[str, HostNames], hardware: Mapping[str, HardwareAddresses]
) -> dict[tuple[str, str], tuple[str, str]]:
    """By a host that SSH did not reach, and one that was read: the address of the first, and the card of the second at
    which others find it. Of two that were not reached: the card at which others find both; not that of a router that
    answers for all. One host's word names no other: two must find it there, and none at another card.
    """
    finders: dict[tuple[str, str], dict[str, set[str]]] = {}
    for finder, seen in hardware.items():
        meanings = names[finder].names if finder in names else {}
        for host in (host for host, visit in reach.items() if visit.failure in ELSEWHERE and host in meanings):
            for address in meanings[host].addresses:
                if card := seen.neighbours.get(address, ""):
                    finders.setdefault((host, address), {}).setdefault(card, set()).add(finder)
    answering: dict[tuple[str, str], tuple[str, str]] = {}
    absent: dict[str, dict[str, str]] = {}
    for (host, address), by_card in finders.items():
        card, found_by = next(iter(by_card.items()))
        holders = [holder for holder, own in hardware.items() if card in own.local]
        if len(by_card) > 1 or len(found_by - {*holders}) < 2 or len(holders) > 1:
            continue
        if holders:
            answering[host, holders[0]] = (address, card)
        elif all(set(hardware[finder].neighbours.values()) - {card} for finder in found_by):
            absent.setdefault(card, {})[host] = address
    for card, addresses in absent.items():
        for first, second in combinations(sorted(addresses), 2):
            answering[first, second] = (f"{addresses[first]}, {addresses[second]}", card)
    return answering


def _is_own(address: str, listed: HostAddresses | None) -> bool:
    """Whether a host has the address before any other one on an interface of its own: no service's is there first."""
    first: dict[tuple[str, bool], str] = {}
    for entry in listed.interfaces if listed else ():
        number = plain_address(entry.address)
        if entry.interface not in VIRTUAL_SERVICE and not number.is_link_local:
            first.setdefault((entry.interface, number.version == IPV4), str(number))
    return address in first.values()
