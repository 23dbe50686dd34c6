from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled, joined
from doctor.engine.fact import Unreadable
from doctor.facts.gpu import GpuInventory
from doctor.facts.gpu_report import Gpu
from doctor.facts.xid import RECOVERY_ACTIONS


@check(severity=ERROR, area="devices")
def gpu_reset_needed(inventory: GpuInventory) -> Iterator[Finding]:
    """No GPU waits for a reset.

    ## Why it matters
    Where the driver itself recommends a reset or a restart, it has seen an error that it cannot clear: the GPU computes
    wrongly, or refuses work, until then. Damaged memory is replaced, a page retired, or a part repaired only when the
    GPU is reset; until then the job uses it, and may end with an uncorrected error.

    ## What to do
    On {host}, when no program uses the GPU (`fuser -v /dev/nvidia{gpu}` lists them): `nvidia-smi -r -i {gpu}`. Where
    that is refused: `reboot`.

    ## Source
    `reset_required`, `drain_and_reset_recommended` and `gpu_recovery_action`, which replaces them, of `nvidia-smi -q
    -x` (NVML: nvmlDeviceGpuRecoveryAction_t) are errors, and `GPU requires reset` in the place of a value
    (NVML_ERROR_RESET_REQUIRED); `remapped_row_pending`,
    `pending_retirement`, `channel_repair_pending` and `tpc_repair_pending` are warnings: NVIDIA GPU Memory Error
    Management; Dynamic Page Retirement. An action that is not in NVML's list makes the check unknown.
    """
    unlisted: list[str] = []
    for gpu in inventory.gpus:
        demanded = _demanded(gpu)
        if demanded is None:
            unlisted.append(filled("GPU {0}: gpu_recovery_action: {1}", gpu.index, gpu.recovery_action))
        reasons = [*(demanded or ()), *_pending(gpu)]
        if reasons:
            yield Finding("GPU {gpu} waits for a reset: {observed}", gpu=gpu.index, observed=reasons).as_warning(
                not demanded
            )
    inventory.require("gpu_recovery_action", "gpu_reset_status", "remapped_rows", "retired_pages", "repair_pending")
    if unlisted:
        raise Unreadable(filled("an action that is not listed: {0}", joined("; ", unlisted[:3])))


def _demanded(gpu: Gpu) -> list[str] | None:
    """What the driver demands of a GPU; None where its words are not in the list."""
    action = gpu.recovery_action
    if action and not any(word in action.lower() for word in RECOVERY_ACTIONS):
        return None
    return [
        *(["the driver requires a reset"] if gpu.reset_required else []),
        *([filled("the driver recommends: {0}", action)] if action else []),
    ]


def _pending(gpu: Gpu) -> list[str]:
    """What waits for the next reset, whenever that is."""
    return [
        *(["the GPU must replace a memory row"] if gpu.row_remap_pending else []),
        *(["the GPU must retire a memory page"] if gpu.page_retirement_pending else []),
        *(["a part needs repair"] if gpu.repair_pending else []),
    ]
