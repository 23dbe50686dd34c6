from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="links", single_host=ONE_HOST)
def rdma_settings_differ(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """All hosts have the same MTU and quality of service on their RoCE ports.

    ## Why it matters
    RoCE loses packets where one host marks its traffic with another class, or does not react to congestion: its
    packets land in a queue that is not protected, and the others slow down for it. A larger MTU than the others' fails
    only with large messages.

    ## What to do
    On {host}, for {interface}: `mlnx_qos -i {interface}`, `cma_roce_tos -d NAME`, `ip link set dev {interface} mtu
    MTU`, with the values of the other hosts; put them where the host sets them at each start.

    ## Source
    /sys/class/net/NAME/mtu, qos/trust and ecn/*/enable, and /sys/class/infiniband/NAME/tc/1/traffic_class (NVIDIA
    MLNX_OFED, Quality of Service and Explicit Congestion Notification). What a driver does not show is not compared.
    """
    for name in sorted({name for own in adapters.values() for name in own.ports}):
        ports = {
            host: own.ports[name]
            for host, own in adapters.items()
            if name in own.ports and own.ports[name].is_active and own.ports[name].layer == "Ethernet"
        }
        values = {host: {"MTU": port.mtu, **port.quality} for host, port in ports.items()}
        for setting in sorted({key for own_values in values.values() for key in own_values}):
            found = {host: own_values[setting] for host, own_values in values.items() if own_values.get(setting)}
            if len(found) > 1:
                yield from differing(
                    found,
                    "{setting} of {port} is {observed}; {count} of {total} hosts have {expected}",
                    setting=setting,
                    port=name,
                    interface=next(port.interface for port in ports.values()) or None,
                )
