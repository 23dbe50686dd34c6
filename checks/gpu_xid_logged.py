from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import KernelLog, format_age
from doctor.facts.xid import xid_events

CAUSES = {"gpu-lost": ("device=devices",)}


@check(severity=WARNING, area="devices", follows_from=CAUSES)
def gpu_xid_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel log reports no fault of a GPU or NVSwitch.

    ## Why it matters
    The driver reports faults of the hardware as Xid, those of NVSwitches as SXid. A GPU that had one is likely to have
    it again in the job; some stay until the GPU is reset.

    ## What to do
    On {host}, for the GPU at {device}: {action}. Then `dmesg | grep -i xid`; if it comes back, have the GPU examined.

    ## Source
    NVIDIA, Analyzing Xid Errors with the Xid Catalog, immediate action; Fabric Manager User Guide, appendix D. Reported
    are those of the last seven days since the host was started. Codes that NVIDIA attributes to the program that ran
    (13, 31, 43, 45 and others), NVLink errors marked as non-fatal (144 to 150) and SXids that are not fatal are left
    out. A GPU that has fallen off the bus and does not answer now is an error, of gpu-lost. The driver reports without
    a code that a GPU is gone or cannot be initialised ("fallen off the bus", "RmInitAdapter failed!").
    """
    for event in xid_events(log):
        yield Finding(
            "{name} ({meaning}) on {device}, {count} times, last {age}: {text}",
            name=f"{event.kind} {event.code}" if event.code else "the driver's message",
            kind=event.kind,
            code=event.code,
            meaning=event.meaning,
            device=event.device or None,
            count=event.count,
            age=format_age(event.age),
            text=event.text,
            action=event.action,
        )
