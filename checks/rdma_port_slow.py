from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts


@check(severity=WARNING, area="links")
def rdma_port_slow(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """Every RDMA port has the speed and the number of lanes that it has on the other hosts, and so has its PCIe link.

    ## Why it matters
    A port that came up with fewer lanes, or at a lower speed, slows every collective down to its own speed. So does an
    adapter whose slot gives it fewer lanes of PCIe than its port needs.

    ## What to do
    On {host}, `ibstat {device}` and `rdma link` show the state and the rate of the port, and of an adapter of NVIDIA
    `mlxlink -d {device}` the speed, the lanes and the cable. Clean and reseat the transceiver or cable, on both ends,
    and try another switch port. With RoCE both ends must have the same speed set, or negotiate it. PCIe: `grep .
    /sys/class/infiniband/{device}/device/*_link_*` shows the link; shut the host down, and reseat the adapter or its
    riser, or use a slot with all lanes.

    ## Source
    `rate` of /sys/class/infiniband/NAME/ports, as `400 Gb/sec (4X NDR)` (Linux ABI, sysfs-class-infiniband). InfiniBand
    cables have four lanes: 1X is a finding also on a single host. The lanes of other layers are made up by the driver:
    AWS's EFA (link layer Unknown, linux-rdma/rdma-core pull request 884) and RoCE. The PCIe link
    (sysfs-bus-pci, current_link_width) is compared with the same adapter of the other hosts; on one host alone, fewer
    lanes than the adapter has are a finding where they carry less than its port. An adapter that divides its lanes
    between two processors or slots (Socket Direct: docs.nvidia.com/networking/display/cx5vpisd/introduction; the
    kernel's Documentation/networking/multi-pf-netdev.rst) has functions on two buses with one GUID; what both links
    carry counts. In virtual machines the links are not looked at.
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
    yield from _pcie_links(adapters)


def _pcie_links(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    links: dict[tuple[str, str], dict[str, str]] = {}
    for host, of_host in adapters.items():
        for device in of_host.devices:
            fastest = max((port.gigabits or 0 for port in device.ports if port.is_active), default=0)
            halves = [device, *(other for other in of_host.devices if other.is_half_of(device))]
            carried = sum(half.pcie_gigabits for half in halves)
            if device.lacks_lanes and carried < fastest and device.pcie_gigabits * len(halves) <= carried:
                yield Finding(
                    "the PCIe link of {device} is {observed} and carries {carried} Gbit/s, its port {expected} Gbit/s",
                    hosts=[host],
                    device=device.name,
                    observed=device.pcie_link,
                    carried=round(device.pcie_gigabits),
                    expected=round(fastest),
                )
            elif device.pcie_link:
                links.setdefault((device.name, device.board), {})[host] = device.pcie_link
    for (name, _), by_host in links.items():
        if len(by_host) > 1:
            template = "the PCIe link of {device} is {observed}; {count} of {total} hosts have {expected}"
            yield from differing(by_host, template, device=name)
