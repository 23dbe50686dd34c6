from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing, most_common_value, slower_sibling
from doctor.engine.grouping import lists_by_key
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
    cables have four lanes: 1X is a finding also on a single host, and so is the one slower port among four or more of
    one board; two of them, or one in the same place on other hosts, are meant so, as behind a split cable. The lanes of
    other layers are made up by the driver: AWS's EFA (link layer Unknown, linux-rdma/rdma-core pull request 884) and
    RoCE. The PCIe link (sysfs-bus-pci, current_link_width) is compared with the same adapter of the other hosts; on one
    host alone, fewer lanes than the adapter has are a finding where they carry less than its port. An adapter that
    divides its lanes between two processors or slots (Socket Direct:
    docs.nvidia.com/networking/display/cx5vpisd/introduction; the kernel's Documentation/networking/multi-pf-netdev.rst)
    has functions on two buses with one GUID; what both links carry counts. In virtual machines the links are not looked
    at.
    """
    ports = {(host, name): port for host, own in adapters.items() for name, port in own.ports.items()}
    active = {place: port for place, port in ports.items() if port.is_active and port.rate}
    of_host = lists_by_key((host, port.rate) for (host, _), port in active.items())
    usual = most_common_value(most_common_value(rates) for rates in of_host.values())
    named: set[tuple[str, str]] = set()
    for name in sorted({name for _, name in active}):
        rates = {host: port.rate for (host, other), port in active.items() if other == name}
        template = "the RDMA port {port} runs at {observed}; expected {expected}"
        single_lane = [host for host in rates if "(1X" in rates[host] and active[host, name].layer == "InfiniBand"]
        values = {"port": name, "device": name.partition(":")[0]}
        for host in single_lane:
            yield Finding(template, hosts=[host], observed=rates.pop(host), expected="four lanes (4X)", **values)
        template = "the RDMA port {port} runs at {observed}; {count} of {total} hosts have {expected}"
        differences = list(differing(rates, template, usual, **values)) if len(rates) > 1 else []
        named.update((host, name) for host in (*single_lane, *(host for each in differences for host in each.hosts)))
        yield from differences
    yield from (slow for slow in _slower_siblings(adapters) if (*slow.hosts, slow.values["port"]) not in named)
    yield from _pcie_links(adapters)


def _slower_siblings(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """The one port of its host that is slower than the three or more others of its board."""
    boards = lists_by_key(
        ((device.board, len(device.ports), port.layer), ((host, f"{device.name}:{port.number}"), port.gigabits))
        for host, own in adapters.items()
        for device in own.devices
        for port in device.ports
        if port.is_active and port.gigabits and device.board and not device.virtual
    )
    template = "the RDMA port {port} runs at {observed} Gb/sec; {count} of {total} ports of its board at {expected}"
    for ports in boards.values():
        for finding in slower_sibling(dict(ports), template, "port"):
            yield finding.with_values(device=finding.values["port"].partition(":")[0])


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
