from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.kernel_log import KernelLog, LoggedFault, format_age


@check(severity=WARNING, area="devices")
def hardware_error_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no uncorrected error of processor, memory or PCIe, no lost device.

    ## Why it matters
    Hardware that fails ends a rank, or the host, and does so again: most hosts that die in a job had such messages
    before.

    ## What to do
    On {host}: `dmesg | grep -iE 'hardware error|mce|edac|aer'`, `ras-mc-ctl --summary`, and the event log of the
    management controller: `ipmitool sel list`. Exclude the host, and have the part replaced.

    ## Source
    Messages of the kernel's machine check, EDAC, APEI and AER drivers; on Arm also of aborted accesses, and of poisoned
    pages. Of a PCIe port that was cut off (drivers/pci/pcie/dpc.c), of a slot whose device lost its link or was removed
    (drivers/pci/hotplug/pciehp_ctrl.c), and of a device that does not answer (drivers/pci/pci.c): on servers often the
    first sign of an accelerator or network card that is gone. Errors that were corrected are no finding: of a machine
    check that was read later, bit 61 of its status (UC) says so (Intel SDM volume 3, IA32_MCi_STATUS).
    """
    kinds: dict[str, list[LoggedFault]] = {}
    for fault in log.faults("hardware-error-logged"):
        kinds.setdefault(f"{fault.row.meaning} {fault.device}", []).append(fault)
    for faults in kinds.values():
        newest = min(faults, key=lambda fault: fault.age)
        yield Finding(
            "the kernel reported {kind}{where}, {count} times in 24 hours, last {age}: {text}",
            kind=newest.row.meaning,
            where=filled(" at {0}", newest.device) if newest.device else "",
            device=newest.device or None,
            count=sum(fault.count for fault in faults),
            age=format_age(newest.age),
            text=newest.text[:160],
        )
