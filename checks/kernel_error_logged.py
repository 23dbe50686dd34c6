from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.kernel_log import KernelLog


@check(severity=ERROR, area="devices")
def kernel_error_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log holds no error of the kernel itself, and none of a device's driver that no other check knows.

    ## Why it matters
    After an error of the kernel itself, processes hang or die, until the host is restarted. Drivers have thousands of
    messages: where a driver reports that its accelerator, network card or disk does not work, the line is shown even
    though no rule explains it.

    ## What to do
    On {host}: `dmesg -T`, and read what stands around the message; look it up with the driver's name and version.
    Restart the host (`reboot`), and update kernel, driver and firmware. Where the device works and the message is known
    to be harmless, accept it with a waiver.

    ## Source
    Messages of the kernel's own checks: arch/x86/mm/fault.c, lib/bug.c, lib/list_debug.c; what it logs as critical, or
    worse; and of a driver about a device, which no row of `doctor/facts/kernel_faults.toml` names: of drivers that a
    cluster needs, and of any other about a disk, a network card or an accelerator, all at error level, but what
    somebody asked for in vain; of the former at warning level words of failure, such as "fatal", "timed out", "hung",
    "failed" or "unable to"; at informational level the plainest, such as "fatal" or "not responding"; of other devices,
    and of any other part of the kernel, such words at error level, but of firmware tables, security, desktops and
    programs' protocols. Of NVIDIA's driver all that names a function of it counts, but assertions and refused requests,
    and statuses of a GPU, its memory, firmware or links; of Ascend's (github.com/hicann/driver) a device that is
    abnormal, does not answer, or lost its heartbeat. Up to 24 hours back, and until the driver says that the device
    works again; errors of the kernel count until a restart. What programs write into the log does not count. All are
    warnings, but errors of the hardware of AWS Neuron devices, after which AWS has the instance replaced.
    """
    for fault in log.merged_faults("kernel-error-logged"):
        yield Finding(
            "the kernel reported {kind}{where}, {count} times, last {age}: {text}",
            **fault.placed_values,
        ).as_warning(not fault.row.demands)
