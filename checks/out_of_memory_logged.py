from collections.abc import Iterator

from doctor import WARNING, Finding, ago_text, check
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="memory")
def out_of_memory_logged(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no process that the OOM killer ended.

    ## Why it matters
    A rank that the kernel ends leaves no message: all others wait for it. Where it happened to the last job, it is
    likely to happen to the next one.

    ## What to do
    On {host}: `dmesg | grep -iE 'out of memory|oom-kill'`. Memory cgroup: raise the limit, of a Slurm job `#SBATCH
    --mem=0`, of a container `docker run --memory 512g`. Else start fewer data loader workers (`DataLoader(...,
    num_workers=2)`), or end what fills the memory: `ps -eo pid,user,rss,args --sort=-rss | head`.

    ## Source
    Messages of the kernel, mm/oom_kill.c: "Out of memory: Killed process" and "Memory cgroup out of memory: Killed
    process"; kernels before 5.1 name the cause in a line of its own.
    """
    kills = log.of_row("out-of-memory")
    if kills:
        line, match = kills[0]
        yield Finding(
            "the OOM killer killed {count} processes in the last 24 hours, last {name} ({pid}) {age}",
            count=len(kills),
            name=match["name"],
            pid=int(match["pid"][:9]),
            age=ago_text(line.age),
            limit="of a cgroup" if (match["limit"] or "").startswith("Memory cgroup") else "of the host",
        )
