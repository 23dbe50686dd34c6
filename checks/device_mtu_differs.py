from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.hccn.fleet import differing_npus, flatten_by_npu
from doctor.facts.hccn.link_state import DeviceMtu


@check(severity=WARNING, area="links")
def device_mtu_differs(mtus: PerHost[DeviceMtu]) -> Iterator[Finding]:
    """All NPUs' network ports have the same MTU.

    ## Why it matters
    Small packets pass, large ones from the wider end are dropped. Links come up, pings answer, and the first large
    transfer stalls until its retries are used up (EI0013, error CQE), or is very slow.

    ## What to do
    On {host}: `hccn_tool -i {npu} -mtu -s size {expected}`. Make sure that the switch passes packets of that size.

    ## Source
    How Ethernet works; read with `hccn_tool -mtu -g`, and compared with what most NPUs of the fleet have.
    """
    yield from differing_npus(
        flatten_by_npu(mtus), "MTU of {observed} bytes on NPU {npus}; {count} of {total} NPUs have {expected} bytes"
    )
