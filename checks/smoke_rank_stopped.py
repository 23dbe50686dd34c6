from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings


@check(severity=ERROR, area="smoke")
def smoke_rank_stopped(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """No rank is stopped or frozen.

    ## Why it matters
    A process that is stopped (SIGSTOP, a debugger, Ctrl-Z) or frozen (docker pause, the cgroup freezer, a suspended
    virtual machine) sends nothing and does not die; all others wait for it.

    ## What to do
    On {host}, `ps -eo pid,stat,args | awk '$2 ~ /^[Tt]/'` lists the stopped processes, and `grep TracerPid
    /proc/PID/status` shows a debugger; `kill -CONT PID` continues one. Frozen: `docker unpause NAME`, or `echo THAWED`
    to the freezer's state, or `echo 0` to `cgroup.freeze`. Slurm suspends jobs that it preempts: `scontrol resume`.

    ## Source
    The process state of /proc/PID/stat (T, or in the freezer) for more than a second, of a rank, of one of its threads,
    or of the interpreter that is to become the ranks. This verdict can be wrong about a debugger that would have let it
    go on a moment later.
    """
    yield from failure_findings(
        run,
        "{who} is {text} {where}; waiting for it: {waiting}",
        "stopped",
        "frozen",
    )
