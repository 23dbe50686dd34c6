from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.container import JobContainer
from doctor.facts.kernel import SysctlFiles
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import ReservedPorts, ports_reserved_at_boot, required_hccl_ports
from doctor.job import LaunchConfig


@check(severity=ERROR, area="kernel")
def hccl_ports_unreserved(
    ports: ReservedPorts,
    npus: NpuInventory,
    files: SysctlFiles | None,
    view: JobContainer | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The kernel cannot assign HCCL's first 16 host ports to other programs.

    ## Why it matters
    HCCL listens on fixed host ports, 60000 and up unless HCCL_IF_BASE_PORT is set. They lie in the range that the
    kernel assigns to outgoing connections, so any program may hold one of them when the job starts. Then, now and then,
    the start fails: EI0019, "have already been bound".

    ## What to do
    On {host}, existing reservations included: `sysctl -w net.ipv4.ip_local_reserved_ports={merged}`, and permanently:
    `echo "net.ipv4.ip_local_reserved_ports = {merged}" >> /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    Start the container of {host} again with `docker run --sysctl net.ipv4.ip_local_reserved_ports={merged}`. In
    Kubernetes, Volcano and MindCluster: the same name and value under `securityContext.sysctls` of the pod. With the
    host's network (`--network host`, `hostNetwork: true`) the value is that of the container's host, and is set there.

    ## Source
    HCCL documentation, HCCL_IF_BASE_PORT, HCCL_HOST_SOCKET_PORT_RANGE and EI0019: reserve the ports, 32 from the base.
    Kernel documentation, ip-sysctl: a write replaces the whole list; ports outside ip_local_port_range are never handed
    out, so they need no reservation. hccl-ports-half-reserved reports that 17 to 32 are missing. In a container with a
    network of its own, where only the job makes connections, it is a warning.
    """
    hccl_ports = required_hccl_ports(launch)
    lost = [port for port in hccl_ports[:16] if ports.kernel_may_assign(port)]
    if lost:
        yield Finding(
            "ports {ports} may be assigned to any outgoing connection (local ports {range}); {observed}, "
            "expected {expected}",
            **ports.finding_values(lost, hccl_ports, [launch.master_port], at_boot=ports_reserved_at_boot(files)),
        ).as_warning(view is not None and view.has_own_network)
