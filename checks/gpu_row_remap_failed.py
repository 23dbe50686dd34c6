from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=ERROR, area="devices")
def gpu_row_remap_failed(inventory: GpuInventory) -> Iterator[Finding]:
    """No GPU has failed row remapping or uncorrectable cache errors.

    ## Why it matters
    A row of memory that is damaged, and could not be replaced, is used again: programs end with uncorrected errors
    (Xid 48, 64, 95) again and again. Caches with more errors than NVIDIA's limit fail again as well.

    ## What to do
    Take {host} out of the job, and have GPU {gpu} replaced. `nvidia-smi -q -d ECC,ROW_REMAPPER -i {gpu}` shows its
    state. For the vendor: `nvidia-smi -q -i {gpu} | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    NVIDIA GPU Memory Error Management, row remapping: a remapping failure is a criterion for replacement;
    `remapped_row_failure`, `unrepairable_memory` and `sram_threshold_exceeded` of `nvidia-smi -q -x` (NVML:
    nvmlDeviceGetSramEccErrorStatus, bThresholdExceeded; nvmlUnrepairableMemoryStatus). GPUs before Ampere have retired
    pages in place of rows, 64 at most (the same document, row-remapping.html).
    """
    for gpu in inventory.gpus:
        if gpu.row_remap_failed or gpu.is_unrepairable:
            yield Finding(
                "GPU {gpu} ({name}) has damaged memory that it cannot replace",
                gpu=gpu.index,
                name=gpu.name,
                observed="a remapping failure" if gpu.row_remap_failed else "memory that cannot be repaired",
                expected="none",
            )
        if gpu.caches_failing:
            yield Finding(
                "the caches of GPU {gpu} ({name}) had more uncorrected errors than NVIDIA's limit",
                gpu=gpu.index,
                name=gpu.name,
                observed="SRAM threshold exceeded",
                expected="not exceeded",
            )
    inventory.require("remapped_rows", "ecc_errors", "sram_threshold_exceeded")
