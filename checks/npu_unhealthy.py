from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.npu_table import NpuTable


@check(severity=ERROR, area="devices")
def npu_unhealthy(table: NpuTable) -> Iterator[Finding]:
    """Every NPU reports that its health is OK.

    ## Why it matters
    Warning, Alarm and Critical stand for faults that the NPU itself has found: memory errors, heat, lost links. A job
    on it ends with a device error or computes wrong numbers.

    ## What to do
    Read the codes on {host}: `npu-smi info -t health -i {card} -c {chip}` and `npu-smi info -t ecc -i {card}`. Leave
    the host out of the job until they are gone; report a code that returns after a restart to the vendor.

    ## Source
    The Health column of `npu-smi info`; its words are OK, Warning, Alarm, Critical and UNKNOWN (public source of
    npu-smi).
    """
    for state in table.npus:
        if state.health != "OK":
            yield Finding(
                "NPU {npu} reports health {observed}; expected {expected}",
                npu=state.device,
                card=state.npu,
                chip=state.chip,
                observed=state.health,
                expected="OK",
            )
