from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.smoke.further_stages import SmokeLoader
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import describe_ranks, remedy_for

REMEDIES = (
    (
        (
            r"\btoo many open files\b|\breceived 0 items of ancdata\b"
            r"|shared memory object \S+ in read[-/]write mode(?!:)"
        ),
        "Raise `ulimit -n` for the job (LimitNOFILE= of its service).",
    ),
    (
        r"\bAF_UNIX path too long\b",
        "A shorter path for temporary files, in the job's script: `export TMPDIR=/tmp`, or another local folder.",
    ),
    (r"\bFile too large\b", "Raise `ulimit -f` for the job (LimitFSIZE= of its service)."),
    (
        (
            r"\bbus error\b|(?:out of|insufficient|allocate) shared memory"
            r"|No space left on device.{0,40}/(?:dev/shm|torch_)"
            r"|(?:/dev/shm|/torch_)\S*:? .{0,40}No space left on device"
        ),
        (
            "Make /dev/shm larger, as root: `mount -o remount,size=64G /dev/shm`; after a restart it keeps the size "
            "with the line `tmpfs /dev/shm tmpfs size=64G 0 0` in /etc/fstab. In a container that is not possible: "
            "start it with `--shm-size=64g` or `--ipc=host`, a pod with an emptyDir of medium Memory at /dev/shm. "
            "`ls -lS /dev/shm` shows what fills it; `torch_*` files of processes that have ended may be deleted."
        ),
    ),
    (
        (
            r"(?<!unable to lock file, errno = 11, error message = ')resource temporarily unavailable"
            r"|can't start new thread"
        ),
        "Raise `ulimit -u` for the job, or pids.max of its control group (`docker run --pids-limit -1`).",
    ),
    (
        (
            r"killed by signal: Killed|\bsignal 9\b|SIGKILL|(?<!CUDA )(?<!NPU )(?<!HIP )\bout of memory\b"
            r"|cannot allocate memory"
            r"|^MemoryError|std::bad_alloc"
        ),
        "Check whether memory ran out: `dmesg -T | grep -i 'killed process'`; then more memory, or fewer workers.",
    ),
    (".", "The error is one of the loader's own: read all of it in the output of the rank."),
)
"""Whole phrases, those of a limit first: torch names shared memory in errors of every kind."""


@check(severity=ERROR, area="smoke")
def smoke_loader_failed(run: SmokeRun, loaders: PerHost[SmokeLoader]) -> Iterator[Finding]:
    """A data loader with worker processes works on every rank.

    ## Why it matters
    Workers pass their tensors through /dev/shm. Where it is small, a job with large batches dies with a bus error, or
    with "unable to allocate shared memory". Containers get 64 MB by default. The job dies in its first steps, or after
    hours, when all workers happen to be ahead.

    ## What to do
    {remedy}

    ## Source
    Each rank of the smoke run reads a few megabytes through torch's DataLoader with two workers. torch keeps the
    tensors that workers return in files of /dev/shm (multiprocessing, sharing strategy file_descriptor).
    """
    for host, fact in loaders.items():
        failed: dict[str, list[int]] = defaultdict(list)
        for event in fact.loaded:
            if event.text:
                failed[strip_control_chars(event.text, 300)].append(event.rank)
        for text, some in sorted(failed.items()):
            yield Finding(
                "the data loader of {who} failed: {text}",
                hosts=[host],
                who=describe_ranks(run, some),
                ranks=some,
                text=text,
                remedy=remedy_for(text, REMEDIES),
            )
