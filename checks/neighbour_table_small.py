from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.neighbour_table import DEFAULT_LIMIT, NeighbourTable, hosts_on_link
from doctor.facts.network import HostAddresses

SHARE = 0.8
"""Of the table, for the hosts of the fleet: gateways, storage and the host's own services are neighbours, too."""
WANTED = 4096
"""Entries at least, where the limit is raised at all: some 2 MB of kernel memory."""


@check(severity=WARNING, area="kernel")
def neighbour_table_small(
    table: NeighbourTable, addresses: HostAddresses, fleet: PerHost[HostAddresses]
) -> Iterator[Finding]:
    r"""The kernel's table of neighbours has room for all hosts of the fleet that are in the host's own subnets.

    ## Why it matters
    The kernel keeps one entry for each address in its own subnets that it talks to. In a flat network of a thousand
    hosts and the default limit of 1024 entries the table overflows. Connections fail at random with "No buffer space
    available" or time out, and the kernel logs "neighbour: arp_cache: neighbor table overflow!".

    ## What to do
    On {host}: `sysctl -w net.ipv4.neigh.default.gc_thresh3={wanted} net.ipv4.neigh.default.gc_thresh2={half} && printf
    '%s\n' 'net.ipv4.neigh.default.gc_thresh3 = {wanted}' 'net.ipv4.neigh.default.gc_thresh2 = {half}' >>
    /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    The table is that of the machine on which the container of {host} runs. There, as root: `sysctl -w
    net.ipv4.neigh.default.gc_thresh3={wanted} net.ipv4.neigh.default.gc_thresh2={half}`.

    ## Source
    Kernel documentation, ip-sysctl, neigh/default/gc_thresh3: "Maximum number of non-PERMANENT neighbor entries
    allowed. Increase this when using large numbers of interfaces and when communicating with large numbers of
    directly-connected peers." The default is 1024; all network namespaces share the table. At most 80 % of it for the
    fleet is ours. Counted are the IPv4 addresses of the other hosts in the subnets of all interfaces. A table that has
    overflowed since the host started is too small for other neighbours; the kernel keeps that count, so it is no
    finding once the limit is above the default. The verdict can be wrong where a host never talks to most of the
    others over that subnet: the table is sufficient then.
    """
    if table.limit is None:
        raise Skip("the kernel shows the limit of its neighbour table only outside of containers")
    neighbours = hosts_on_link(addresses, fleet)
    wanted = max(WANTED, 1 << int(neighbours / SHARE).bit_length())
    if neighbours > SHARE * table.limit:
        yield Finding(
            "the neighbour table holds {observed} entries, for {neighbours} hosts of the fleet in the host's own "
            "subnets; expected room for {wanted} (net.ipv4.neigh.default.gc_thresh3)",
            observed=table.limit,
            neighbours=neighbours,
            wanted=wanted,
            half=wanted // 2,
            table="arp_cache",
        )
    elif table.overflows and table.limit <= DEFAULT_LIMIT:
        yield Finding(
            "the neighbour table, of {observed} entries, overflowed {count} times since the host started; expected "
            "room for {wanted} (net.ipv4.neigh.default.gc_thresh3)",
            observed=table.limit,
            count=table.overflows,
            wanted=wanted,
            half=wanted // 2,
            table="arp_cache",
        )
