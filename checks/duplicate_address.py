from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.engine.addresses import plain_address
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.visit import Reachability

ONE_HOST = "only one host: no other can have its address"
VIRTUAL_SERVICE = ("lo", "kube-ipvs0", "nodelocaldns")
"""Interfaces with addresses of services, which each host of a cluster may have."""


@check(severity=ERROR, area="connectivity", single_host=ONE_HOST)
def duplicate_address(reach: PerHost[Reachability], addresses: PerHost[HostAddresses]) -> Iterator[Finding]:
    """No host has the address of another one.

    ## Why it matters
    Where two hosts have one address, the neighbour tables of the other hosts decide which of the two gets a packet.
    Ranks connect to the wrong host, connections break when a table changes, and ssh sees another host key.

    ## What to do
    {address} leads to {host} in the list of hosts. On {holder}: `ip address del {address}/{prefix} dev {interface}`,
    and take it out of its network configuration. Should {holder} keep it, give {host} another one. `arping -c 3 -I
    {interface} {address}` from a third host, with the name of its own interface, prints two hardware addresses as long
    as both have it.

    ## Source
    RFC 5227 (IPv4 address conflict detection), RFC 4862 section 5.4 (duplicate address detection of IPv6). Compared are
    the address by which SSH connected to a host and the addresses that another host's kernel lists. Hosts that were
    reached by one address, as ports of one machine, are left out, and interfaces of virtual services (lo, kube-ipvs0).
    This verdict can be wrong where an address has moved between two hosts in the seconds of the run, as that of a
    failover service does.
    """
    if len(reach) < 2:
        raise Skip(ONE_HOST)
    holders: dict[str, list[tuple[str, InterfaceAddress]]] = {}
    for host, listed in addresses.items():
        for entry in listed.interfaces:
            if entry.interface not in VIRTUAL_SERVICE:
                holders.setdefault(str(plain_address(entry.address)), []).append((host, entry))
    reached = {host: plain_address(visit.address) for host, visit in reach.items() if visit.address}
    conflicts = {
        (host, holder): entry
        for host, number in reached.items()
        if not (number.is_loopback or number.is_link_local)
        for holder, entry in holders.get(str(number), ())
        if holder != host and holder in reached and reached[holder] != number
    }
    for (host, holder), entry in conflicts.items():
        is_mutual = (holder, host) in conflicts
        if is_mutual and host > holder:
            continue
        yield Finding(
            "SSH meets one host for both: {host} and {holder} list {address} and {other_address}"
            if is_mutual
            else "{holder} has the address of {host}, {address}, on {interface}",
            hosts=(host, holder),
            holder=holder,
            host=host,
            address=reach[host].address,
            other_address=reach[holder].address,
            interface=entry.interface,
            prefix=entry.prefix,
            observed=f"{host}, {holder}",
            expected=host,
        )
