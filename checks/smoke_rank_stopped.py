from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.hang.exits import pause
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import describe_ranks, failure_findings


@check(severity=ERROR, area="smoke")
def smoke_rank_stopped(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """No rank is stopped or frozen.

    ## Why it matters
    A process that is stopped (SIGSTOP, a debugger, Ctrl-Z) or frozen (docker pause, the cgroup freezer, a suspended
    virtual machine) sends nothing and does not die. All others wait for it.

    ## What to do
    - Signal: on {host}, `ps -eo pid,user,stat,args | awk '$3 ~ /^T/'` lists the stopped processes, also that of {who};
      `ps -eo pid,stat | awk '$2 ~ /^T/ {print $1}' | xargs -r kill -CONT` continues them. Slurm suspends jobs that it
      preempts: `squeue -h -t S -o %A | xargs -rn1 scontrol resume` resumes those that the user may resume.
    - Debugger: on {host}, `grep -H TracerPid /proc/[0-9]*/status | grep -v ':.0$'` names the process that is held, and
      behind the colon its debugger. Continue it there, or end the debugger: `kill <pid>`.
    - Frozen: on {host}, `docker ps --filter status=paused` lists containers that are paused; `docker unpause
      <container>` lets one go on. Without docker: `grep -rlx 1 --include=cgroup.freeze /sys/fs/cgroup` names the
      control group, and `echo 0 > <file>` as root lets it go on.

    ## Source
    The process state of /proc/PID/stat (T, or in the freezer) of a rank, of one of its threads, or of the interpreter
    that is to become the ranks, for 60 s, the limit of this run. A job outlives a shorter stop: of a rank that went on
    after more than 2 s this is a warning. Who stopped it the kernel does not tell.
    """
    failed = {rank for failure in run.failures for rank in failure.culprit_ranks}
    findings = list(failure_findings(run, "{who} is {text} {where}; waiting: {waiting}", "stopped", "frozen"))
    for rank, stop in sorted(run.stops.items()):
        if rank not in failed:
            values = {"who": describe_ranks(run, [rank]), "text": pause({stop.process})[1], "state": stop.process}
            message = "{who} was {text} (state {state}) for {seconds} s, and went on"
            hosts = run.hosts((rank,))
            findings.append(Finding(message, hosts=hosts, seconds=f"{stop.seconds:.0f}", **values).as_warning())
    for finding in findings:
        text = str(finding.values["text"])
        finding.values["case"] = [label for label in ("Signal", "Debugger", "Frozen") if label.lower() in text]
        yield finding
