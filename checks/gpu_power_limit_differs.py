from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import below_usual, differing
from doctor.facts.gpu import GpuInventory

CAUSES = {
    "gpu-product-mixed": ("product=observed",),
}


@check(severity=WARNING, area="devices", follows_from=CAUSES)
def gpu_power_limit_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """GPUs of one product have the same power limit on all hosts.

    ## Why it matters
    A GPU with less power computes more slowly, and all ranks wait for the slowest.

    ## What to do
    On {host}: `nvidia-smi --query-gpu=index,power.limit --format=csv` shows each GPU's. Set that of the other hosts:
    `nvidia-smi -pl {expected}`; it is lost at a restart, and without persistence mode earlier.

    ## Source
    `current_power_limit` of `nvidia-smi -q -x`; the majority is the norm, so that a limit that a site has chosen for
    all hosts is no finding.
    """
    for product in sorted({gpu.name for host_gpus in inventory.values() for gpu in host_gpus.gpus}):
        limits = {
            (host, gpu.index): gpu.power_limit
            for host, host_gpus in inventory.items()
            for gpu in host_gpus.gpus
            if gpu.name == product and gpu.power_limit
        }
        highest = {host: max(watts for (own, _), watts in limits.items() if own == host) for host, _ in limits}
        if len(highest) > 1:
            template = "the power limit of its {product} is {observed} W; {count} of {total} hosts have {expected} W"
            yield from differing({host: f"{watts:g}" for host, watts in highest.items()}, template, product=product)
        template = "the power limit of GPU {gpu} is {observed} W; {count} of {total} GPUs {product} have {expected} W"
        for finding in below_usual(limits, template, "gpu", product=product):
            if finding.values["observed"] < highest[finding.hosts[0]]:
                yield finding
    for host_gpus in inventory.values():
        host_gpus.require("power_readings")
