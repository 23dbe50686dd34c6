from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.gpu import GpuCards, GpuInventory, NvidiaSmi
from doctor.facts.gpu_report import NEEDED

EVIDENCE = ("inventory",)
"""Where nvidia-smi gives a report, what it could not read of each GPU."""


@check(severity=ERROR, area="devices", advisory=EVIDENCE)
def gpu_tool_fails(tool: NvidiaSmi, cards: GpuCards, inventory: GpuInventory | None) -> Iterator[Finding]:
    """nvidia-smi answers on every host with NVIDIA GPUs, and can read every value of every GPU.

    ## Why it matters
    nvidia-smi uses the interface of the driver that CUDA uses too. Where it hangs, a GPU no longer answers the driver,
    and a job hangs in its first call; where it fails, a job fails with it. A GPU with values that cannot be read
    ("Unknown Error", "ERR!") is often one that is lost some minutes later.

    ## What to do
    On {host}: `dmesg | grep -iE 'xid|nvrm'` has the reason. End the programs that use the GPUs (`fuser -v
    /dev/nvidia*`), then `reboot`. If nvidia-smi fails after that as well, have the GPU that the log names examined.

    ## In a container
    The container of {host} has lost its rights to the devices, or was not given them: start it anew, with `docker run
    --gpus all`. If nvidia-smi fails on its machine as well, end the programs there that use the GPUs, and restart it.

    ## Source
    Manual of nvidia-smi, return values; the messages of nvmlErrorString (nvml.h) in the place of a value. "N/A" and
    "Not Supported" are no failure. A product may have no limit of power or reason of its clocks that can be read, so
    that these alone are a warning; so is a reading that no check needs, and a complaint beside a complete report.
    nvidia-smi has 30 seconds: without persistence mode each GPU is initialised first, which takes one to three.
    """
    if not cards.pci or not cards.driver:
        raise Skip("no GPU with a loaded driver")
    if tool.kind in ("hang", "denied", "other", "driver"):
        yield Finding(
            "nvidia-smi gave no report on a host with {gpus} GPUs: {observed}", gpus=cards.pci, observed=tool.text
        )
    if tool.beside:
        yield Finding(
            "nvidia-smi prints warnings: {observed}; expected {expected}",
            observed=tool.beside,
            expected="exit status 0",
        ).as_warning()
    for gpu in inventory.gpus if inventory else ():
        if gpu.failed:
            yield Finding(
                "nvidia-smi cannot read {elements} of GPU {gpu} ({bus}): {observed}",
                gpu=gpu.index,
                bus=gpu.bus,
                elements=sorted(gpu.failed),
                observed=sorted(set(gpu.failed.values())),
            ).as_warning(not gpu.failed.keys() & NEEDED)
