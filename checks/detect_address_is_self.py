from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, detect_values

ADVISORY = ("gateways",)


@check(severity=WARNING, area="addresses", advisory=ADVISORY)
def detect_address_is_self(
    detect: DetectAddresses, addresses: DeviceAddresses, gateways: DeviceGateways | None
) -> Iterator[Finding]:
    """No NPU has its own address as its detect address.

    ## Why it matters
    An NPU reaches itself without a cable: its net health is `Success` also when the network fails.

    ## What to do
    On {host}: `hccn_tool -i {npu} -netdetect -s address {gateway}`. {source}

    ## Source
    The vendor's configuration guide: the detect address is that of the peer's port or of the gateway.
    """
    if not detect.by_npu:
        raise Skip("no NPU has a detect address")
    for npu, watched in detect.by_npu.items():
        interface = addresses.by_npu.get(npu)
        if interface is not None and interface.ip == watched:
            yield Finding(
                "the detect address of NPU {npu} is its own address, {observed}; expected another",
                npu=npu,
                observed=watched,
                settings=["netdetect"],
                **detect_values(npu, addresses, gateways),
            )
