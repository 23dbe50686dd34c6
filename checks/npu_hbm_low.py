import math
from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.analysis.majority import NEARLY, below_usual
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
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
    """Every NPU has the memory that its type is rated for, or that the others of its type have.

    ## Why it matters
    Memory pages that failed are taken out of use. With many pages lost, a job that fits elsewhere runs out of memory on
    this one rank.

    ## What to do
    Check the isolated pages: `npu-smi info -t ecc -i {card}` on {host}; have the card replaced. For the vendor:
    `npu-smi info -t board -i {card}` and `cat /sys/class/dmi/id/product_serial`.

    ## Source
    The fault diagnosis of mind-cluster calls less than 95 % of the rated capacity abnormal, and holds the rated values.
    Of another type, less than 95 % of what most of its NPUs on the host have.
    """
    silent = []
    stated = {place: float(state.hbm_total) for place, state in enumerate(table.npus) if state.hbm_total is not None}
    of_type = lists_by_key((table.npus[place].name, (("", place), total)) for place, total in stated.items())
    lesser = (finding.values for alike in of_type.values() for finding in below_usual(dict(alike), "", "place"))
    usual = {values["place"]: values["expected"] for values in lesser}
    for place, state in enumerate(table.npus):
        rated = RATED.get(state.name)
        if rated and state.hbm_total is None:
            silent.append(state.device)
        elif stated.get(place, math.inf) < NEARLY * (expected := rated or usual.get(place, 0)):
            yield Finding(
                "NPU {npu} has {observed} of memory; expected at least 95 % of {expected}",
                npu=state.device,
                card=state.npu,
                name=state.name,
                observed=f"{state.hbm_total} MB",
                expected=f"{expected} MB",
            )
    if silent:
        raise Unreadable(filled("npu-smi info does not state the HBM of NPU {0}", ", ".join(map(str, silent))))
