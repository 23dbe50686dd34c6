from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.fleet import flatten_by_npu
from doctor.facts.hccn.neighbour import Neighbours
from doctor.facts.visit import Reachability


@check(severity=ERROR, area="links")
def neighbour_is_direct_fibre(
    neighbours: PerHost[Neighbours], addresses: PerHost[DeviceAddresses] | None, reach: PerHost[Reachability]
) -> Iterator[Finding]:
    """With more than two hosts every NPU is connected to a switch; with two, a fibre joins equal NPU numbers.

    ## Why it matters
    A fibre from NPU to NPU joins only those two: with a third host HCCL finds no path and times out. Two
    hosts may be joined that way, number by number; a crossed fibre then leads to an NPU in another segment.

    ## What to do
    {remedy} `hccn_tool -i {npu} -lldp -g` on {host} then shows the new neighbour.

    ## Source
    The vendor's pre-check reads the system description in `hccn_tool -lldp -g`: `Routing` is a switch, `AscendNPU` a
    direct fibre. HCCL builds no full mesh over direct fibres. Pairs of hosts joined number by number are in use.
    """
    if len(reach) < 2:
        raise Skip("only one host: any neighbour is valid")
    neighbour_by_npu = flatten_by_npu(neighbours)
    if not neighbour_by_npu:
        raise Skip("no NPU receives LLDP from a neighbour")
    owners = {str(interface.ip): host_npu for host_npu, interface in flatten_by_npu(addresses or {}).items()}
    for (host, npu), neighbour in neighbour_by_npu.items():
        if neighbour.kind != "npu":
            continue
        far = owners.get(neighbour.address)
        if len(reach) == 2 and (far is None or (far[0] != host and far[1] == npu)):
            continue
        other = (
            filled("NPU {0} of {1}", far[1], far[0])
            if far
            else filled("another NPU ({0})", neighbour.address or neighbour.mac)
        )
        expected = filled("NPU {0} of the other host", npu) if len(reach) == 2 else "a switch"
        yield Finding(
            "a fibre leads from NPU {npu} directly to {observed}; expected {expected}",
            hosts=[host],
            npu=npu,
            observed=other,
            expected=expected,
            remedy=filled("Move the fibre of NPU {0} of {1} to NPU {0} of the other host.", npu, host)
            if len(reach) == 2
            else filled("Connect NPU {0} of {1} to the switch.", npu, host),
        )
