from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.pairwise_blame import loss_findings
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.neighbour import Neighbours, switch_port
from doctor.facts.hccn.pings import DevicePings

ADVISORY = ("neighbours",)

CAUSES = {
    "device-link-down": ("npu",),
    "device-ip-families-mixed": ("npu",),
    "device-ip-segment-wrong": ("npu",),
}


@check(severity=ERROR, area="links", follows_from=CAUSES, advisory=ADVISORY)
def device_unreachable(
    pings: PerHost[DevicePings], addresses: PerHost[DeviceAddresses], neighbours: PerHost[Neighbours] | None
) -> Iterator[Finding]:
    """Every NPU reaches the same NPU of other hosts over the device network.

    ## Why it matters
    HCCL moves gradients from NPU to NPU, not over the hosts' own network. An NPU that its peers cannot reach stalls the
    first collective until a timeout of minutes (EI0006), and the message names the ranks that waited, not the cause.

    ## What to do
    On {owner}: `hccn_tool -i {npu} -link -g`, `hccn_tool -i {npu} -ip -g`, `hccn_tool -i {npu} -gateway -g`,
    `hccn_tool -i {npu} -net_health -g`. The NPU is connected to {switch_port}: check its VLAN and its MTU.
    Try again from {first}: `hccn_tool -i {npu} -ping -g address {address}`.

    ## Source
    Each NPU pings the NPU of its own number on up to four other hosts, three packets each, with `hccn_tool -ping`.
    HCCL needs that plane on every product; on A1 each pair of NPUs has a segment of its own, and there is no
    other plane. The output for a lost packet is taken from the driver's source.
    Where no part that hangs together holds more than half of the hosts, look at the switches between the parts.
    """
    owner = {
        str(interface.ip): (host, npu)
        for host, host_addresses in addresses.items()
        for npu, interface in host_addresses.by_npu.items()
    }
    pairs = [
        ((host, ping.npu), owner[ping.address], ping.received == ping.sent)
        for host, host_pings in pings.items()
        for ping in host_pings.pings
        if ping.address in owner
        if host in addresses and ping.npu in addresses[host].by_npu
    ]
    yield from loss_findings(
        pairs,
        "NPU {npu} ({address}) lost packets to or from {lost} of {tried} peers: {peers}",
        "NPU {npu}: packets are lost between {between}; none of them holds more than half of {count} hosts",
        lambda host, npu: {
            "address": addresses[host].by_npu[npu].ip,
            "switch_port": switch_port(neighbours, host, npu),
        },
    )
