import re
from collections.abc import Iterator

from doctor import WARNING, Finding, ago_text, check, filled
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="kernel")
def task_hung_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no process that hung inside of the kernel.

    ## Why it matters
    Such a process waits for a disk, a network file system or a device driver that does not answer, and cannot be ended.
    A job that touches the same hangs as well.

    ## What to do
    On {host}: `dmesg | grep -A 25 'blocked for more than'` shows the functions in which it hangs: nfs and rpc mean a
    file server, nvidia a GPU, jbd2 and xfs a disk. A file server that does not answer: `for m in $(awk '$3 ~ /^nfs/
    {print $2}' /proc/self/mounts); do timeout 5 stat -t $m >/dev/null || umount -f -l $m; done`, then `mount -a`. Else
    repair that; if the process still does not go on: `reboot`.

    ## Source
    Linux, kernel/hung_task.c and kernel/watchdog.c: "INFO: task ... blocked for more than 120 seconds", "soft lockup",
    "hard LOCKUP"; kernel/rcu/tree_stall.h: "detected stall".
    """
    hung = log.of_row("task-hung")
    if hung:
        line, match = hung[0]
        yield Finding(
            "hung tasks that the kernel reported in 24 hours: {count}, the last {observed} {age}",
            count=len(hung),
            observed=_describe(match),
            age=ago_text(line.age),
        )


def _describe(match: re.Match[str]) -> str:
    if match["name"]:
        return filled("process {0} ({1})", match["pid"], match["name"])
    return (
        "a CPU that does not leave the kernel"
        if match["stall"]
        else filled("a locked CPU {0}", match["cpu"] or match["cpu2"])
    )
