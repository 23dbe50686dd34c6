from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import required_hccl_ports
from doctor.job import LaunchConfig
from doctor.job.launch_config import HCCL_PORTS


@check(severity=ERROR, area="ranks")
def hccl_ports_beyond_range(npus: PerHost[NpuInventory], launch: LaunchConfig) -> Iterator[Finding]:
    """All 32 host ports that HCCL takes from HCCL_IF_BASE_PORT exist.

    ## Why it matters
    The highest port number is 65535. HCCL accepts a base up to 65520, which leaves 16 ports: a host with more ranks, or
    a second group, finds no free port (EI0019).

    ## What to do
    `export HCCL_IF_BASE_PORT=60000` on all ranks, or another base of at most 65504, and reserve the 32 ports from it.

    ## Source
    HCCL documentation, HCCL_IF_BASE_PORT: range 1024 to 65520, 32 ports from the base.
    """
    base = launch.hccl_base_port
    last = base + HCCL_PORTS - 1
    if last > 65535 and required_hccl_ports(launch)[:1] == [base]:
        yield Finding(
            "HCCL_IF_BASE_PORT is {base}: {missing} of its {ports} ports would be above 65535",
            base=base,
            missing=last - 65535,
            ports=HCCL_PORTS,
            observed=base,
            expected=filled("at most {0}", 65536 - HCCL_PORTS),
        )
