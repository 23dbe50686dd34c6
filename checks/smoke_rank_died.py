from collections.abc import Iterator
from functools import partial

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.diagnose.lookup import fix_of
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import DEVICE_MEMORY, OWN_ERROR, PROGRAM_LINE, failure_findings, own_program

RAISED = "The line of the program that raised it: `vi +{1} {0}`. Correct what the error names, there or in its data."
READ = "Read its own error in the job's log of that rank."
REMEDIES = (
    DEVICE_MEMORY,
    (
        (
            r"\b(?:CUDA|HIP|NPU) (?:error|failure|driver|runtime|function error)|\bcudaError"
            r"|\bC(?:UBLAS|UDNN)_STATUS"
            r"|\b(?:acl|aclrt|aclnn)[a-z]+ failed|error code is \d{6}|device-side assert|uncorrectable ECC"
            r"|fallen off the bus"
        ),
        "",
    ),
    (
        r"\bibv_\w+ .{0,80}Cannot allocate memory",
        "Raise the job's limit of locked memory: `ulimit -l unlimited` (LimitMEMLOCK=infinity of its service).",
    ),
    (
        r"(?:out of|insufficient|allocate) shared memory|No space left on device.{0,40}/(?:dev/shm|torch_)",
        "Make /dev/shm larger: `df -h /dev/shm`; `docker run --shm-size=64g` or `--ipc=host` for a container.",
    ),
    (
        r"\b(?:main thread|thread of gloo) ended",
        (
            "Its other threads go on, so that no launcher sees an end. A filter of system calls that ends threads: "
            "`dmesg | grep -i seccomp` on {host}, and the profile of the container (`docker run --security-opt seccomp="
            "<profile>`). Else native code that calls pthread_exit."
        ),
    ),
    (
        r"\banother process sent it signal 9",
        (
            "Nothing of the program failed: start it again (this test: `doctor smoke`). Where it comes back, find who "
            "sends the signal; it was not the kernel for memory. A time limit or a cancelled job: `sacct -j <job id> "
            "-o jobid,state%40,end`. The container's engine: `docker ps -a`, `kubectl describe pod <pod>`. A service "
            "that ends large processes early: `journalctl -u earlyoom -u systemd-oomd`. None of these: a person or a "
            "script typed `kill -9`."
        ),
    ),
    (
        (
            r"\bout of memory\b|\bmemory cgroup|\b(?:for|lack of) memory\b|\bcan(?:not|'t) allocate memory\b"
            r"|MemoryError|std::bad_alloc|\boom\b|oom[-_]?kill"
        ),
        (
            "Give the job or its control group more memory, or use less: `dmesg -T | grep -i -E 'oom|killed process'` "
            "shows what the kernel killed."
        ),
    ),
    (r"gloo::\w*Exception|Dist(?:Backend|Network|Store)Error", READ),
    (
        (
            r"\bsignal (?:11|6|7|4|8)\b|SIGSEGV|SIGABRT|SIGBUS|SIGILL|SIGFPE|Segmentation fault|memory corruption"
            r"|double free"
            r"|free\(\): invalid|corrupted (?:size|double-linked)|stack smashing"
        ),
        (
            "A crash in native code. `export PYTHONFAULTHANDLER=1` before the next start: the rank then prints the "
            "call in which it crashes. `doctor check --select "
            "torch-version-differs,cann-version-differs,gpu-driver-differs` names hosts with other versions."
        ),
    ),
    (
        r"\bsignal 9\b|SIGKILL|killed by signal: Killed|exit(?:code|ed|s)? ?:? ?-9\b",
        (
            "Find out what killed it: `dmesg -T | grep -i -E 'oom|killed process'`. If it prints a line, memory ran "
            "out: use a smaller batch, or give the job more (`--mem` of Slurm, `docker run -m`). If not, look for a "
            "time limit or a cancelled job (`sacct -j <job id>`, `docker events`), and for a person who typed `kill "
            "-9`; then start the job again."
        ),
    ),
    (
        r"\bsignal 15\b|SIGTERM",
        "Find out what ended it: the scheduler (`sacct`), the container's engine, an administrator.",
    ),
    (r"\bexit (?:status|code)\b|exitcode|\braised\b|\w(?:Error|Exception|Interrupt|Exit)\b|\bError\b", READ),
)


@check(severity=ERROR, area="smoke")
def smoke_rank_died(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """No rank dies while the others still need it.

    ## Why it matters
    When a rank dies, the others find a closed connection or wait for a timeout, and the most visible error comes from a
    waiting rank. Of all ranks that ended, the first is named here; the rest are consequences.

    ## What to do
    {remedy}

    Signal 9 and no memory left: `dmesg -T | grep -i -E 'oom|killed process'`, give the job or its cgroup more memory,
    or use less. Signal 11 or 6: a crash in native code; compare the versions of torch, torch_npu and the driver with
    the other hosts. An error of its own: read it in the job's log of that rank. A device error: read its health.
    - NPU: `npu-smi info`.
    - GPU: `dmesg | grep -i xid`.

    ## Source
    The host's agent reaps each rank and knows its exit status, whether the kernel killed it for memory (kernel log,
    cgroup), and its last output. Errors that follow from a lost connection are distinguished from errors of the rank
    itself.
    """
    look = partial(fix_of, of_program=run.watched)
    for finding in failure_findings(run, "{who} died {where}: {text}", "dead", remedies=REMEDIES, fix_of=look):
        if finding.values["remedy"] == READ:
            line = PROGRAM_LINE.match(finding.values["frame"])
            own = filled(RAISED, *line.groups()) if line else READ
            own = own if run.watched else own_program(run, OWN_ERROR)
            finding = finding.with_values(remedy=look(finding.values["text"]) or own)
        yield finding
