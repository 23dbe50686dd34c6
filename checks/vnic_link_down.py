from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.hccn import VnicAddresses
from doctor.facts.npu import NpuProduct


@check(severity=ERROR, area="links")
def vnic_link_down(vnics: VnicAddresses, product: NpuProduct) -> Iterator[Finding]:
    """The virtual port of every A3 NPU, which carries the HCCS traffic, is up.

    ## Why it matters
    Inside a super pod NPUs of different hosts reach each other at the HCCS addresses of their virtual ports. One that
    is down cuts the NPU off, also when its optical port looks healthy.

    ## What to do
    `hccn_tool -i {npu} -vnic -g` and `npu-smi info -t hccs -i CARD -c CHIP` on {host}; a restart of the NPU or the host
    brings the port up again, else the board is faulty.

    ## Source
    The vendor's pre-check asks for `vnic link status: UP` on every NPU of a super pod.
    """
    if product.family != "A3":
        raise Skip("only A3 has HCCS between hosts")
    npus = [npu for npu, vnic in vnics.by_npu.items() if vnic.link == "DOWN"]
    if npus:
        yield Finding("virtual port down on NPU {npus}; expected it up", npu=npus[0], npus=npus)
