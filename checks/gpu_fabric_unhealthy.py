from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory

REDUCED = ("Limited Capacity", "Degraded")


@check(severity=ERROR, area="links")
def gpu_fabric_unhealthy(inventory: GpuInventory) -> Iterator[Finding]:
    """The NVLink fabric reports no fault for any GPU that is registered with it.

    ## Why it matters
    A GPU with an unhealthy route cannot reach all others by NVLink: NCCL ends with a CUDA error, or takes the network
    for it. With a reduced bandwidth (links of the GPU are down) every collective is as slow as that GPU.

    ## What to do
    On {host}: `nvidia-smi -q -i {gpu} | grep -A 12 Fabric`, `nvidia-smi nvlink -s -i {gpu}` and `dmesg | grep -i xid`.
    Drain the host and reset its GPUs (`nvidia-smi -r`), or restart it (`reboot`). On racks with NVLink switches (GB200,
    GB300) look at the log of their fabric manager. Behind "incorrect configuration" it names what is wrong: a
    partition, the GPU's firmware, or its place in the rack.

    ## Source
    `fabric/health` of `nvidia-smi -q -x`, NVML_GPU_FABRIC_HEALTH_SUMMARY and _MASK of NVML (nvml.h): Healthy, Unhealthy
    or Limited Capacity; bandwidth Full or Degraded. kubernetes-sigs/dra-driver-nvidia-gpu issue 626 shows an unhealthy
    GPU whose state is Completed. A reduced bandwidth alone is a warning.
    """
    for gpu in inventory.gpus:
        if gpu.fabric_faults:
            is_reduced = all(fault.endswith(REDUCED) for fault in gpu.fabric_faults)
            yield Finding(
                "the NVLink fabric of GPU {gpu} reports {observed}; expected {expected}",
                gpu=gpu.index,
                observed=list(gpu.fabric_faults),
                expected="summary: Healthy",
            ).as_warning(is_reduced)
    inventory.require("fabric")
