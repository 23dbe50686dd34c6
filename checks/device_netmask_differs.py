from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.analysis.majority import most_common_value
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.fleet import Npu, flatten_by_npu, group_by_host, tie_finding

Network = IPv4Network | IPv6Network


@check(severity=ERROR, area="addresses")
def device_netmask_differs(addresses: PerHost[DeviceAddresses]) -> Iterator[Finding]:
    """NPUs that share a segment have the same netmask.

    ## Why it matters
    An NPU with a narrower mask treats NPUs of its own segment as remote and sends their traffic to a gateway, or
    nowhere. One with a wider mask looks for remote NPUs in its own segment. Either way some pairs of NPUs cannot
    connect, and HCCL hangs.

    ## What to do
    On {host}: `hccn_tool -i {npu} -ip -s address {address} netmask {netmask}`: the address that the NPU has, and the
    netmask of the others.

    ## Source
    How IP routing works; only segments that overlap are compared, so plans with several segments may mix masks.
    """
    interfaces = flatten_by_npu(addresses)
    if len(interfaces) < 2:
        raise Skip("fewer than two device IPs: nothing to compare")
    networks = {interface.network for interface in interfaces.values()}
    lengths = sorted({net.prefixlen for net in networks})
    shared: dict[Network, dict[Npu, int]] = defaultdict(dict)
    for host_npu, interface in interfaces.items():
        net = interface.network
        around = (net.supernet(new_prefix=length) for length in lengths if length <= net.prefixlen)
        shared[next(wide for wide in around if wide in networks)][host_npu] = net.prefixlen
    for home, masks in shared.items():
        expected = most_common_value(masks.values())
        if expected is None:
            yield tie_finding(
                {host_npu: f"/{length}" for host_npu, length in masks.items()},
                segment=home,
                expected="one netmask",
                address=interfaces[next(iter(masks))].ip,
                netmask=None,
            )
            continue
        for host, observed, npus in group_by_host(
            {host_npu: length for host_npu, length in masks.items() if length != expected}
        ):
            yield Finding(
                "netmask of {observed} bits in {segment} on NPU {npus}; most NPUs there have {expected} bits",
                hosts=[host],
                npu=npus[0],
                npus=npus,
                settings=["netmask"],
                segment=home,
                address=interfaces[host, npus[0]].ip,
                observed=observed,
                expected=expected,
                netmask=str(ip_network((home.network_address, expected), strict=False).netmask),
            )
