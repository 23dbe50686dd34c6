from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.hccn import DeviceAddresses, SuperPod
from doctor.facts.hccn.fleet import address_use, settle
from doctor.facts.npu import NpuProduct
from doctor.facts.visit import Reach
from doctor.job import Launch


@check(severity=ERROR, area="addresses")
def device_ip_unset(
    addresses: PerHost[DeviceAddresses],
    products: PerHost[NpuProduct],
    pods: PerHost[SuperPod] | None,
    reach: PerHost[Reach],
    launch: Launch,
) -> Iterator[Finding]:
    """Every NPU whose network port the job uses has a device IP.

    ## Why it matters
    HCCL reaches an NPU on another host by the device IP of its port. Without one, the first collective fails
    (EI0006, EI0009) or waits until its timeout.

    ## What to do
    `hccn_tool -i {npu} -ip -s address A netmask M` for each of them, with addresses of your plan; the tool also
    writes /etc/hccn.conf, so that they survive a restart.

    ## Source
    HCCL's rank table documents: device_ip is needed on A1 always; on A2 with more than one host; on A3 with more
    than one super pod, or with HCCL_INTER_HCCS_DISABLE=TRUE. Inside one super pod A3 uses HCCS, and ports without
    an address are healthy.
    """
    use = address_use(addresses, launch, products, reach, pods)
    for host, own in addresses.items():
        if own.unset and use.get(host):
            yield Finding(
                "no device IP on NPU {npus}; expected one on each of the host's {total} NPUs",
                hosts=[host],
                npu=own.unset[0],
                npus=list(own.unset),
                total=len(own.by_npu) + len(own.unset),
            )
    settle(use, [host for host, own in addresses.items() if own.unset], "NPUs have no device IP")
