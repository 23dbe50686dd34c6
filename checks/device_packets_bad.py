from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.hccn.traffic import PortCounters


@check(severity=WARNING, area="links")
def device_packets_bad(counters: PortCounters) -> Iterator[Finding]:
    """No NPU's network port counts errors, nor pauses while it is idle.

    ## Why it matters
    Damaged packets are sent again: RoCE slows down long before a link goes down, and ends with error CQEs (EI0013).
    Pauses on a port without a job come from a neighbour that cannot take its traffic.

    ## What to do
    `hccn_tool -i {npu} -stat -g` on {host}, twice. Errors that grow: clean or replace the fibre or module, and check
    the switch port. Pauses that grow: find the slow receiver on the switch.

    ## Source
    The growth between two reads of the counters of `hccn_tool -stat -g`: the fault diagnosis of mind-cluster compares
    them in the same way (github.com/Ascend/mind-cluster, ascend-faultdiag).
    """
    for npu, growth in counters.by_npu.items():
        grown = {**growth.errors, **growth.pauses}
        if grown:
            yield Finding(
                "the network port of NPU {npu} counted {observed} between two reads; expected none",
                npu=npu,
                observed=grown,
            )
