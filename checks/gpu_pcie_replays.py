from collections.abc import Iterator
from statistics import median

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.gpu import GpuInventory

LEAST = 100
FACTOR = 100


@check(severity=WARNING, area="links")
def gpu_pcie_replays(inventory: PerHost[GpuInventory]) -> Iterator[Finding]:
    """No GPU has sent many more PCIe packets again than the other GPUs of the fleet.

    ## Why it matters
    A packet is sent again when it came damaged: a riser, slot or cable between GPU and processor is bad. Data is loaded
    more slowly, and the GPU may fall off the bus (Xid 79) under load.

    ## What to do
    On {host}: `nvidia-smi -q -i {gpu} | grep -i replay` twice, a minute apart, and `lspci -vv -s {bus} | grep -i
    err`. Shut the host down, clean and reseat the GPU or its riser; have it replaced when the number grows again.
    For the vendor: `nvidia-smi -q -i {gpu} | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    `replay_counter` of `nvidia-smi -q -x`. DCGM takes more than 8 replays a minute for an error
    (DCGM_FR_PCI_REPLAY_RATE), which one look cannot tell: a finding is a GPU with 100 replays or more, and 100 times as
    many as the middle of the fleet's GPUs. GPUs that all count alike, as behind some switches, are no finding.
    """
    counts = {
        (host, gpu.index, gpu.bus): gpu.replays
        for host, host_gpus in inventory.items()
        for gpu in host_gpus.gpus
        if gpu.replays is not None
    }
    usual = median(counts.values()) if len(counts) > 1 else 0
    for (host, index, bus), count in counts.items():
        if count >= LEAST and count > FACTOR * max(usual, 1):
            yield Finding(
                "GPU {gpu} has sent {observed} PCIe packets a second time; the median of {total} GPUs is {expected}",
                hosts=[host],
                gpu=index,
                bus=bus,
                observed=count,
                expected=f"{usual:g}",
                total=len(counts),
            )
    for host_gpus in inventory.values():
        host_gpus.require("replay_counter")
