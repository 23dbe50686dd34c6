from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=ERROR, area="devices")
def gpu_row_remap_failed(inventory: GpuInventory) -> Iterator[Finding]:
    """Every GPU could replace its damaged memory rows.

    ## Why it matters
    A row of memory that is damaged, and could not be replaced, is used again: programs end with uncorrected errors
    (Xid 48, 64, 95) again and again.

    ## What to do
    `nvidia-smi -q -d ROW_REMAPPER -i {gpu}` on {host}. Exclude the host, and have the GPU replaced.

    ## Source
    NVIDIA GPU Memory Error Management, row remapping: a remapping failure is a criterion for replacement;
    `remapped_row_failure` of `nvidia-smi -q -x`.
    """
    for gpu in inventory.gpus:
        if gpu.row_remap_failed:
            yield Finding(
                "GPU {gpu} ({name}) has damaged memory that it cannot replace",
                gpu=gpu.index,
                name=gpu.name,
                observed="a remapping failure",
                expected="none",
            )
