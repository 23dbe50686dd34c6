import re
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.analysis.majority import below_usual, differing
from doctor.engine.grouping import lists_by_key
from doctor.facts.gpu import GpuInventory

SIXTEEN_LANES = re.compile(r"\b(A100|A800|H20|H[1278]00|GH200|B[123]00)\b")
"""Products that no maker of servers connects with fewer lanes than they have."""


@check(severity=WARNING, area="links")
def gpu_pcie_width_low(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """Every GPU has all lanes of its PCIe slot, and as many as on the other hosts.

    ## Why it matters
    A GPU with 8 of 16 lanes loads its data, and reaches the network, at half the speed, and the job waits for it.

    ## What to do
    On {host}: `nvidia-smi -q -i {gpu} | grep -A 8 'GPU Link Info'` and `lspci -vv -s {bus} | grep LnkSta`. Shut the
    host down, clean and reseat the GPU or its riser; when it does not help, have the riser or the GPU replaced. For
    the vendor: `nvidia-smi -q -i {gpu} | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    `current_link_width` against `max_link_width` of `nvidia-smi -q -x`, for A100, H100 and their successors: the number
    of lanes does not depend on load. Smaller products are often wired with 8 of 16 lanes (A10G and T4 of cloud
    instances); these are compared with the same GPU of the other hosts, and so is the highest PCIe generation, which of
    A100 and its successors is compared among all GPUs of a product.
    """
    for host, host_gpus in inventory.items():
        for gpu in host_gpus.gpus:
            low = gpu.pcie_width is not None and gpu.pcie_width < (gpu.pcie_width_max or 0)
            if low and SIXTEEN_LANES.search(gpu.name):
                yield Finding(
                    "GPU {gpu} has {observed} PCIe lanes; its slot has {expected}",
                    hosts=[host],
                    gpu=gpu.index,
                    bus=gpu.bus,
                    observed=gpu.pcie_width,
                    expected=gpu.pcie_width_max,
                )
    places = {(host, gpu.index): gpu for host, host_gpus in inventory.items() for gpu in host_gpus.gpus}
    generations = lists_by_key(
        (gpu.name, (place, gpu.pcie_generation_max))
        for place, gpu in places.items()
        if gpu.pcie_generation_max and SIXTEEN_LANES.search(gpu.name)
    )
    template = (
        "the PCIe link of GPU {gpu} is of generation {observed}; {count} of {total} GPUs {product} have {expected}"
    )
    for product, alike in generations.items():
        for finding in below_usual(dict(alike), template, "gpu", product=product):
            yield finding.with_values(bus=places[finding.hosts[0], finding.values["gpu"]].bus)
    for index in sorted({gpu.index for host_gpus in inventory.values() for gpu in host_gpus.gpus}):
        links = {
            host: (gpu.name, gpu.pcie_width, gpu.pcie_generation_max)
            for host, host_gpus in inventory.items()
            for gpu in host_gpus.gpus
            if gpu.index == index and gpu.pcie_width and gpu.pcie_generation_max and not SIXTEEN_LANES.search(gpu.name)
        }
        if len({name for name, _, _ in links.values()}) == 1 and len(links) > 2:
            texts = {
                host: filled("{0} lanes of generation {1}", lanes, generation)
                for host, (_, lanes, generation) in links.items()
            }
            template = "GPU {gpu} has {observed}; {count} of {total} hosts have {expected}"
            yield from differing(texts, template, gpu=index, bus="")
    for host_gpus in inventory.values():
        host_gpus.require("pci")
