from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts


@check(severity=WARNING, area="links")
def rdma_port_slow(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """Every RDMA port has the speed and the number of lanes that it has on the other hosts.

    ## Why it matters
    A port that came up with fewer lanes, or at a lower speed, slows every collective down to its own speed.

    ## What to do
    On {host}, `ibstat {device}` and `rdma link` show the state and the rate of the port, and of an adapter of NVIDIA
    `mlxlink -d {device}` the speed, the lanes and the cable. Clean and reseat the transceiver or cable, on both ends,
    and try another switch port. With RoCE both ends must have the same speed set, or negotiate it.

    ## Source
    `rate` of /sys/class/infiniband/NAME/ports, as `400 Gb/sec (4X NDR)` (Linux ABI, sysfs-class-infiniband). InfiniBand
    cables have four lanes: 1X is a finding also on a single host. The lanes of other layers are made up by the driver:
    AWS's EFA (link layer Unknown, linux-rdma/rdma-core pull request 884) and RoCE.
    """
    names = sorted({name for own in adapters.values() for name in own.ports})
    for name in names:
        rates = {
            host: own.ports[name].rate
            for host, own in adapters.items()
            if name in own.ports and own.ports[name].is_active and own.ports[name].rate
        }
        single_lane = [
            host for host in rates if "(1X" in rates[host] and adapters[host].ports[name].layer == "InfiniBand"
        ]
        for host in single_lane:
            yield Finding(
                "the RDMA port {port} runs at {observed}; expected {expected}",
                hosts=[host],
                port=name,
                device=name.partition(":")[0],
                observed=rates[host],
                expected="four lanes (4X)",
            )
        rest = {host: rate for host, rate in rates.items() if host not in single_lane}
        if len(rest) > 1:
            yield from differing(
                rest,
                "the RDMA port {port} runs at {observed}; {count} of {total} hosts have {expected}",
                port=name,
                device=name.partition(":")[0],
            )
