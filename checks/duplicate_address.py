from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.engine.addresses import plain_address
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.visit import Reachability

ONE_HOST = "only one host: no other can have its address"
VIRTUAL_SERVICE = ("lo", "kube-ipvs0", "nodelocaldns")
"""Interfaces with addresses of services, which each host of a cluster may have."""
LOOPBACK, IPV4 = "lo", 4
LOOK = (
    "`arping -c 3 -I {0} {1}` on a third host, with the name of its own interface, prints two hardware addresses as "
    "long as both have it."
)


@check(severity=ERROR, area="connectivity", single_host=ONE_HOST)
def duplicate_address(reach: PerHost[Reachability], addresses: PerHost[HostAddresses]) -> Iterator[Finding]:
    """No host has the address of another one.

    ## Why it matters
    Where two hosts have one address, the neighbour tables of the other hosts decide which of the two gets a packet.
    Ranks connect to the wrong host, connections break when a table changes, and ssh sees another host key.

    ## What to do
    {address} leads to {host} in the list of hosts. On {holder}: `ip address del {address}/{prefix} dev {interface}`,
    and delete the line that sets it at boot, which `grep -rnwF {address} /etc/netplan /etc/network /etc/NetworkManager
    /etc/systemd/network /etc/sysconfig 2>/dev/null` prints with its file. Should {holder} keep it, give {host} another
    one. {look}

    ## Source
    RFC 5227 (IPv4 address conflict detection), RFC 4862 section 5.4 (duplicate address detection of IPv6). Compared are
    the address by which SSH connected to a host and the addresses that another host's kernel lists. Hosts that were
    reached by one address, as ports of one machine, are left out, and interfaces of virtual services (lo, kube-ipvs0).
    Of lo counts only what is the first address of an interface of the host that was reached: it is no service's, which
    its holders have beside their own, and the host that has it on lo reaches itself in place of the other.
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
            pair=[host, holder],
            address=reach[host].address,
            other_address=reach[holder].address,
            interface=entry.interface,
            prefix=entry.prefix,
            look="" if entry.interface == LOOPBACK else filled(LOOK, entry.interface, reach[host].address),
            observed=f"{host}, {holder}",
            expected=host,
        )


def _is_own(address: str, listed: HostAddresses | None) -> bool:
    """Whether a host has the address before any other one on an interface of its own: no service's is there first."""
    first: dict[tuple[str, bool], str] = {}
    for entry in listed.interfaces if listed else ():
        number = plain_address(entry.address)
        if entry.interface not in VIRTUAL_SERVICE and not number.is_link_local:
            first.setdefault((entry.interface, number.version == IPV4), str(number))
    return address in first.values()
