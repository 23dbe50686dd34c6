from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses
from doctor.facts.hccn.fleet import port_use, require_port_use, watchers
from doctor.facts.hccn.link_state import DeviceLinks
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

ADVISORY = ("own_addresses", "detect")


@check(severity=ERROR, area="links", advisory=ADVISORY)
def device_link_down(
    links: PerHost[DeviceLinks],
    products: PerHost[NpuProduct],
    pods: PerHost[SuperPodId] | None,
    reach: PerHost[Reachability],
    launch: LaunchConfig,
    own_addresses: PerHost[DeviceAddresses] | None,
    detect: PerHost[DetectAddresses] | None,
) -> Iterator[Finding]:
    """The network port of every NPU that the job uses has a link.

    ## Why it matters
    Without a link the NPU is cut off from other hosts. HCCL reports `The network port is down` (EI0009), or its peers
    wait for it until their timeout (EI0006).

    ## What to do
    On {host}: `for n in $(echo {numbers}); do hccn_tool -i $n -link -s up; done` brings ports up that were switched
    off. If one stays down: `hccn_tool -i {npu} -optical -g` and `hccn_tool -i {npu} -link_stat -g`; then check the
    fibre and the switch port (is it on, does its speed match the NPU's).

    ## Source
    `hccn_tool -link -g`. Ports count where the job uses them: with two hosts or more, on A3 with two
    super pods or more; an A3 port that is down inside one super pod is healthy.
    """
    use = port_use(links, launch, products, reach, pods)
    down = {
        host: [npu for npu, state in host_links.by_npu.items() if state == "DOWN"] for host, host_links in links.items()
    }
    for host, npus in down.items():
        if npus and use.get(host):
            interfaces = own_addresses[host].by_npu if own_addresses and host in own_addresses else {}
            local = [interfaces[npu].ip for npu in npus if npu in interfaces]
            yield Finding(
                "link down on NPU {npus}; expected all {total} up",
                hosts=[host],
                npu=npus[0],
                npus=npus,
                cuts=[*npus, *watchers(detect.get(host) if detect else None, local)],
                numbers=" ".join(map(str, npus)),
                total=len(links[host].by_npu),
            )
    require_port_use(use, [host for host, npus in down.items() if npus], "links of NPUs are down")
