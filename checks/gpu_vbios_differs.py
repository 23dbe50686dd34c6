from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuInventory

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST)
def gpu_vbios_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """GPUs of one product have the same VBIOS on all hosts.

    ## Why it matters
    The VBIOS sets clocks, power and how memory errors are handled. A host with another one may be slower than the
    others, or fail where they do not.

    ## What to do
    On {host}: `nvidia-smi --query-gpu=index,vbios_version --format=csv`. Have the firmware package of the server's
    maker installed, in the version of the other hosts, and restart the host with a power cycle (`ipmitool chassis power
    cycle`).

    ## Source
    `vbios_version` of `nvidia-smi -q -x`; the majority is the norm. GPUs of one product name from different makers of
    boards have different versions: then this is a difference of the hardware that can stay.
    """
    for product in sorted({gpu.name for host_gpus in inventory.values() for gpu in host_gpus.gpus if gpu.vbios}):
        versions = {
            host: " and ".join(sorted(own))
            for host, host_gpus in inventory.items()
            if (own := {gpu.vbios for gpu in host_gpus.gpus if gpu.name == product and gpu.vbios})
        }
        if len(versions) > 1:
            template = "the VBIOS of its {product} is {observed}; {count} of {total} hosts have {expected}"
            yield from differing(versions, template, product=product)
    for host_gpus in inventory.values():
        host_gpus.require("vbios_version")
