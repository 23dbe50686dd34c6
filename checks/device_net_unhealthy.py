from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceGateways
from doctor.facts.hccn.fleet import port_use, require_port_use
from doctor.facts.hccn.link_state import DeviceHealth, DeviceLinks
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

HEALTHY_STATES = ("Success", "Init")
CAUSES = {
    "device-ip-unset": ("npu=cut",),
    "device-link-down": ("npu=cut",),
    "device-ip-families-mixed": ("npu",),
    "device-ip-segment-wrong": ("npu",),
    "gateway-outside-segment": ("npu",),
    "device-ip-conflict": ("watched=address",),
}
ADVISORY = ("gateways",)


@check(severity=ERROR, area="links", follows_from=CAUSES, advisory=ADVISORY)
def device_net_unhealthy(
    health: PerHost[DeviceHealth],
    links: PerHost[DeviceLinks] | None,
    detect: PerHost[DetectAddresses] | None,
    gateways: PerHost[DeviceGateways] | None,
    products: PerHost[NpuProduct],
    pods: PerHost[SuperPodId] | None,
    reach: PerHost[Reachability],
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """No NPU that the job uses reports a broken network.

    ## Why it matters
    Each NPU pings its detect address. `Receive timeout`, `Unreachable` or `Fault` mean that the ping fails: HCCL will
    fail too.

    ## What to do
    {watch} On {host}, `hccn_tool -i {npu} -netdetect -g` shows what it pings, `hccn_tool -i {npu} -ping -g address
    {address}` repeats the ping by hand. Check `hccn_tool -i {npu} -ip -g`, `hccn_tool -i {npu} -gateway -g` and
    `hccn_tool -i {npu} -lldp -g`, then the VLAN of its switch port. `hccn_tool -i {npu} -cfg recovery` sets the NPU up
    again from /etc/hccn.conf; run it only while no job runs. After a change the net health takes some seconds to
    follow.

    ## Source
    `hccn_tool -net_health -g`. As the vendor's own cluster manager does, `Init` counts as neither: an NPU reports it
    after a start, and permanently without a detect address. Ports without a link are left to device-link-down.
    """
    use = port_use(health, launch, products, reach, pods)
    sick = {
        host: _unhealthy_npus(host_health, links[host] if links and host in links else None)
        for host, host_health in health.items()
    }
    for host, npus in sick.items():
        for npu in npus if use.get(host) else ():
            watched = detect[host].by_npu.get(npu) if detect and host in detect else None
            gateway = gateways[host].by_npu.get(npu) if gateways and host in gateways else None
            command = f"hccn_tool -i {npu} -netdetect -s address {gateway}"
            yield Finding(
                "NPU {npu} reports net health {observed} (detect address {watched}); expected {expected}",
                hosts=[host],
                npu=npu,
                watched=watched or "unknown",
                address=watched,
                settings=["netdetect"],
                watch=filled("If {0} is not in use, let the NPU ping its gateway: `{1}`.", watched, command)
                if watched and gateway and gateway != watched
                else "",
                observed=health[host].by_npu[npu],
                expected="Success",
            )
    require_port_use(use, [host for host, npus in sick.items() if npus], "NPUs report a broken network")


def _unhealthy_npus(host_health: DeviceHealth, links: DeviceLinks | None) -> list[int]:
    down = [npu for npu, state in links.by_npu.items() if state == "DOWN"] if links else []
    return [npu for npu, word in host_health.by_npu.items() if word not in HEALTHY_STATES and npu not in down]
