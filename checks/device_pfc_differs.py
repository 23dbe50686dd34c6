from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.hccn.fleet import differing_npus, flatten_by_npu
from doctor.facts.hccn.traffic import DevicePfc


@check(severity=WARNING, area="links")
def device_pfc_differs(settings: PerHost[DevicePfc]) -> Iterator[Finding]:
    """All NPUs' network ports are lossless (PFC) for the same priorities.

    ## Why it matters
    HCCL sends with service level 4. A port whose priority 4 is not lossless drops packets under load, where the others
    pause: RDMA then times out on this NPU alone (EI0013).

    ## What to do
    `hccn_tool -i {npu} -pfc -s bitmap {expected_bits}` on {host}, and the same priorities on the switch.

    ## Source
    `hccn_tool -pfc -g` (tool_cmd.c of github.com/hicann/driver); HCCL_RDMA_SL is 4 by default (HCCL documentation).
    """
    values = flatten_by_npu(settings)
    common = max(sorted(set(values.values())), key=list(values.values()).count, default="")
    yield from differing_npus(
        values,
        "priorities {observed} are lossless on NPU {npus}; {count} of {total} NPUs have {expected}",
        expected_bits=",".join(common),
    )
