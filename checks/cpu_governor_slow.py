from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.host_settings import HostSettings, is_training_server
from doctor.facts.limits import RdmaAdapters
from doctor.facts.npu import NpuInventory


@check(severity=WARNING, area="kernel")
def cpu_governor_slow(
    settings: HostSettings,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    inventory: GpuInventory | None,
    adapters: RdmaAdapters | None,
) -> Iterator[Finding]:
    """On hosts with accelerators the CPU frequency governor is performance.

    ## Why it matters
    A processor that first has to raise its frequency starts kernels and answers the network later. The ranks of that
    host are stragglers, and the speed varies from step to step.

    ## What to do
    On {host}: `cpupower frequency-set -g performance`, or `tuned-adm profile throughput-performance`.

    ## In a container
    The processors are those of the machine on which the container of {host} runs. There, as root: `cpupower
    frequency-set -g performance`, or `tuned-adm profile throughput-performance`.

    ## Source
    Linux, CPU Performance Scaling; NVIDIA, DGX Best Practices and the tuning guides of AMD and Mellanox: governor
    performance. The governors are those of every tenth CPU. These guides are for
    servers: laptops, virtual machines that set no frequency, desktops with up to three GPUs that are no product for
    data centres, and hosts without accelerator and RDMA adapter are left out.
    """
    if not is_training_server(npus, gpus, inventory, adapters) or settings.is_portable:
        raise Skip("no server with accelerators or RDMA adapters")
    if not settings.governors:
        raise Skip("the kernel sets no frequency, as in a virtual machine")
    slow = [governor for governor in settings.governors if governor != "performance"]
    if slow:
        yield Finding(
            "the CPU frequency governor is {observed} ({driver}); expected {expected}",
            observed=slow,
            driver=settings.frequency_driver or "driver not known",
            setting="the CPU frequency governor",
            expected="performance",
        )
