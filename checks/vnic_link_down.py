from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.hccn.device_addresses import VnicAddresses
from doctor.facts.npu import NpuChips, NpuProduct, card_and_chip

ADVISORY = ("chips",)


@check(severity=ERROR, area="links", advisory=ADVISORY)
def vnic_link_down(vnics: VnicAddresses, product: NpuProduct, chips: NpuChips | None) -> Iterator[Finding]:
    """The virtual port of every A3 NPU, which carries the HCCS traffic, is up.

    ## Why it matters
    Inside a super pod NPUs of different hosts reach each other at the HCCS addresses of their virtual ports. One that
    is down cuts the NPU off, also when its optical port looks healthy.

    ## What to do
    On {host}: stop the jobs, then reset the NPU, `npu-smi set -t reset -i {card} -c {chip} -m 1`, or restart the
    host: `reboot`. If `hccn_tool -i {npu} -vnic -g` still shows DOWN, have the vendor replace the board; `npu-smi
    info -t hccs -i {card} -c {chip}` shows its HCCS lanes. For the vendor: `npu-smi info -t board -i {card}` and
    `cat /sys/class/dmi/id/product_serial`.

    ## Source
    The vendor's pre-check asks for `vnic link status: UP` on every NPU of a super pod.
    """
    if product.family != "A3":
        raise Skip("only A3 has HCCS between hosts")
    npus = [npu for npu, vnic in vnics.by_npu.items() if vnic.link == "DOWN"]
    if npus:
        template = "virtual port down on NPU {npus}; expected it up"
        yield Finding(template, npu=npus[0], npus=npus, **card_and_chip(chips, npus[0]))
