from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuInventory


@check(severity=WARNING, area="devices")
def gpu_mig_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """All GPUs of all hosts are in the same MIG mode, and none is to change at the next reset.

    ## Why it matters
    With MIG a GPU is divided, and its parts cannot reach each other: NCCL fails between them, and a job that expects
    whole GPUs finds none.

    ## What to do
    {remedy}

    ## Source
    `mig_mode` of `nvidia-smi -q -x`; MIG User Guide: no NCCL and no peer access between instances.
    """
    modes: dict[str, str] = {}
    for host, host_gpus in inventory.items():
        for gpu in host_gpus.gpus:
            if gpu.mig and gpu.mig_pending and gpu.mig != gpu.mig_pending:
                yield Finding(
                    "MIG is {observed} on GPU {gpu}, and will be {expected} after its reset",
                    hosts=[host],
                    gpu=gpu.index,
                    observed=gpu.mig,
                    expected=gpu.mig_pending,
                    remedy=filled(
                        "Reset the GPU while no program uses it: `nvidia-smi -r -i {0}`, or restart the host.",
                        gpu.index,
                    ),
                )
        own = sorted({gpu.mig for gpu in host_gpus.gpus if gpu.mig})
        if own:
            modes[host] = own[0] if len(own) == 1 else "not the same on all GPUs"
    if len(modes) > 1:
        template = "MIG is {observed}; on {count} of {total} hosts it is {expected}"
        for finding in differing(modes, template):
            finding.values["remedy"] = _remedy(str(finding.values.get("expected", "")))
            yield finding
    else:
        for host, mode in modes.items():
            if mode not in ("Enabled", "Disabled"):
                yield Finding("MIG is {observed}", hosts=[host], observed=mode, expected="one mode", remedy=_remedy(""))
    for host_gpus in inventory.values():
        host_gpus.require("mig_mode")


def _remedy(mode: str) -> str:
    """How all GPUs of a host come to ``mode``; where that is open, to none of MIG."""
    if mode == "Enabled":
        return (
            "Where the job wants parts of GPUs: `nvidia-smi -mig 1`, while no program uses them; then `nvidia-smi -r`."
        )
    return "For whole GPUs: `nvidia-smi -mig 0`, while no program uses them; then `nvidia-smi -r`."
