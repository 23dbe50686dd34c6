from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuCards
from doctor.facts.memory import accelerator_count, host_rank_count
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import LOCAL_PORTS, LOCAL_PORTS_OF_LAUNCHER, LOCAL_PORTS_PER_RANK, ReservedPorts, format_ports
from doctor.job import LaunchConfig

DEVICES = ("npus", "gpus")


@check(severity=ERROR, area="kernel", advisory=DEVICES)
def local_ports_few(
    ports: ReservedPorts, npus: NpuInventory | None, gpus: GpuCards | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """The kernel has enough local ports to assign to the sockets of a job.

    ## Why it matters
    Ranks connect from, and Gloo, NCCL and HCCL listen at, ports that the kernel chooses from one range. When all are
    taken, connect and bind fail with "Cannot assign requested address" or "Address already in use". Only this host
    fails: the more groups the job makes, the earlier.

    ## What to do
    On {host}: `sysctl -w net.ipv4.ip_local_port_range="{wider}" && echo "net.ipv4.ip_local_port_range = {wider}" >>
    /etc/sysctl.d/99-zz-cluster.conf`. Where net.ipv4.ip_local_reserved_ports holds ports that no service needs, take
    them out, there and in the file of /etc/sysctl.d that sets it.

    ## In a container
    Start the container of {host} again with `docker run --sysctl net.ipv4.ip_local_port_range="{wider}"`, without
    ports in `net.ipv4.ip_local_reserved_ports` that no service needs. In Kubernetes, Volcano and MindCluster: the same
    names and values under `securityContext.sysctls` of the pod. With the host's network (`--network host`,
    `hostNetwork: true`) the values are those of the container's host, and are set there.

    ## Source
    Kernel documentation, ip-sysctl: ip_local_port_range (32768 to 60999 by default), ip_local_reserved_ports. Gloo,
    transport/tcp: a device listens at a port of its own, and torch makes one for each group; connections to different
    places share a port. Measured with PyTorch 2.13: a rank of Gloo with two groups lives with two ports, and torchrun
    needs two more on each host. Fewer are an error, of one rank where the number of ranks is not known, and below 1024
    in all it is a warning. Ports that other programs hold now are not counted.
    """
    ranks = host_rank_count(launch, accelerator_count(npus, gpus)) or 1
    if ports.local_ports < LOCAL_PORTS:
        yield Finding(
            "the kernel has {observed} local ports to assign ({range}, reserved: {reserved}); expected at least "
            "{expected}",
            observed=ports.local_ports,
            expected=LOCAL_PORTS,
            range=format_ports([ports.ephemeral]),
            reserved=format_ports(ports.reserved),
            wider=ports.wider_range,
            ranks=ranks,
        ).as_warning(ports.local_ports >= LOCAL_PORTS_PER_RANK * ranks + LOCAL_PORTS_OF_LAUNCHER)
