from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, joined
from doctor.analysis.majority import differing
from doctor.facts.interfaces import Interfaces

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST)
def interface_mtu_differs(interfaces: PerHost[Interfaces]) -> Iterator[Finding]:
    """The interfaces of all hosts in one network have the same MTU.

    ## Why it matters
    A host with an MTU of 9000 among hosts with 1500 sends frames that the others, or a switch, drop. Small messages
    pass, so that the job starts, and its first large transfer hangs.

    ## What to do
    On {host}, with the MTU of the other hosts: `ip link set dev {device} mtu {mtu}`, which the next start loses. To
    keep it with NetworkManager: `nmcli connection modify "$(nmcli -g GENERAL.CONNECTION device show {device})"
    802-3-ethernet.mtu {mtu}`; with netplan: `netplan set ethernets.{device}.mtu={mtu}`. A larger MTU must be allowed by
    every switch on the path: `ping -c 3 -M do -s {payload} {other}` tests it.

    ## Source
    RFC 894 and RFC 1191: hosts of one network must agree on its MTU, since no router can report a frame that is too
    large. TCP announces the smaller MSS of the two ends, so that the finding does no harm to TCP where all switches
    carry the larger frames; to RDMA and UDP it does.
    """
    if len(interfaces) < 2:
        raise Skip(ONE_HOST)
    by_network: dict[str, dict[str, tuple[str, int]]] = defaultdict(dict)
    for host, own in interfaces.items():
        for address in own.addresses:
            link = own.link(address.interface)
            if link and link.is_network_card and not address.is_link_local and address.prefix not in (32, 128):
                by_network[address.network].setdefault(host, (link.name, link.mtu))
    for network, hosts in by_network.items():
        if len(hosts) > 1:
            for finding in differing(
                {host: mtu for host, (_, mtu) in hosts.items()},
                "{interface} has an MTU of {observed} bytes; {count} of {total} hosts in {network} have {expected}",
                interface=joined(" or ", sorted({name for name, _ in hosts.values()})[:3]),
                network=network,
            ):
                device, observed = hosts[finding.hosts[0]]
                expected = finding.values.get("expected")
                payload = max(observed, expected if isinstance(expected, int) else 0) - 28  # headers of IPv4 and ICMP
                other = next((host for host, (_, mtu) in hosts.items() if mtu != observed), None)
                finding.values.update(device=device, mtu=expected, payload=payload, other=other)
                yield finding
