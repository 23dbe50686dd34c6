from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="devices")
def hardware_error_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no uncorrected error of processor, memory or PCIe, no lost device.

    ## Why it matters
    Hardware that fails ends a rank, or the host, and does so again: most hosts that die in a job had such messages
    before.

    ## What to do
    On {host}: `dmesg | grep -iE 'hardware error|mce|edac|aer'`, `ras-mc-ctl --summary`, and the event log of the
    management controller: `ipmitool sel list`. Take the host out of the job, and have the part replaced. Where
    the IOMMU refused an access, first set it to pass through (`iommu-translates`), and update the device's driver and
    firmware.

    ## Source
    Messages of the kernel's machine check, EDAC, APEI and AER drivers; on Arm also of aborted accesses, and of poisoned
    pages. Of a PCIe port that was cut off (drivers/pci/pcie/dpc.c), of a slot whose device lost its link or was removed
    (drivers/pci/hotplug/pciehp_ctrl.c), and of a device that does not answer (drivers/pci/pci.c): on servers often the
    first sign of an accelerator or network card that is gone. Of an access to memory that the IOMMU refused, and of its
    own errors (drivers/iommu: amd/iommu.c, intel/dmar.c, arm-smmu-v3.c); USB, sound and devices of virtual machines
    are left out. An NMI for an error of the bus, a temperature at which the host shuts itself down, and, until the next
    restart, an error for which the processor restarted it (arch/x86/kernel/cpu/amd.c). Errors that were corrected are
    no finding: of a machine check that was read later, bit 61 of its status (UC) says so (Intel SDM volume 3,
    IA32_MCi_STATUS).
    """
    for fault in log.merged_faults("hardware-error-logged"):
        yield Finding(
            "the kernel reported {kind}{where}, {count} times in 24 hours, last {age}: {text}",
            **fault.placed_values,
        )
