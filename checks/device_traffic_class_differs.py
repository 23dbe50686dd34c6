from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.hccn.fleet import differing_npus, flatten_by_npu
from doctor.facts.hccn.traffic import DeviceTrafficClasses


@check(severity=WARNING, area="links")
def device_traffic_class_differs(settings: PerHost[DeviceTrafficClasses]) -> Iterator[Finding]:
    """All NPUs' network ports give each DSCP the same traffic class.

    ## Why it matters
    HCCL marks its packets with DSCP 33. Where that leads to another class than elsewhere, its packets wait in a queue
    that is not lossless, and RDMA times out on this NPU alone (EI0013).

    ## What to do
    On {host}: `for r in $(echo {expected}); do a=${r%:*}; for d in $(seq ${a%-*} ${a#*-}); do hccn_tool -i {npu}
    -dscp_to_tc -s dscp $d tc ${r#*:}; done; done`; `hccn_tool -i {npu} -dscp_to_tc -g` shows the classes of now. Use
    the same classes on the switch.

    ## Source
    `hccn_tool -dscp_to_tc -g` (tool_ops.c of github.com/hicann/driver); HCCL_RDMA_TC is 132 by default, which is DSCP
    33 (HCCL documentation).
    """
    yield from differing_npus(
        flatten_by_npu(settings),
        "NPU {npus} maps DSCP to class {observed}; {count} of {total} NPUs map {expected}",
    )
