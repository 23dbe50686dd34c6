from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, detect_values

ADVISORY = ("gateways",)


@check(severity=WARNING, area="addresses", advisory=ADVISORY)
def detect_address_unset(
    detect: DetectAddresses, addresses: DeviceAddresses, gateways: DeviceGateways | None
) -> Iterator[Finding]:
    """Every NPU with a device IP has a detect address.

    ## Why it matters
    An NPU pings its detect address all the time and reports the result as its net health. Without one the health stays
    at `Init`, which looks normal also when the cable fails: doctor and the cluster manager do not notice when the NPU
    loses the network.

    ## What to do
    On {host}: `hccn_tool -i {npu} -netdetect -s address {gateway}`. {source}

    ## Source
    HCCL's documents ask for address, netmask and detect address of every NPU; a tool without one shows 0.0.0.0.
    """
    if not addresses.by_npu:
        raise Skip("no NPU has a device IP")
    npus = [npu for npu in detect.unset if npu in addresses.by_npu]
    if npus:
        yield Finding(
            "no detect address on NPU {npus}; expected the gateway or another NPU",
            npu=npus[0],
            npus=npus,
            settings=["netdetect"],
            **detect_values(npus[0], addresses, gateways),
        )
