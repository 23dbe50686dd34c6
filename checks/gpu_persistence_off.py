from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=WARNING, area="devices")
def gpu_persistence_off(inventory: GpuInventory) -> Iterator[Finding]:
    """Persistence mode is on for every GPU of a data centre.

    ## Why it matters
    Without it the driver lets go of a GPU when no program uses it. Each start of a program, and each call of
    nvidia-smi, initialises all GPUs again, which takes seconds, and settings such as power limits are lost.

    ## What to do
    On {host}: `nvidia-smi -pm 1` for now; `systemctl enable --now nvidia-persistenced` for every start.

    ## In a container
    The driver is that of the machine on which the container of {host} runs. There, as root: `nvidia-smi -pm 1` for now;
    `systemctl enable --now nvidia-persistenced` for every start.

    ## Source
    NVIDIA, Driver Persistence: the daemon nvidia-persistenced is recommended. Products for desktops, which a display
    server keeps initialised, are left out.
    """
    off = [gpu.index for gpu in inventory.gpus if gpu.persistence is False and gpu.is_data_center]
    if off:
        yield Finding("persistence mode is off for {count} GPUs: {gpus}", count=len(off), gpus=off, expected="on")
    inventory.require("persistence_mode")
