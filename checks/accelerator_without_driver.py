from collections import Counter
from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.container import HostContainer

EVIDENCE = ("amd",)
"""Of AMD's devices, where amd-smi reports their state."""


@check(severity=ERROR, area="devices", advisory=EVIDENCE)
def accelerator_without_driver(
    accelerators: OtherAccelerators, amd: AmdGpus | None, place: HostContainer | None
) -> Iterator[Finding]:
    """Every accelerator on the PCI bus has a driver.

    ## Why it matters
    Without a driver no process gets the device. Where doctor cannot read the state of an accelerator, it may be broken
    although all checks pass: the check is unknown then, never passed.

    ## What to do
    On {host}: `modprobe {module}`. If there is no such module, install the vendor's driver, in the version of the
    other hosts. `dmesg` has the reason why a driver did not take the device; `lspci -nnk -s {slot}` names the
    driver that did.

    ## In a container
    The driver is that of the machine on which the container of {host} runs. There, as root: `lspci -nnk -s {slot}`, and
    load or install the vendor's driver.

    ## Source
    PCI ids of pci.ids (github.com/pciutils/pciids): display and processing devices (classes 03 and 12) of AMD, Intel,
    Habana, Cambricon, Hygon, Moore Threads, Iluvatar, Enflame, Biren, MetaX, Kunlunxin and others; of vendors that are
    not listed, processing accelerators (class 1200). Integrated graphics, graphics cards for desktops, the display chip
    of a management controller and devices that are kept for virtual machines are none. In a container those count that
    it was given. AMD's are read by amd-smi or rocm-smi.
    """
    devices = accelerators.devices
    if place and place.engine and not accelerators.files:
        raise Skip("the container was given none of the accelerators of its host")
    for device in devices:
        if device.vendor and not device.driver:
            yield Finding(
                "the accelerator at {slot} ({vendor} {pci_id}) has no driver; expected {expected}",
                slot=device.slot,
                vendor=device.vendor,
                pci_id=device.pci_id,
                expected="a driver of the kernel",
                module=device.module or None,
            )
    unread = Counter(
        device.vendor or filled("PCI vendor {0}", device.pci_id[:4])
        for device in devices
        if (device.driver or not device.vendor) and not (amd and device.vendor == "AMD")
    )
    if unread:
        texts = [filled("{0} of {1}", count, vendor) for vendor, count in sorted(unread.items())]
        raise Unreadable(filled("doctor cannot read the state of these accelerators: {0}", ", ".join(texts)))
