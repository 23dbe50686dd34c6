from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import DAY, KernelLog, format_age

FAILED = (
    r"\(([\w/.:-]{1,60})\).*([Rr]emounting filesystem read-only|[Ll]og I/O [Ee]rror|has been shut down"
    r"|shut down due to|I/O error while writing superblock)"
)
GIVEN_UP = (
    r"(nvme[0-9]+): (?:Disabling device after reset|Removing after probe) failure"
    r"|md/raid\S{1,12}: Disk failure on ([\w!.-]{1,40})"
    r"|Buffer I/O error on dev(?:ice)? ([\w!.-]{1,40}), .{0,60}lost async page write"
)


@check(severity=WARNING, area="memory")
def file_system_failed(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no file system made read-only or shut down, and no disk given up.

    ## Why it matters
    Nothing can be written there until the host is repaired: logs, checkpoints and temporary files fail, and the disk
    beneath has errors.

    ## What to do
    On {host}: `dmesg | grep -iE 'ext4|xfs|i/o error|nvme'`, then `smartctl -a` of the disk. Restart the host, let fsck
    or xfs_repair run, and have the disk replaced when the errors return.

    ## Source
    Messages of the kernel: fs/ext4/super.c "Remounting filesystem read-only", fs/xfs/xfs_fsops.c "Log I/O Error
    Detected" and "log I/O error" and "Filesystem has been shut down"; drivers/nvme/host "Disabling device after reset
    failure", before Linux 6.3 "Removing after probe failure"; drivers/md "Disk failure on"; fs/buffer.c "lost async
    page write".
    """
    failures = log.matching(FAILED, DAY)
    for device in dict.fromkeys(match[1] for _, match in failures):
        line, match = next((line, match) for line, match in failures if match[1] == device)
        yield Finding(
            "the file system on {device} failed {age}: {text}",
            device=device,
            age=format_age(line.age),
            text=match.string[:160],
        )
    given_up = log.matching(GIVEN_UP, DAY)
    names = [next(filter(None, match.groups()), "") for _, match in given_up]
    for device in dict.fromkeys(names):
        line, match = given_up[names.index(device)]
        yield Finding(
            "the disk {device} failed {age}: {text}", device=device, age=format_age(line.age), text=match.string[:160]
        )
