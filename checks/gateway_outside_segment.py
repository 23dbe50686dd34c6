from collections import Counter
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.hccn.device_addresses import DeviceAddresses, DeviceGateways
from doctor.facts.npu import NpuProduct

CAUSES = {
    "device-ip-families-mixed": ("npu",),
    "device-ip-refused": ("npu",),
    "device-ip-segment-wrong": ("npu",),
    "device-netmask-differs": ("npu",),
}


@check(severity=WARNING, area="addresses", follows_from=CAUSES)
def gateway_outside_segment(
    gateways: DeviceGateways, addresses: DeviceAddresses, product: NpuProduct
) -> Iterator[Finding]:
    """An NPU's gateway lies in the NPU's own segment.

    ## Why it matters
    A gateway outside the segment cannot be reached: all traffic that leaves the segment is lost. Inside the segment
    everything works, so the fault shows only with peers in other segments, and in the net health if the gateway is the
    detect address.

    ## What to do
    On {host}: `hccn_tool -i {npu} -gateway -s gateway {gateway}`, a gateway inside {segment}.

    ## Source
    hccn_tool refuses such a gateway when it is set (driver source), yet not one from DHCP, nor an address that is
    changed afterwards. On A1 a host has one gateway, which every NPU shows: there any NPU's segment will do.
    """
    if not gateways.by_npu or not addresses.by_npu:
        raise Skip("no NPU has a gateway and a device IP")
    segments = {npu: interface.network for npu, interface in addresses.by_npu.items()}
    for npu, gateway in gateways.by_npu.items():
        near = segments.values() if product.family == "A1" else [segments[npu]] if npu in segments else []
        if near and not any(gateway in segment for segment in near):
            nearest_segment = segments.get(npu, next(iter(near)))
            template = "NPU {npu} has the gateway {observed}, outside its segment {segment}; expected one inside"
            inside = Counter(str(candidate) for candidate in gateways.by_npu.values() if candidate in nearest_segment)
            likely = inside.most_common(1)[0][0] if inside else ""
            yield Finding(
                template, npu=npu, observed=gateway, segment=nearest_segment, gateway=likely, settings=["gateway"]
            )
