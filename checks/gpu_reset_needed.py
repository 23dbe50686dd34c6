from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.gpu import GpuInventory


@check(severity=WARNING, area="devices")
def gpu_reset_needed(inventory: GpuInventory) -> Iterator[Finding]:
    """No GPU waits for a reset.

    ## Why it matters
    Damaged memory is replaced, a page retired, or a part repaired only when the GPU is reset. Until then the job uses
    it, and may end with an uncorrected error.

    ## What to do
    On {host}, when no program uses the GPU: `nvidia-smi -r -i {gpu}`, or restart the host.

    ## Source
    `remapped_row_pending`, `pending_retirement`, `channel_repair_pending`, `tpc_repair_pending`, `reset_required` and
    `gpu_recovery_action` of `nvidia-smi -q -x`; NVIDIA GPU Memory Error Management; Dynamic Page Retirement.
    """
    for gpu in inventory.gpus:
        reasons = [
            *(["a memory row is to be replaced"] if gpu.row_remap_pending else []),
            *(["a memory page is to be retired"] if gpu.page_retirement_pending else []),
            *(["a part is to be repaired"] if gpu.repair_pending else []),
            *(["the driver requires a reset"] if gpu.reset_required else []),
            *([f"the driver recommends: {gpu.recovery_action}"] if gpu.recovery_action else []),
        ]
        if reasons:
            yield Finding("GPU {gpu} waits for a reset: {observed}", gpu=gpu.index, observed=reasons)
