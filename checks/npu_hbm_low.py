from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu_table import NpuTable

RATED = {
    "910A": 32768,
    "910B": 32768,
    "910ProA": 32768,
    "910ProB": 32768,
    "910B1": 65536,
    "910B2": 65536,
    "910B3": 65536,
    "910B4": 32768,
    "Ascend910": 65536,
}
"""MB, by the name that npu-smi shows."""


@check(severity=WARNING, area="devices")
def npu_hbm_low(table: NpuTable) -> Iterator[Finding]:
    """Every NPU has the memory that its type is rated for.

    ## Why it matters
    Memory pages that failed are taken out of use. With many pages lost, a job that fits elsewhere runs out of memory on
    this one rank.

    ## What to do
    Check the isolated pages: `npu-smi info -t ecc -i {card}` on {host}; have the card replaced. For the vendor:
    `npu-smi info -t board -i {card}` and `dmidecode -s system-serial-number`.

    ## Source
    The fault diagnosis of mind-cluster calls less than 95 % of the rated capacity abnormal, and holds the rated values.
    """
    silent = []
    for state in table.npus:
        rated = RATED.get(state.name)
        if rated and state.hbm_total is None:
            silent.append(state.device)
        elif rated and state.hbm_total is not None and state.hbm_total < 0.95 * rated:
            yield Finding(
                "NPU {npu} has {observed} of memory; expected at least 95 % of {expected}",
                npu=state.device,
                card=state.npu,
                name=state.name,
                observed=f"{state.hbm_total} MB",
                expected=f"{rated} MB",
            )
    if silent:
        raise Unreadable(filled("npu-smi info does not state the HBM of NPU {0}", ", ".join(map(str, silent))))
