"""The kernel's table of neighbours (ARP), and how many hosts of the fleet it has to hold."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, collapse_addresses

from doctor.engine.check import once_per_fleet
from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, read
from doctor.engine.texts import filled
from doctor.facts.kernel import read_number, sysctl_path
from doctor.facts.network import HostAddresses

GC_THRESH3 = "net.ipv4.neigh.default.gc_thresh3"
DEFAULT_LIMIT = 1024
"""Entries, where nothing sets them (Linux, net/ipv4/arp.c)."""
STATISTICS = "/proc/net/stat/arp_cache"


class NeighbourTable(Fact, frozen=True):
    """How many IPv4 neighbours the kernel keeps at most, and how often there was no room for one.

    Raw output, from ``/proc/sys/net/ipv4/neigh/default/gc_thresh3``::

        1024

    Raw output, from ``/proc/net/stat/arp_cache``, a row for each CPU, in hexadecimal::

        entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls
        00000031 00000667 00000421 00000004   00001555 000007e9 00000006   00000000         00000000         00000000         00000000       00000000            00000000
    """  # noqa: E501 -- as the kernel prints it

    probe = read(sysctl_path(GC_THRESH3), STATISTICS)

    limit: int | None
    """Entries; None in a network namespace of its own, where the kernel does not show it."""
    overflows: int
    """Entries that were refused since the host started; 0 where the kernel does not show it: before Linux 4.3, too."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NeighbourTable:
        return cls(limit=_limit(answer), overflows=_overflows(answer))


def _limit(answer: ProbeAnswer) -> int | None:
    try:
        return read_number(answer, sysctl_path(GC_THRESH3))
    except Absent:
        return None


def _overflows(answer: ProbeAnswer) -> int:
    try:
        header, *rows = answer.text(STATISTICS).splitlines() or [""]
    except Absent:
        return 0
    names = header.split()
    if "entries" not in names or not rows:
        raise Unreadable(filled("{0}: expected a header and a row for each CPU", STATISTICS))
    if "table_fulls" not in names:
        return 0
    column = names.index("table_fulls")
    counts = [row.split()[column : column + 1] for row in rows]
    if not all(count and re.fullmatch("[0-9a-f]{1,16}", count[0]) for count in counts):
        raise Unreadable(filled("{0}: expected hexadecimal numbers in {1} columns", STATISTICS, len(names)))
    return sum(int(count[0], 16) for count in counts)


def hosts_on_link(addresses: HostAddresses, fleet: Mapping[str, HostAddresses]) -> int:
    """How many IPv4 addresses of other hosts of the fleet are in the subnets of this host's interfaces."""
    numbers = _fleet_numbers(fleet)
    interfaces = [
        IPv4Interface(f"{each.address}/{each.prefix}") for each in addresses.interfaces if _is_counted(each.address)
    ]
    count = 0
    for subnet in collapse_addresses(interface.network for interface in interfaces):
        first, last = int(subnet.network_address), int(subnet.broadcast_address)
        count += bisect_right(numbers, last) - bisect_left(numbers, first)
        count -= len({int(interface) for interface in interfaces if interface in subnet})
    return count


def _is_counted(address: str) -> bool:
    return "." in address and not address.startswith("127.")


@once_per_fleet
def _fleet_numbers(fleet: Mapping[str, HostAddresses]) -> list[int]:
    """Each IPv4 address of the fleet once, as a number, in order."""
    texts = {each.address for addresses in fleet.values() for each in addresses.interfaces if _is_counted(each.address)}
    return sorted(int(IPv4Address(text)) for text in texts)
