from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.gpu import GpuCards, NvidiaSmi


@check(severity=ERROR, area="devices")
def gpu_tool_fails(tool: NvidiaSmi, cards: GpuCards) -> Iterator[Finding]:
    """nvidia-smi answers on every host with NVIDIA GPUs.

    ## Why it matters
    nvidia-smi uses the interface of the driver that CUDA uses too. Where it hangs, a GPU no longer answers the driver,
    and a job hangs in its first call; where it fails, a job fails with it.

    ## What to do
    On {host}: `nvidia-smi; echo $?`, then `dmesg | grep -iE 'xid|nvrm'` and `ps -eo pid,stat,wchan:30,args | grep ' D'`
    for processes that cannot be ended. Restart the host. In a container, "Unknown Error" means that it has lost its
    rights to the devices: start it anew.

    ## Source
    Manual of nvidia-smi, return values. It has 30 seconds: without persistence mode each GPU is initialised first,
    which takes one to three.
    """
    if not cards.pci or not cards.driver:
        raise Skip("no GPU with a loaded driver")
    if tool.kind in ("hang", "denied", "other") or tool.kind == "driver":
        yield Finding(
            "nvidia-smi gave no report on a host with {gpus} GPUs: {observed}", gpus=cards.pci, observed=tool.text
        )
