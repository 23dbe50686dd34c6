from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.facts.kernel import SysctlFiles
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import ReservedPorts, ports_reserved_at_boot, required_hccl_ports
from doctor.job import LaunchConfig


@check(severity=WARNING, area="kernel")
def master_port_unreserved(
    ports: ReservedPorts,
    names: HostNames,
    addresses: HostAddresses,
    npus: NpuInventory | None,
    files: SysctlFiles | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The kernel cannot assign MASTER_PORT to another program on the host of MASTER_ADDR.

    ## Why it matters
    A port from the range of outgoing connections may be held by any program when the job starts: "Address already in
    use", now and then, and not reproducibly.

    ## What to do
    Choose a port outside of {range} for the job, on all hosts ({setting}), or reserve this one on
    {host}: `sysctl -w net.ipv4.ip_local_reserved_ports={merged}`, and permanently: `echo
    "net.ipv4.ip_local_reserved_ports = {merged}" >> /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    Choose a port outside of {range} for the job, on all hosts ({setting}), or start the container of
    {host} again with `docker run --sysctl net.ipv4.ip_local_reserved_ports={merged}`. In Kubernetes, Volcano and
    MindCluster: the same name and value under `securityContext.sysctls` of the pod. With the host's network (`--network
    host`, `hostNetwork: true`) the value is that of the container's host, and is set there.

    ## Source
    Kernel documentation, ip-sysctl: ip_local_port_range, ip_local_reserved_ports. The defaults of PyTorch (29500) and
    MindSpore (8118) lie outside the kernel's default range, 32768 to 60999.
    """
    if not launch.master_addr:
        raise Skip("MASTER_ADDR is not given")
    if not names.is_master(launch.master_addr, addresses.addresses):
        raise Skip(filled("not the host of MASTER_ADDR, {0}", launch.master_addr))
    if ports.kernel_may_assign(launch.master_port):
        hccl = required_hccl_ports(launch) if npus and launch.hccl_ports else []
        yield Finding(
            "port {ports} may be assigned to any outgoing connection (local ports {range}); {observed}, "
            "expected {expected}",
            setting=launch.port_option(ports.port_outside),
            **ports.finding_values(
                [launch.master_port], [launch.master_port], hccl, at_boot=ports_reserved_at_boot(files)
            ),
        )
