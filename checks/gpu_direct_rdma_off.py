from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.rdma import RdmaPorts

ADVISORY = ("inventory",)


@check(severity=WARNING, area="devices", advisory=ADVISORY)
def gpu_direct_rdma_off(cards: GpuCards, adapters: RdmaPorts, inventory: GpuInventory | None) -> Iterator[Finding]:
    """The driver gives network adapters the memory of the GPUs, through nvidia-peermem or dma-buf.

    ## Why it matters
    Without it every message goes through the host's memory: NCCL reaches a fraction of the network's bandwidth, and
    loads the processors.

    ## What to do
    On {host}: `modprobe nvidia-peermem && echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf`; or install
    the open kernel modules of the driver, which need no such module (dma-buf).

    ## In a container
    The module is loaded on the machine on which the container of {host} runs. There, as root: `modprobe nvidia-peermem
    && echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf`; or install the open kernel modules of the driver,
    which need no such module (dma-buf).

    ## Source
    NVIDIA, GPUDirect RDMA: nvidia-peermem, or dma-buf with the open kernel modules and Linux 5.12; NCCL User Guide,
    NCCL_NET_GDR_LEVEL and NCCL_DMABUF_ENABLE. Adapters of other vendors than NVIDIA are left out, and GeForce GPUs:
    GPUDirect RDMA is for data centre and professional GPUs alone.
    """
    if not any(device.type.startswith("MT") for device in adapters.devices):
        raise Skip("no RDMA adapter of NVIDIA")
    if not cards.pci or not cards.driver or cards.peermem is None:
        raise Skip("no GPU with a loaded driver")
    if inventory and inventory.gpus and all("GeForce" in gpu.name for gpu in inventory.gpus):
        raise Skip("GeForce GPUs cannot do it")
    if not cards.peermem and not cards.is_open_driver:
        yield Finding(
            "nvidia-peermem is not loaded, and the driver does not export memory as dma-buf",
            observed="neither",
            expected="one of both",
        )
