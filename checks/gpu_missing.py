from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.container import HostContainer
from doctor.facts.gpu import GpuCards, GpuInventory

CAUSES: dict[str, tuple[str, ...]] = {"gpu-lost": ()}


@check(severity=ERROR, area="devices", follows_from=CAUSES)
def gpu_missing(cards: GpuCards, inventory: GpuInventory, place: HostContainer | None) -> Iterator[Finding]:
    """nvidia-smi lists every GPU on the PCI bus.

    ## Why it matters
    A GPU that fell off the bus or did not start is silently left out of the list; the job fails on that host.

    ## What to do
    On {host}: `dmesg | grep -iE "xid|nvrm"` has the reason; Xid 79 means that the GPU has fallen off the bus. Stop the
    jobs there, then `reboot`. If `nvidia-smi -L` still lists too few, check power and slot.

    ## Source
    PCI devices of vendor 10de in the display class, against `nvidia-smi --query-gpu` (manual of nvidia-smi). In a
    container /sys shows the whole bus: there it must list as many as the container has device files.
    """
    listed = len(inventory.gpus) + len(inventory.unread)
    if place and place.engine:
        if listed < len(place.gpus):
            yield Finding(
                "nvidia-smi lists {observed} GPUs, but the container was given {expected}",
                observed=listed,
                expected=len(place.gpus),
            )
    elif listed < cards.pci:
        yield Finding(
            "nvidia-smi lists {observed} GPUs, but the PCI bus shows {expected}", observed=listed, expected=cards.pci
        )
