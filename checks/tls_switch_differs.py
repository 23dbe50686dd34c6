from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.hccn.fleet import differing_npus, flatten_by_npu
from doctor.facts.hccn.traffic import TlsSwitches


@check(severity=ERROR, area="links")
def tls_switch_differs(switches: PerHost[TlsSwitches]) -> Iterator[Finding]:
    """The TLS switch is the same on all NPUs.

    ## Why it matters
    An NPU that encrypts and one that does not cannot connect: HCCL times out while it sets up its links, on newer
    drivers with EI0016, which names the ranks. Boards that were replaced often come with the other setting.

    ## What to do
    Set it to the same value everywhere; on, only where all NPUs have certificates. As root on {host}: `hccn_tool -i
    {npu} -tls -s enable {switch}`.

    ## Source
    HCCL's error code EI0016, "all ranks are consistent"; read with `hccn_tool -tls -g`, which answers root alone.
    """
    states = {host_npu: "on" if on else "off" for host_npu, on in flatten_by_npu(switches).items()}
    template = "TLS is {observed} for NPU {npus}; it is {expected} for {count} of {total} NPUs"
    for finding in differing_npus(states, template):
        yield finding.with_values(switch=int(finding.values.get("expected") == "on"))
