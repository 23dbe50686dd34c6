from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=ERROR, area="devices")
def gpu_ecc_errors(inventory: GpuInventory) -> Iterator[Finding]:
    """No GPU has uncorrected memory errors.

    ## Why it matters
    An uncorrected error ends the process that touched the page (Xid 48, 94 or 95), and more tend to follow.

    ## What to do
    Take {host} out of the job (in Slurm: `scontrol update NodeName={host} State=DRAIN Reason=gpu`). There, while no
    program uses the GPU: `nvidia-smi -r -i {gpu}`. Have it replaced when the errors return: `nvidia-smi -q -d
    ECC,ROW_REMAPPER -i {gpu}` shows them. For the vendor: `nvidia-smi -q -i {gpu} | grep -i serial` and
    `nvidia-bug-report.sh`.

    ## Source
    `ecc.errors.uncorrected.volatile.total` of `nvidia-smi --query-gpu`: errors since the driver was loaded (manual of
    nvidia-smi).
    """
    for gpu in inventory.gpus:
        if gpu.ecc_errors:
            yield Finding(
                "GPU {gpu} has {observed} uncorrected memory errors since its driver was loaded; expected {expected}",
                gpu=gpu.index,
                uuid=gpu.uuid,
                observed=gpu.ecc_errors,
                expected=0,
            )
    inventory.require("ecc_errors")
