from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.hccn.device_addresses import (
    DetectAddresses,
    DeviceAddresses,
    HccnConf,
    address_values,
    configured_address,
)
from doctor.facts.hccn.fleet import address_use, require_port_use, watchers
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

ADVISORY = ("conf", "detect")


@check(severity=ERROR, area="addresses", advisory=ADVISORY)
def device_ip_unset(
    addresses: PerHost[DeviceAddresses],
    products: PerHost[NpuProduct],
    pods: PerHost[SuperPodId] | None,
    reach: PerHost[Reachability],
    conf: PerHost[HccnConf] | None,
    detect: PerHost[DetectAddresses] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """Every NPU whose network port the job uses has a device IP.

    ## Why it matters
    HCCL reaches an NPU on another host by the device IP of its port. Without one, the first collective fails
    (EI0006, EI0009) or waits until its timeout.

    ## What to do
    On {host}: `hccn_tool -i {npu} -ip -s address {address} netmask {netmask}`. {source} {others}

    ## Source
    HCCL's rank table documents: device_ip is needed on A1 always; on A2 with more than one host; on A3 with more
    than one super pod, or with HCCL_INTER_HCCS_DISABLE=TRUE. Inside one super pod A3 uses HCCS, and ports without
    an address are healthy.
    """
    use = address_use(addresses, launch, products, reach, pods)
    count = len({pod.id for pod in (pods or {}).values()})
    between = filled(", as the hosts are in {0} super pods", count) if count > 1 else ""
    for host, host_addresses in addresses.items():
        if host_addresses.unset and use.get(host):
            first, file = host_addresses.unset[0], conf.get(host) if conf else None
            lost = [configured_address(file, npu, host_addresses)[0] for npu in host_addresses.unset]
            yield Finding(
                "no device IP on NPU {npus}; expected one on each of the host's {total} NPUs{reason}",
                hosts=[host],
                npu=first,
                npus=list(host_addresses.unset),
                settings=["address", "netmask"],
                others="The other NPUs likewise, each with its own address." if host_addresses.unset[1:] else "",
                cuts=[*host_addresses.unset, *watchers(detect.get(host) if detect else None, lost)],
                reason=between,
                total=len(host_addresses.by_npu) + len(host_addresses.unset),
                **address_values(file, first, host_addresses),
            )
    require_port_use(
        use, [host for host, host_addresses in addresses.items() if host_addresses.unset], "NPUs have no device IP"
    )
