from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.memory import HostMemory, format_bytes

MIN_AVAILABLE_SHARE = 0.1


@check(severity=WARNING, area="memory")
def memory_short(memory: HostMemory) -> Iterator[Finding]:
    """At least a tenth of the host's memory is available.

    ## Why it matters
    When memory runs out the kernel kills the largest process, most often a rank (exit by signal 9), or HCCL cannot get
    its buffers (EI0007). A host that is short before the job starts is used by another user or by a leftover
    process.

    ## What to do
    Find the processes that hold it on {host}: `ps -eo pid,user,rss,etime,args --sort=-rss | head`.

    ## Source
    proc_meminfo(5), MemAvailable: what programs can get without swapping. The share is ours.
    """
    if memory.available < MIN_AVAILABLE_SHARE * memory.total:
        yield Finding(
            "{observed} of {total} of memory are available; expected at least {expected}",
            observed=format_bytes(memory.available),
            total=format_bytes(memory.total),
            expected=format_bytes(int(MIN_AVAILABLE_SHARE * memory.total)),
        )
