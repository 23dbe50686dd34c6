from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.hccn.link_state import DeviceFec, DeviceLinks
from doctor.facts.npu import NpuProduct

ADVISORY = ("product",)


@check(severity=WARNING, area="links", advisory=ADVISORY)
def fec_off(fec: DeviceFec, links: DeviceLinks | None, product: NpuProduct | None) -> Iterator[Finding]:
    """Every NPU link that is up uses forward error correction.

    ## Why it matters
    At 100 Gb/s and more some bits always flip. Without forward error correction each costs a packet, RoCE sends whole
    windows again, and the job is slow or stops with an error CQE (EI0013).

    ## What to do
    On {host}, for NPU {npu}:
    - A1: `hccn_tool -i {npu} -fec -s encoding rs`, and RS FEC on the switch port.
    - A2 and A3: enable RS FEC on the switch port, whose mode the NPU takes: `hccn_tool -i {npu} -lldp -g` names the
      port.

    ## Source
    `hccn_tool -fec -g`; the vendor's fault diagnosis takes `no FEC mode` for a fault.
    """
    states = links.by_npu if links else {}
    if all(states.get(npu) == "DOWN" for npu in fec.by_npu):
        raise Skip("no link is up")
    npus = [npu for npu, mode in fec.by_npu.items() if mode == "no" and states.get(npu, "UP") == "UP"]
    if npus:
        yield Finding(
            "no forward error correction on the link of NPU {npus}; expected RS",
            npu=npus[0],
            npus=npus,
            case="" if product is None else "A1" if product.family == "A1" else "A2 and A3",
        )
