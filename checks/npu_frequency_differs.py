from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.hccn.fleet import differing_npus
from doctor.facts.npu import NpuProduct
from doctor.facts.npu_counters import NpuFrequencies


@check(severity=WARNING, area="devices")
def npu_frequency_differs(
    frequencies: PerHost[NpuFrequencies], products: PerHost[NpuProduct] | None
) -> Iterator[Finding]:
    """All NPUs of one product have the same rated clock.

    ## Why it matters
    A synchronous step takes as long as on its slowest NPU: one card with a lower clock slows the whole job.

    ## What to do
    `npu-smi info -t common -i {npu}` on {host}. A card of another type is replaced; a lower clock of the same type is
    reported to the vendor.

    ## Source
    `Aicore Freq(MHZ)` of `npu-smi info -t common`, compared with what most cards of the fleet have. The running clock,
    curFreq, is lower on an idle card and is not compared.
    """
    families = {host: product.family for host, product in (products or {}).items()}
    for family in sorted({families.get(host, "") for host in frequencies}):
        values = {
            (host, card): clock
            for host, fact in frequencies.items()
            if families.get(host, "") == family
            for card, clock in fact.by_card.items()
        }
        if len(values) > 1:
            yield from differing_npus(
                values, "rated clock of {observed} MHz on NPU card {npus}; {count} of {total} cards have {expected} MHz"
            )
