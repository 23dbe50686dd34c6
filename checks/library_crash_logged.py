from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="ranks")
def library_crash_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no crash in a communication library.

    ## Why it matters
    A rank that crashes leaves no message: all others wait for it. A crash inside of NCCL, HCCL, RCCL, MPI or libibverbs
    points to the library's version, its plugins or the driver, and comes back in the next job on this host.

    ## What to do
    On {host}: `dmesg | grep segfault`, `coredumpctl list`. `doctor check {all_hosts} --select
    torch-version-differs,nccl-version-differs,gpu-driver-differs,driver-version-differs` compares the library and the
    driver with those of the other hosts. Where they are equal, install the next release of the library, or send the
    output of `coredumpctl info` to its vendor.

    ## Source
    Messages of the kernel, arch/x86/mm/fault.c (show_signal_msg): "NAME[PID]: segfault at ... in libnccl.so"; Lepton
    AI's gpud reports those of libnccl.so. Other programs' crashes are no finding.
    """
    for fault in log.faults("library-crash-logged"):
        yield Finding(
            "{name} crashed in {library}, {count} times in 24 hours, last {age}: {text}",
            name=filled("process {0} ({1})", fault.groups["pid"], fault.groups["name"])
            if "pid" in fault.groups
            else "a process",
            library=fault.device,
            **fault.values,
        )
