from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="links", single_host=ONE_HOST)
def rdma_devices_differ(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """All hosts have the same RDMA adapters under the same names, with the same link layer.

    ## Why it matters
    NCCL joins ranks by the order of the adapters. Where one is missing, or has another name, the rails are shifted:
    traffic crosses the spine of the network, or goes to a rail that cannot be reached.

    ## What to do
    On {host}, where an adapter is missing: `modprobe mlx5_core` and `echo 1 > /sys/bus/pci/rescan` bring it back if its
    driver was not loaded or it was removed; `lspci -d 15b3:` and `dmesg | grep mlx5` show whether it has failed. Then
    reseat or replace it. Names are given by udev (rdma-core, 60-rdma-persistent-naming.rules): use one rule on all
    hosts. The link layer is set in the adapter's firmware: `mlxconfig query | grep LINK_TYPE`.

    ## Source
    /sys/class/infiniband and `link_layer` of its ports; what most hosts have is the norm.
    """
    found = {
        host: " ".join(
            filled("{0} ({1})", device.name, ", ".join(dict.fromkeys(port.layer for port in device.ports)) or "no port")
            for device in own.devices
        )
        for host, own in adapters.items()
    }
    yield from differing(found, "its RDMA adapters are {observed}; {count} of {total} hosts have {expected}")
