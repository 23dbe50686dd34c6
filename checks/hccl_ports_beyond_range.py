from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import ReservedPorts, format_ports, merge_ranges, required_hccl_ports
from doctor.job import LaunchConfig, PortRange
from doctor.job.launch_config import HCCL_BASE_PORT, HCCL_PORTS

ADVISORY = ("reserved",)


@check(severity=ERROR, area="ranks", advisory=ADVISORY)
def hccl_ports_beyond_range(
    npus: PerHost[NpuInventory], launch: LaunchConfig, reserved: PerHost[ReservedPorts] | None
) -> Iterator[Finding]:
    """All 32 host ports that HCCL takes from HCCL_IF_BASE_PORT exist.

    ## Why it matters
    The highest port number is 65535. HCCL accepts a base up to 65520, which leaves 16 ports: a host with more ranks, or
    a second group, finds no free port (EI0019).

    ## What to do
    Where the job is launched: `export HCCL_IF_BASE_PORT=60000`. On all hosts: `sysctl -w
    net.ipv4.ip_local_reserved_ports={merged}`, and permanently: `echo "net.ipv4.ip_local_reserved_ports = {merged}" >>
    /etc/sysctl.d/99-zz-cluster.conf`. The list has what the hosts have reserved already.

    ## Source
    HCCL documentation, HCCL_IF_BASE_PORT: range 1024 to 65520, 32 ports from the base.
    """
    base = launch.hccl_base_port
    last = base + HCCL_PORTS - 1
    if last > 65535 and required_hccl_ports(launch)[:1] == [base]:
        lists = {ports.reserved for ports in (reserved or {}).values()}
        # Where they differ, no host's list may become that of all.
        kept = (
            [*next(iter(lists)), PortRange(HCCL_BASE_PORT, HCCL_BASE_PORT + HCCL_PORTS - 1)] if len(lists) == 1 else []
        )
        yield Finding(
            "HCCL_IF_BASE_PORT is {base}: {missing} of its {ports} ports would be above 65535",
            base=base,
            missing=last - 65535,
            ports=HCCL_PORTS,
            merged=format_ports(merge_ranges(kept)) if kept else None,
            observed=base,
            expected=filled("at most {0}", 65536 - HCCL_PORTS),
        )
