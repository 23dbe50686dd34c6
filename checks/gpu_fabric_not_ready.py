from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=ERROR, area="links")
def gpu_fabric_not_ready(inventory: GpuInventory) -> Iterator[Finding]:
    """Every GPU behind NVSwitches is registered with the NVLink fabric.

    ## Why it matters
    Until a GPU is registered, CUDA cannot be initialised: `cudaErrorSystemNotReady` (802, system not yet initialized),
    although nvidia-smi lists all GPUs.

    ## What to do
    On {host}: `systemctl restart nvidia-fabricmanager`, then `journalctl -u nvidia-fabricmanager` and `nvidia-smi -q |
    grep -A 2 Fabric`. From B200 on the fabric manager needs NVLSM (package nvlsm). If it stays, reset all GPUs:
    `nvidia-smi -r`.

    ## In a container
    The service is that of the machine on which the container of {host} runs. There, as root: `systemctl restart
    nvidia-fabricmanager`, then `journalctl -u nvidia-fabricmanager`. If it stays, reset all GPUs there: `nvidia-smi
    -r`.

    ## Source
    `fabric` of `nvidia-smi -q -x`: NVML_GPU_FABRIC_STATE_COMPLETED with the status Success (NVML API). N/A and Not
    Supported mean that there is no such fabric, or that its state is not reported, as for A100.
    """
    for gpu in inventory.gpus:
        is_waiting = gpu.fabric_state in ("In Progress", "Not Started")
        is_failed = gpu.fabric_state == "Completed" and gpu.fabric_status not in ("", "Success")
        if is_waiting or is_failed:
            yield Finding(
                "GPU {gpu} is not registered with the NVLink fabric: its state is {observed}; expected {expected}",
                gpu=gpu.index,
                observed=gpu.fabric_state if is_waiting else f"{gpu.fabric_state}, {gpu.fabric_status}",
                expected="Completed, Success",
            )
    inventory.require("fabric")
