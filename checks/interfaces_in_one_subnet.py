from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.interfaces import Interfaces, routing_commands


@check(severity=WARNING, area="connectivity")
def interfaces_in_one_subnet(interfaces: Interfaces) -> Iterator[Finding]:
    """No two network interfaces of a host have addresses in one subnet.

    ## Why it matters
    The kernel sends packets of both addresses through one of the two interfaces, and answers ARP requests for either
    address on both. Traffic of the second card takes the first, which then is the bottleneck; with `rp_filter` or a
    switch that learns the wrong port, connections break off or are never made.

    ## What to do
    On {host}, give each interface a subnet of its own, join them to a bond, or remove the address that is not needed
    (`ip -br address` lists them). Where both must stay, each needs a routing table of its own: `{routing}`, and
    `sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2`. The next start undoes both: enter them
    in the network configuration, too.

    ## Source
    Kernel documentation, ip-sysctl (arp_ignore, arp_announce, rp_filter). Only interfaces that are up are judged; ports
    of bonds and bridges, loopback, container bridges, macvlans, ipvlans and link-local addresses are not. This finding
    can be wrong where policy routing is complete; with rules of its own (`ip rule`) a host is not judged.
    """
    if interfaces.has_rules:
        raise Skip("the host has rules for policy routing")
    held: dict[str, dict[str, str]] = defaultdict(dict)
    for own in interfaces.addresses:
        link = interfaces.link(own.interface)
        if link and link.is_network_card and own.prefix not in (32, 128) and not own.is_link_local:
            held[own.network].setdefault(own.interface, own.address)
    for network, addresses in held.items():
        if len(addresses) > 1:
            yield Finding(
                "several interfaces have an address in {network}: {observed}",
                interfaces=sorted(addresses),
                network=network,
                routing=routing_commands(network, addresses),
                observed=", ".join(f"{name}: {address}" for name, address in sorted(addresses.items())),
                expected="one interface for each subnet",
            )
