from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.pairwise_blame import loss_findings
from doctor.facts.hccn.device_addresses import VnicAddresses
from doctor.facts.hccn.pings import HccsPings
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuChips, card_and_chip

ADVISORY = ("chips",)
CAUSES = {
    "vnic-link-down": ("npu",),
}


@check(severity=ERROR, area="links", follows_from=CAUSES, advisory=ADVISORY)
def hccs_unreachable(
    pings: PerHost[HccsPings],
    vnics: PerHost[VnicAddresses],
    pods: PerHost[SuperPodId],
    chips: PerHost[NpuChips] | None,
) -> Iterator[Finding]:
    """Every A3 NPU reaches the same NPU of other hosts in its super pod over HCCS, on the right plane.

    ## Why it matters
    Inside a super pod gradients move over HCCS. An NPU that its peers cannot reach there stalls the first collective
    until a timeout of minutes, and the message names the ranks that waited, not the cause.

    ## What to do
    On {owner}: `hccn_tool -i {npu} -vnic -g` and `npu-smi info -t spod-info -i {card} -c {chip}`, then the super pod's
    switches. Try again from {first}, as root: `hccn_tool -i {npu} -hccs_ping -g address {address}`.

    ## Source
    Each NPU pings the NPU of its own number on up to four other hosts of its super pod with `hccn_tool -hccs_ping`,
    whose exit status is no evidence (driver source): packets received and the L1 plane check decide. Addresses are
    those of the virtual ports; the same one may exist in another super pod.
    Where no part that hangs together holds more than half of the hosts, look at the switches between the parts.
    """
    ends = {
        (pods[host].id, str(vnic.address.ip)): (host, npu)
        for host, host_vnics in vnics.items()
        if host in pods
        for npu, vnic in host_vnics.by_npu.items()
    }
    pairs = [
        ((host, ping.npu), ends[pods[host].id, ping.address], ping.received == ping.sent and not ping.planes)
        for host, host_pings in pings.items()
        for ping in host_pings.pings
        if host in pods and (pods[host].id, ping.address) in ends
        if host in vnics and ping.npu in vnics[host].by_npu
    ]
    yield from loss_findings(
        pairs,
        "NPU {npu} ({address}) lost HCCS packets to or from {lost} of {tried} peers: {peers}",
        "NPU {npu}: HCCS packets are lost between {between}; none of them holds more than half of {count} hosts",
        lambda host, npu: {
            "address": vnics[host].by_npu[npu].address.ip,
            **card_and_chip(chips.get(host) if chips else None, npu),
        },
    )
