from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.analysis.majority import crossed, differing
from doctor.facts.interfaces import Interfaces
from doctor.facts.rdma import RdmaPorts

ONE_HOST = "only one host: nothing to compare"


RAILS = ("interfaces",)
"""In which subnet each port is."""


@check(severity=WARNING, area="links", single_host=ONE_HOST, advisory=RAILS)
def rdma_devices_differ(adapters: PerHost[RdmaPorts], interfaces: PerHost[Interfaces] | None) -> Iterator[Finding]:
    """All hosts have the same RDMA adapters under the same names, with the same link layer.

    ## Why it matters
    NCCL joins ranks by the order of the adapters. Where one is missing, or has another name, the rails are shifted:
    traffic crosses the spine of the network, or goes to a rail that cannot be reached.

    ## What to do
    On {host}, where an adapter is missing: `modprobe {module}` and `echo 1 > /sys/bus/pci/rescan` bring it back if its
    driver was not loaded or it was removed. `lspci -d {vendor}:` and `dmesg | grep {driver}` show whether it has
    failed. Then reseat or replace it. Names are given by udev (rdma-core, 60-rdma-persistent-naming.rules): use one
    rule on all hosts. The link layer of NVIDIA's adapters is set in their firmware: `mlxconfig query | grep LINK_TYPE`.

    ## Source
    /sys/class/infiniband and `link_layer` of its ports; what most hosts have is the norm. Where each adapter has an
    IPv4 subnet of its own, the same on two thirds of at least three hosts, an adapter in the subnet of another one is
    on the wrong rail: its cable or its address is exchanged. That is wrong where some hosts are cabled otherwise by
    intent, and all hosts reach each other through routers.
    """
    found = {
        host: " ".join(
            filled("{0} ({1})", device.name, ", ".join(dict.fromkeys(port.layer for port in device.ports)) or "no port")
            for device in own.devices
        )
        for host, own in adapters.items()
    }
    yield from _on_other_rails(adapters, interfaces or {})
    for finding in differing(found, "its RDMA adapters are {observed}; {count} of {total} hosts have {expected}"):
        names = {device.name for device in adapters[finding.hosts[0]].devices}
        fleet = [device for host in adapters for device in adapters[host].devices if device.module]
        missing = min(fleet, key=lambda device: device.name in names, default=None)
        yield finding.with_values(
            module=missing.module if missing else None,
            driver=missing.driver if missing else None,
            vendor=missing.vendor if missing else None,
        )


def _on_other_rails(adapters: PerHost[RdmaPorts], interfaces: Mapping[str, Interfaces]) -> Iterator[Finding]:
    networks: dict[str, dict[str, str]] = {}
    for host, own in adapters.items():
        for name, port in own.ports.items() if host in interfaces else ():
            if len(subnets := interfaces[host].networks_of(port.interface)) == 1:
                networks.setdefault(name, {}).update({host: str(*subnets)})
    for each in crossed(networks):
        yield Finding(
            "{port} is in {observed}, where {count} of {total} hosts have {other}; expected {expected}",
            hosts=[each.host],
            port=each.place,
            observed=each.observed,
            other=each.usual_place,
            count=each.count,
            total=each.total,
            expected=each.expected,
        )
