from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.npu import NpuChips, NpuInventory


@check(severity=ERROR, area="devices")
def npu_missing(inventory: NpuInventory, chips: NpuChips | None) -> Iterator[Finding]:
    """Every NPU on the PCI bus has a device file, and npu-smi lists it.

    ## Why it matters
    No message announces an NPU that dropped out: the job fails on that host alone, with `Invalid device ID`.

    ## What to do
    Read the kernel log on {host}: `dmesg | grep -iE "davinci|ascend|pcie"`. On the bus without a device file: the
    driver did not accept it; restart the host, then reinstall the driver. A gap in the numbers with nothing more on the
    bus: the card itself dropped out; reseat or replace it.

    ## Source
    PCI ids 19e5:d801, d802, d803 and d806, the files /dev/davinci0 and on, and `npu-smi info -m` must agree (public
    source of the driver; the fault diagnosis of mind-cluster counts them in the same way). A container gets device
    files of its own NPUs only, while its PCI bus shows those of the machine (device-plugin of mind-cluster): there only
    npu-smi is compared. PCIe cards are numbered by slot, so their logic ids are compared.
    """
    devices = tuple(sorted(set(inventory.devices) - set(inventory.virtual)))
    if inventory.virtual and not devices:
        raise Skip("the NPUs are virtual (vNPU); the machine that they belong to shows its NPUs")
    last = max((inventory.pci_count, *(device + 1 for device in devices)))
    gap = sorted(set(range(last)) - set(devices))
    if inventory.container:
        pass
    elif inventory.pci_count > len(devices):
        yield Finding(
            "NPU {npus} is on the PCI bus but has no device file: the driver did not accept it",
            npus=gap,
            observed=f"{len(devices)} device files",
            expected=f"{inventory.pci_count} device files",
        )
    elif gap:
        yield Finding(
            "NPU {npus} has no device file, and the PCI bus shows {on_bus} NPUs: the card has dropped out",
            npus=gap,
            on_bus=inventory.pci_count,
            observed=f"{len(devices)} device files",
            expected=f"{last} device files",
        )
    unlisted = _unlisted(devices, chips, inventory.container) if chips else []
    if chips and unlisted:
        yield Finding(
            "NPU {npus} has a device file, but npu-smi does not list it",
            npus=unlisted,
            observed=f"{len(chips.chips)} NPUs listed",
            expected=f"{len(devices)} NPUs listed",
        )


def _unlisted(devices: tuple[int, ...], chips: NpuChips, container: bool) -> list[int]:
    """Device files without a chip. Where cards are numbered by slot, or anew in a container, the count decides."""
    listed = {chip.device for chip in chips.chips}
    if listed <= set(devices):
        return sorted(set(devices) - listed)
    logic = {chip.logic for chip in chips.chips if chip.logic is not None}
    if len(chips.chips) >= len(devices):
        return []
    return sorted(set(devices) - logic) if logic <= set(devices) and not container else list(devices[len(listed) :])
