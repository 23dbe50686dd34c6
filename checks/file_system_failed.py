from collections.abc import Iterator

from doctor import WARNING, Finding, ago_text, check
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="memory")
def file_system_failed(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no damaged or read-only file system, and no disk that failed.

    ## Why it matters
    Nothing can be written there until the host is repaired: logs, checkpoints and temporary files fail, and the disk
    beneath has errors.

    ## What to do
    On {host}: `dmesg | grep -iE 'ext4|xfs|i/o error|nvme'`, then `smartctl --scan | cut -d' ' -f1 | xargs -rn1 smartctl
    -H` tests the disks. Restart the host, which lets fsck or xfs_repair run (`reboot`), and have the disk replaced when
    the errors return.

    ## Source
    Messages of the kernel: fs/ext4/super.c "Remounting filesystem read-only", fs/xfs/xfs_fsops.c "Log I/O Error
    Detected" and "log I/O error" and "Filesystem has been shut down"; drivers/nvme/host "Disabling device after reset
    failure", before Linux 6.3 "Removing after probe failure"; drivers/md "Disk failure on"; fs/buffer.c "lost async
    page write"; "EXT4-fs error", "Metadata corruption detected", "BTRFS error"; drivers/nvme/host "controller is down"
    and "timeout, reset controller"; block/blk-core.c "I/O error, dev" of reads and writes.
    """
    templates = {
        "the file system": "the file system on {device} failed {age}: {text}",
        "the disk": "the disk {device} failed {age}: {text}",
    }
    for fault in log.merged_faults("file-system-failed"):
        yield Finding(templates[fault.row.meaning], device=fault.device, age=ago_text(fault.age), text=fault.text[:160])
