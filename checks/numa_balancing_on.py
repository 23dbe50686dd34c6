from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.host_settings import HostSettings, is_training_server
from doctor.facts.limits import RdmaAdapters
from doctor.facts.npu import NpuInventory


@check(severity=WARNING, area="kernel")
def numa_balancing_on(
    settings: HostSettings,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    inventory: GpuInventory | None,
    adapters: RdmaAdapters | None,
) -> Iterator[Finding]:
    """The kernel does not move memory between NUMA nodes on hosts with accelerators.

    ## Why it matters
    To see where memory is used, the kernel takes pages away and waits for faults. Processes that feed an accelerator
    stop for moments, at random, and every rank waits for them.

    ## What to do
    On {host}: `sysctl -w kernel.numa_balancing=0 && echo "kernel.numa_balancing = 0" >>
    /etc/sysctl.d/99-zz-cluster.conf`.

    ## In a container
    The setting is that of the machine on which the container of {host} runs. There, as root: `sysctl -w
    kernel.numa_balancing=0`, and the same in /etc/sysctl.d.

    ## Source
    Linux, sysctl kernel.numa_balancing; AMD, Instinct system optimization: disable NUMA auto-balancing; RCCL and NCCL
    builds warn of it. Hosts with one NUMA node, without accelerator, and desktops with up to three GPUs are left out.
    """
    if not is_training_server(npus, gpus, inventory, adapters) or settings.numa_nodes < 2:
        raise Skip("one NUMA node, or no server with accelerators or RDMA adapters")
    if settings.numa_balancing is None:
        raise Skip("the kernel has no NUMA balancing")
    if settings.numa_balancing & 1:
        yield Finding(
            "kernel.numa_balancing is {observed}, on a host with {nodes} NUMA nodes; expected {expected}",
            observed=settings.numa_balancing,
            nodes=settings.numa_nodes,
            setting="kernel.numa_balancing",
            expected=0,
        )
