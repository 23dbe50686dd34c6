from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import DAY, KernelLog, format_age

ERRORS = {
    "uncorrected memory": r"mce: Uncorrected hardware memory error|EDAC \S+: [1-9][0-9]* UE |[Hh]ardware memory error"
    r"|Memory failure: 0x[0-9a-f]+: (?:recovery action for|already hardware poisoned)",
    "a machine check": r"\[Hardware Error\]: (CPU [0-9]+: Machine Check Exception|Uncorrected,|System Fatal)"
    r"|\[Hardware Error\]: CPU [0-9]+: Machine Check: [0-9a-f]+ Bank [0-9]+: [2367abef][0-9a-f]{15}\b",
    "an aborted access (Arm)": r"SError Interrupt on CPU ?[0-9]+|Internal error: synchronous external abort",
    "a fatal error reported by the firmware": r"\[Hardware Error\]: event severity: (fatal|recoverable)",
    "an uncorrected PCIe error": r"AER: (Multiple )?Uncorrect\w+ .*error|severity=Uncorrect\w+"
    r"|AER: device recovery failed",
}
"""Messages of arch/x86/kernel/cpu/mce, arch/arm64/kernel/traps.c, arch/arm64/mm/fault.c, mm/memory-failure.c,
drivers/edac, drivers/firmware/efi/cper.c and drivers/pci/pcie/aer.c."""


@check(severity=WARNING, area="devices")
def hardware_error_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no uncorrected error of processor, memory or PCIe.

    ## Why it matters
    Hardware that fails ends a rank, or the host, and does so again: most hosts that die in a job had such messages
    before.

    ## What to do
    On {host}: `dmesg | grep -iE 'hardware error|mce|edac|aer'`, `ras-mc-ctl --summary`, and the event log of the
    management controller: `ipmitool sel list`. Exclude the host, and have the part replaced.

    ## Source
    Messages of the kernel's machine check, EDAC, APEI and AER drivers; on Arm also of aborted accesses, and of poisoned
    pages. Errors that were corrected are no finding: of a machine check that was read later, bit 61 of its status (UC)
    says so (Intel SDM volume 3, IA32_MCi_STATUS).
    """
    for kind, pattern in ERRORS.items():
        errors = log.matching(pattern, DAY)
        if errors:
            line, match = errors[0]
            yield Finding(
                "the kernel reported {kind}, {count} times in 24 hours, last {age}: {text}",
                kind=kind,
                count=len(errors),
                age=format_age(line.age),
                text=match.string[:160],
            )
