from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.engine.sanitize import count_noun
from doctor.facts.container import FIRST_VIRTUAL_NPU, HostContainer
from doctor.facts.npu import NpuChips, NpuInventory

UNLISTED = "restart the host: `reboot`; if npu-smi still leaves it out, reseat or replace the card."
APART = ("chips",)


@check(severity=ERROR, area="devices", apart=APART)
def npu_missing(inventory: NpuInventory, chips: NpuChips | None, place: HostContainer | None) -> Iterator[Finding]:
    """Every NPU on the PCI bus has a device file, and npu-smi lists it.

    ## Why it matters
    No message announces an NPU that dropped out: the job fails on that host alone, with `Invalid device ID`.

    ## What to do
    On {host}, first read the reason in the kernel's log, which is empty after a restart: `dmesg -T | grep -iE
    "davinci|ascend|pcie"`. Then: {remedy}

    ## Source
    PCI ids 19e5:d801, d802, d803 and d806, the files /dev/davinci0 and on, and `npu-smi info -m` must agree (public
    source of the driver; the fault diagnosis of mind-cluster counts them in the same way). In a container /sys shows
    the whole bus and /dev only the NPUs that it was given, virtual ones from 100 on: there npu-smi must list as many as
    it was given, and container-devices-missing compares them with ASCEND_VISIBLE_DEVICES. PCIe cards are numbered by
    slot: there their logic ids are compared.
    """
    devices = tuple(device for device in inventory.devices if device < FIRST_VIRTUAL_NPU)
    if place and place.engine:
        yield from _in_container(devices, chips)
        return
    last = max((inventory.pci_count, *(device + 1 for device in devices)))
    gap = sorted(set(range(last)) - set(devices))
    if inventory.pci_count > len(devices):
        yield Finding(
            "NPU {npus} is on the PCI bus but has no device file: the driver did not accept it",
            remedy="restart the host: `reboot`; if `ls /dev/davinci*` still does not show the NPU, reinstall driver "
            "and firmware.",
            npus=gap,
            devices=inventory.pci_count,
            observed=count_noun(len(devices), "device file"),
            expected=count_noun(inventory.pci_count, "device file"),
        )
    elif gap:
        yield Finding(
            "NPU {npus} has no device file, and the PCI bus shows {on_bus} NPUs: the card has dropped out",
            remedy="switch the host off and on (`ipmitool chassis power cycle`; a reboot is not enough). If the card "
            "is still not on the bus (`lspci -d 19e5:`), reseat or replace it.",
            npus=gap,
            on_bus=inventory.pci_count,
            devices=last,
            observed=count_noun(len(devices), "device file"),
            expected=count_noun(last, "device file"),
        )
    unlisted = _unlisted(devices, chips) if chips else []
    if chips and unlisted:
        yield Finding(
            "NPU {npus} has a device file, but npu-smi does not list it",
            remedy=UNLISTED,
            npus=unlisted,
            observed=filled("{0} listed", count_noun(len(chips.chips), "NPU")),
            expected=filled("{0} listed", count_noun(len(devices), "NPU")),
        )


def _unlisted(devices: tuple[int, ...], chips: NpuChips) -> list[int]:
    """Device files without a chip. Where cards are numbered by slot, their logic ids are compared."""
    listed = {chip.device for chip in chips.chips}
    if listed <= set(devices):
        return sorted(set(devices) - listed)
    if len(chips.chips) >= len(devices):
        return []
    logic = {chip.logic for chip in chips.chips if chip.logic is not None}
    return sorted(set(devices) - logic) if logic <= set(devices) else list(devices[len(listed) :])


def _in_container(devices: tuple[int, ...], chips: NpuChips | None) -> Iterator[Finding]:
    """In a container, the NPUs that it was given are expected; those on the bus do not count."""
    if not chips or len(chips.chips) >= len(devices):
        return
    listed = {chip.device for chip in chips.chips}
    unlisted = sorted(set(devices) - listed) if listed <= set(devices) else list(devices[len(listed) :])
    yield Finding(
        "NPU {npus} was given to the container, but npu-smi does not list it",
        remedy="outside the container: `npu-smi info -m`. If it lists the NPU, start the container again; if not, "
        "restart that host.",
        npus=unlisted,
        observed=filled("{0} listed", count_noun(len(chips.chips), "NPU")),
        expected=filled("{0} listed", count_noun(len(devices), "NPU")),
    )
