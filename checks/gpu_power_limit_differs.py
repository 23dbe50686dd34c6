from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import below_usual, differing
from doctor.engine.grouping import lists_by_key
from doctor.facts.gpu import GpuInventory

CAUSES = {
    "gpu-product-mixed": ("product=observed",),
}


@check(severity=WARNING, area="devices", follows_from=CAUSES)
def gpu_power_limit_differs(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """GPUs of one product have the same power limit and the same application clock.

    ## Why it matters
    A GPU with less power, or a lower clock, computes more slowly, and all ranks wait for the slowest.

    ## What to do
    - Power: on {host}, `nvidia-smi --query-gpu=index,power.limit --format=csv` shows each GPU's. Set that of the
      others: `nvidia-smi -pl {expected}`; it is lost at a restart, and without persistence mode earlier.
    - Clock: on {host}, `nvidia-smi -q -d CLOCK` shows each GPU's. Set that of the others: `nvidia-smi -i {gpu} -ac
      $(nvidia-smi -i {gpu} --query-gpu=clocks.applications.memory --format=csv,noheader,nounits),{expected}`.

    ## Source
    `current_power_limit` and `applications_clocks` of `nvidia-smi -q -x`; the majority is the norm, so that a limit
    that a site has chosen for all hosts is no finding.
    """
    listed = {(host, gpu.index): gpu for host, host_gpus in inventory.items() for gpu in host_gpus.gpus}
    for product in sorted({gpu.name for gpu in listed.values()}):
        limits = {place: gpu.power_limit for place, gpu in listed.items() if gpu.name == product and gpu.power_limit}
        by_host = lists_by_key((host, watts) for (host, _), watts in limits.items())
        highest = {host: max(watts) for host, watts in by_host.items()}
        if len(highest) > 1:
            template = "the power limit of its {product} is {observed} W; {count} of {total} hosts have {expected} W"
            watts_of = {host: f"{watts:g}" for host, watts in highest.items()}
            yield from differing(watts_of, template, product=product, case="Power")
        template = "the power limit of GPU {gpu} is {observed} W; {count} of {total} GPUs {product} have {expected} W"
        for finding in below_usual(limits, template, "gpu", product=product, case="Power"):
            if finding.values["observed"] < highest[finding.hosts[0]]:
                yield finding
        template = (
            "the application clock of GPU {gpu} is {observed} MHz; {count} of {total} GPUs {product} have {expected}"
        )
        clocks = {place: gpu.clock_limit for place, gpu in listed.items() if gpu.name == product and gpu.clock_limit}
        yield from below_usual(clocks, template, "gpu", product=product, case="Clock")
    for host_gpus in inventory.values():
        host_gpus.require("power_readings", "applications_clocks")
