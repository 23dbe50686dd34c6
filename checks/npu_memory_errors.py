from collections.abc import Iterator
from statistics import median

from doctor import WARNING, Finding, check
from doctor.facts.npu import NpuMemoryErrors

MANY_PAGES, FACTOR = 16, 10


@check(severity=WARNING, area="devices")
def npu_memory_errors(memory: NpuMemoryErrors) -> Iterator[Finding]:
    """No NPU has uncorrected memory errors, or many more pages out of use than its neighbours.

    ## Why it matters
    A double-bit error ends the job that touches the page. The page is taken out of use at the next reset; where one
    has failed, others tend to follow.

    ## What to do
    Restart {host} while no job runs, which takes the pages out of use: `reboot`. Have the card replaced when the count
    grows again: `npu-smi info -t ecc -i {card}` shows it. For the vendor: `npu-smi info -t board -i {card}` and
    `cat /sys/class/dmi/id/product_serial`.

    ## Source
    `HBM Double Bit Error Count` and `HBM Double Bit Next-Isolated Pages Count` of `npu-smi info -t ecc` (documentation
    of npu-smi, and npu_info_print.c of github.com/hicann/driver). For pages that are already out of use the vendor
    names no limit: a finding is a card with 16 or more, and ten times as many as the middle of the host's cards.
    """
    usual = median(errors.isolated for errors in memory.by_card.values()) if memory.by_card else 0
    for card, errors in memory.by_card.items():
        if errors.double_bit:
            yield Finding(
                "NPU card {card} has {observed} uncorrected memory errors; expected {expected}",
                card=card,
                isolated_pages=errors.isolated,
                observed=errors.double_bit,
                expected=0,
            )
        elif errors.pending:
            yield Finding(
                "NPU card {card} has {observed} bad memory pages in use until the next reset; expected {expected}",
                card=card,
                isolated_pages=errors.isolated,
                observed=errors.pending,
                expected=0,
            )
        elif errors.isolated >= MANY_PAGES and errors.isolated > FACTOR * usual and len(memory.by_card) > 2:
            yield Finding(
                "NPU card {card} has taken {observed} bad memory pages out of use; the median of the host's cards is "
                "{expected}",
                card=card,
                isolated_pages=errors.isolated,
                observed=errors.isolated,
                expected=f"{usual:g}",
            )
