from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import below_usual, differing
from doctor.engine.grouping import lists_by_key
from doctor.facts.gpu import GpuInventory


@check(severity=WARNING, area="devices")
def gpu_product_mixed(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """All hosts have GPUs of one product, with as much memory.

    ## Why it matters
    The faster GPUs wait for the slower ones in every step, the smallest memory decides what fits, and kernels may
    choose different algorithms, so that results differ.

    ## What to do
    `nvidia-smi --query-gpu=index,name,memory.total --format=csv` on {host} shows its GPUs. Leave the host out of the
    job: in Slurm `sbatch --exclude={host}` with the job's script, else delete its line in the hostfile. Or start a job
    of its own for each product.

    ## Source
    `product_name` and `fb_memory_usage` of `nvidia-smi -q -x`; the majority is the norm. Memory is compared among GPUs
    of one product with the same mode of ECC, and 5 % less is as much: the driver reserves a part of it. The verdict can
    be wrong where a maker sells two sizes under one name, as of the GeForce RTX 3060.
    """
    products = {
        host: ", ".join(sorted({gpu.name for gpu in host_gpus.gpus}))
        for host, host_gpus in inventory.items()
        if host_gpus.gpus and all(gpu.name for gpu in host_gpus.gpus)
    }
    if len(products) > 1:
        yield from differing(products, "its GPUs are {observed}; {count} of {total} hosts have {expected}")
    memory = lists_by_key(
        ((gpu.name, gpu.ecc_mode), ((host, gpu.index), gpu.memory))
        for host, host_gpus in inventory.items()
        for gpu in host_gpus.gpus
        if gpu.memory
    )
    for (product, _), alike in sorted(memory.items()):
        template = "GPU {gpu} has {observed} MiB of memory; {count} of {total} GPUs {product} have {expected} MiB"
        yield from below_usual(dict(alike), template, "gpu", product=product)
    for host_gpus in inventory.values():
        host_gpus.require("product_name", "fb_memory_usage")
