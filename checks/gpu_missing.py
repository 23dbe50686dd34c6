from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuCards, GpuInventory


@check(severity=ERROR, area="devices")
def gpu_missing(cards: GpuCards, inventory: GpuInventory) -> Iterator[Finding]:
    """nvidia-smi lists every GPU on the PCI bus.

    ## Why it matters
    A GPU that fell off the bus or did not start is silently left out of the list; the job fails on that host.

    ## What to do
    `dmesg | grep -iE "xid|nvrm"` on {host}. Xid 79 means that the GPU has fallen off the bus: restart the host, then
    check power and slot.

    ## Source
    PCI devices of vendor 10de in the display class, against `nvidia-smi --query-gpu` (manual of nvidia-smi).
    """
    listed = len(inventory.gpus) + len(inventory.unread)
    if listed < cards.pci:
        yield Finding(
            "nvidia-smi lists {observed} GPUs, but the PCI bus shows {expected}", observed=listed, expected=cards.pci
        )
