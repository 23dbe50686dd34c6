from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.npu import NpuProduct

ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="devices", single_host=ONE_HOST)
def product_mixed(products: PerHost[NpuProduct]) -> Iterator[Finding]:
    """All hosts have NPUs of one family.

    ## Why it matters
    The families differ in ranks a host, in number formats and in how their NPUs are wired; HCCL cannot build a group
    across two families.

    ## What to do
    `npu-smi info` on {host} shows its NPUs. Leave the host out of the job: in Slurm `sbatch --exclude={host}` with the
    job's script, else delete its line in the hostfile. Lower the number of nodes by the hosts left out. Or start a job
    of its own for each family.

    ## Source
    The PCI ids of the NPUs: d801 is A1 (910), d802 is A2 (910B1 to 910B4), d803 is A3, d806 is A5 (950). A chip that
    npu-smi calls `910B` without a digit is A1. HCCL documentation, supported products of a group.
    """
    families = {host: product.family for host, product in products.items()}
    yield from differing(families, "NPUs of family {observed}; {count} of {total} hosts have {expected}")
