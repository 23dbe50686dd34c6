from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuInventory

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="devices", single_host=ONE_HOST)
def gpu_product_mixed(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """All hosts have GPUs of one product.

    ## Why it matters
    The faster GPUs wait for the slower ones in every step, the smallest memory decides what fits, and kernels may
    choose different algorithms, so that results differ.

    ## What to do
    `nvidia-smi -L` on {host} shows its GPUs. Leave the host out of the job: in Slurm `sbatch --exclude={host}` with the
    job's script, else delete its line in the hostfile. Or start a job of its own for each product.

    ## Source
    `product_name` of `nvidia-smi -q -x`; the majority is the norm.
    """
    products = {
        host: ", ".join(sorted({gpu.name for gpu in host_gpus.gpus}))
        for host, host_gpus in inventory.items()
        if host_gpus.gpus
    }
    yield from differing(products, "its GPUs are {observed}; {count} of {total} hosts have {expected}")
