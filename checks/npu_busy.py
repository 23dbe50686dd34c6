from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.engine.fact import Unreadable
from doctor.facts.npu_table import NpuTable
from doctor.facts.processes import NpuProcesses


@check(severity=ERROR, area="devices")
def npu_busy(table: NpuTable, holders: NpuProcesses | None) -> Iterator[Finding]:
    """No process holds an NPU.

    ## Why it matters
    A leftover process of an earlier job keeps its memory and its ports on the NPU. The next job fails with `Failed to
    initialize the HCCP process ... Maybe the last training process is running` (EJ0001), with a port in use (EI0020),
    or out of memory.

    ## What to do
    Find its owner: `ps -o user,pid,lstart,args -p {pid}` on {host}. When it is not needed: `kill {pid}`; if it
    is still there after ten seconds: `kill -9 {pid}`.

    ## Source
    The process table of `npu-smi info`, not the memory in use, which is 3 to 4 GB on an idle NPU.
    """
    for process in table.processes:
        holder = holders.by_pid(process.pid) if holders else None
        yield Finding(
            "NPU {npu} is held by process {pid} ({name}), {megabytes} MB; expected none",
            npu=table.device_of(process),
            pid=process.pid,
            name=process.name or (holder.name if holder else "name not known"),
            megabytes=process.megabytes,
            user=holder.user if holder else "not known",
            running=f"{holder.seconds} s" if holder else "not known",
        )
    if table.process_problem:
        raise Unreadable(table.process_problem)
