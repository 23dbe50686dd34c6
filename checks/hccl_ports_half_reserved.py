from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel import SysctlFiles
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import ReservedPorts, ports_reserved_at_boot, required_hccl_ports
from doctor.job import LaunchConfig


@check(severity=WARNING, area="kernel")
def hccl_ports_half_reserved(
    ports: ReservedPorts, npus: NpuInventory, files: SysctlFiles | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """Where HCCL's first 16 host ports are reserved, so are the other 16.

    ## Why it matters
    Older guides say 60000-60015. Current HCCL takes 32 ports from its base, and the upper half may be in use when the
    job starts (EI0019, "have already been bound").

    ## What to do
    On {host}, existing reservations included: `sysctl -w net.ipv4.ip_local_reserved_ports={merged}`, and permanently:
    `echo "net.ipv4.ip_local_reserved_ports = {merged}" >> /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    Start the container of {host} again with `docker run --sysctl net.ipv4.ip_local_reserved_ports={merged}`. In
    Kubernetes, Volcano and MindCluster: the same name and value under `securityContext.sysctls` of the pod. With the
    host's network (`--network host`, `hostNetwork: true`) the value is that of the container's host, and is set there.

    ## Source
    HCCL documentation, HCCL_IF_BASE_PORT and EI0019 (60000-60031), and `topoinfo_detect.cc` in HCOMM. The page on
    operator retry, and older guides, still name 16 ports: with such a CANN nothing is wrong yet.
    """
    hccl_ports = required_hccl_ports(launch)
    lost = [port for port in hccl_ports if ports.kernel_may_assign(port)]
    if lost and lost[0] not in hccl_ports[:16]:
        yield Finding(
            "ports {ports} may be assigned to any outgoing connection (local ports {range}); {observed}, "
            "expected {expected}",
            **ports.finding_values(lost, hccl_ports, [launch.master_port], at_boot=ports_reserved_at_boot(files)),
        )
