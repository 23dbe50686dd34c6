from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing_devices
from doctor.facts.gpu import GpuInventory


@check(severity=WARNING, area="versions")
def gpu_vbios_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """GPUs of one product have the same VBIOS.

    ## Why it matters
    The VBIOS sets clocks, power and how memory errors are handled. A host with another one may be slower than the
    others, or fail where they do not.

    ## What to do
    On {host}: `nvidia-smi --query-gpu=index,vbios_version --format=csv`. Have the firmware package of the server's
    maker installed, in the version of the others, and restart the host with a power cycle (`ipmitool chassis power
    cycle`).

    ## Source
    `vbios_version` of `nvidia-smi -q -x`; the majority is the norm, of hosts and of four or more GPUs. GPUs of one
    product name from different makers of boards have different versions: then this is a difference of the hardware that
    can stay, and on a single host only products for servers are compared.
    """
    listed = [(host, gpu) for host, host_gpus in inventory.items() for gpu in host_gpus.gpus if gpu.vbios]
    several = len({host for host, _ in listed}) > 1
    for product in sorted({gpu.name for _, gpu in listed if several or gpu.is_data_center}):
        yield from differing_devices(
            {(host, gpu.index): gpu.vbios for host, gpu in listed if gpu.name == product},
            "the VBIOS of its {product} is {observed}; {count} of {total} hosts have {expected}",
            "the VBIOS of GPU {gpu} is {observed}; {count} of {total} GPUs {product} have {expected}",
            "gpu",
            product=product,
        )
    for host_gpus in inventory.values():
        host_gpus.require("vbios_version")
