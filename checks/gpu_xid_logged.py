from collections.abc import Iterator

from doctor import ERROR, Finding, ago_text, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.kernel_log import KernelLog
from doctor.facts.xid import unlisted_xids, xid_events

CAUSES = {"gpu-lost": ("device=devices",)}
EVIDENCE = ("inventory",)
"""Whether the action that an error asks for was carried out since."""
GPUS = ("cards",)


@check(severity=ERROR, area="devices", follows_from=CAUSES, advisory=EVIDENCE, about=GPUS)
def gpu_xid_logged(log: KernelLog, inventory: GpuInventory | None, cards: GpuCards | None) -> Iterator[Finding]:
    """The kernel log reports no fault of a GPU or NVSwitch.

    ## Why it matters
    The driver reports faults of the hardware as Xid, those of NVSwitches as SXid. A GPU that had one is likely to have
    it again in the job; some stay until the GPU is reset.

    ## What to do
    On {host}, for the GPU at {device}: {action}. To drain it in Slurm: `scontrol update NodeName={host} State=DRAIN
    Reason=gpu`; to reset it, while no program uses the GPUs: `nvidia-smi -r`. Then `dmesg | grep -i xid`; if it comes
    back, have the GPU examined.

    ## Source
    NVIDIA, Analyzing Xid Errors with the Xid Catalog, immediate action; Fabric Manager User Guide, appendix D. Reported
    are those of the last seven days since the host was started. An error whose immediate action is a reset or a restart
    is one until that was done: the driver was loaded since, or reports that no recovery is needed (Xid 154,
    `gpu_recovery_action`), or counts no uncorrected error any more; others, and those that were followed, are
    warnings. A code that the catalog does not have makes the check unknown for a day. Codes that NVIDIA attributes to
    the program that ran (13, 31, 43, 45 and others), NVLink errors marked as non-fatal (144 to 150) and SXids that are
    not fatal are left out. The driver reports without a code that a GPU is gone or cannot be initialised ("fallen off
    the bus", "RmInitAdapter failed!"), and that an NVLink was not detected.
    """
    gpus = {gpu.bus.partition(".")[0]: gpu for gpu in inventory.gpus} if inventory else {}
    for event in xid_events(log):
        is_pending = event.demands_reset and not event.is_followed(log, gpus.get(event.device.partition(".")[0]))
        yield Finding(
            "{name} ({meaning}) on {device}{part}, {count} times, last {age}: {text}"
            if event.device
            else "{name} ({meaning}), {count} times, last {age}: {text}",
            name=f"{event.kind} {event.code}" if event.code else "the driver's message",
            kind=event.kind,
            code=event.code,
            meaning=event.meaning,
            device=event.device or None,
            part=f" {event.instance}" if event.instance else "",
            count=event.count,
            age=ago_text(event.age),
            text=event.text,
            action=event.action,
        ).as_warning(not is_pending)
    if unlisted := unlisted_xids(log):
        raise Unreadable(filled("NVIDIA's catalog does not have {0}", ", ".join(unlisted[:4])))
