from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.npu_counters import NpuPcieErrors


@check(severity=WARNING, area="devices")
def npu_pcie_errors(errors: PerHost[NpuPcieErrors]) -> Iterator[Finding]:
    """No NPU card has counted errors on its PCIe link.

    ## Why it matters
    Packets that are sent again slow the copies between host and NPU; a link that gets worse ends with a lost card.

    ## What to do
    `npu-smi info -t pcie-err -i {card}` on {host}, twice: counts that still grow mean a loose card or riser. Reseat
    it; `npu-smi set -t clear-pcie-err -i {card} -c 0` sets the counts back. For the vendor: `npu-smi info -t board
    -i {card}` and `cat /sys/class/dmi/id/product_serial`.

    ## Source
    The error counts of `npu-smi info -t pcie-err` (npu_info_print.c of github.com/hicann/driver); its Retry Count is
    not an error. Where most cards of the fleet have counted some, the link's training did, and none is named.
    """
    counts = {(host, card): sum(c.values()) for host, fact in errors.items() for card, c in fact.by_card.items()}
    if 2 * sum(count > 0 for count in counts.values()) > len(counts) > 1:
        return
    for (host, card), count in counts.items():
        if count:
            yield Finding(
                "NPU card {card} has counted {observed} PCIe errors; expected {expected}",
                hosts=[host],
                card=card,
                counters={name: number for name, number in errors[host].by_card[card].items() if number},
                observed=count,
                expected=0,
            )
