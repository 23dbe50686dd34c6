from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=ERROR, area="devices")
def gpu_compute_prohibited(inventory: GpuInventory) -> Iterator[Finding]:
    """Programs may compute on every GPU.

    ## Why it matters
    In the compute mode Prohibited no program can use the GPU: CUDA fails with `all CUDA-capable devices are busy or
    unavailable`.

    ## What to do
    On {host}: `nvidia-smi -i {gpu} -c DEFAULT`.

    ## Source
    Manual of nvidia-smi, compute mode; `compute_mode` of `nvidia-smi -q -x`.
    """
    for gpu in inventory.gpus:
        if gpu.compute_mode == "Prohibited":
            yield Finding(
                "GPU {gpu} is in compute mode {observed}; expected {expected}",
                gpu=gpu.index,
                observed=gpu.compute_mode,
                expected="Default or Exclusive_Process",
            )
    inventory.require("compute_mode")
