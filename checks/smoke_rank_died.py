from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings

REMEDIES = (
    (r"\b(?:npu|acl|cuda|hip|device)", ""),
    (
        r"memory|\boom\b",
        (
            "Give the job or its control group more memory, or use less: `dmesg -T | grep -i -E 'oom|killed process'` "
            "shows what the kernel killed."
        ),
    ),
    (
        r"signal (?:11|6|7|4|8)\b|SIGSEGV|SIGABRT|SIGBUS",
        (
            "A crash in native code: compare the versions of torch, torch_npu and the driver with those of the other "
            "hosts."
        ),
    ),
    (
        r"signal 9\b|SIGKILL",
        (
            "Find out what killed it: `dmesg -T | grep -i -E 'oom|killed process'` for memory; else the scheduler, or "
            "the container's engine."
        ),
    ),
    (
        r"signal 15\b|SIGTERM",
        "Find out what ended it: the scheduler (`sacct`), the container's engine, an administrator.",
    ),
    (r"exit|raised|error", "Read its own error in the job's log of that rank."),
)
"""The memory, or the error, of a device is no matter of the host's memory: the page has what to do."""


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
    the other hosts. An error of its own: read it in the job's log of that rank. A device error: read its health. NPU:
    `npu-smi info -t health -i N`. GPU: `dmesg | grep -i xid`.

    ## Source
    The host's agent reaps each rank and knows its exit status, whether the kernel killed it for memory (kernel log,
    cgroup), and its last output. Errors that follow from a lost connection are distinguished from errors of the rank
    itself.
    """
    yield from failure_findings(
        run,
        "{who} died {where}: {text}",
        "dead",
        remedies=REMEDIES,
    )
