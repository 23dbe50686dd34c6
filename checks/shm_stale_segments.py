import shlex
from collections.abc import Iterator

from doctor import MIB, WARNING, Finding, bytes_text, check, filled
from doctor.facts.memory import IdleSegments
from doctor.job import limit_items


@check(severity=WARNING, area="memory")
def shm_stale_segments(segments: IdleSegments) -> Iterator[Finding]:
    """No shared memory is left behind by jobs that have ended.

    ## Why it matters
    A job that was killed does not remove its shared memory. It takes memory of the host until the next start, and fills
    /dev/shm run by run until a job finds no room.

    ## What to do
    List them on {host}: `ls -l /dev/shm`, `ipcs -m`. Remove those of dead jobs: {remove}.

    ## Source
    shm_overview(7), shmctl(2): shared memory lives until it is removed. A file counts as left behind when no process
    has it open or mapped (the kernel would not grant a lease, fcntl(2) F_SETLEASE), and its name is one that PyTorch,
    Python's multiprocessing, NCCL, CUDA, an MPI, PSM, UCX or OpenMP makes anew for each run. Other files may be locks
    of a service, such as podman's libpod_lock, or data that somebody keeps there. A System V segment counts when none
    is attached, and it has no key by which a later program could find it (shmget(2), IPC_PRIVATE). Both when older
    than ten minutes, when no process lives that the name or the kernel's table names as the maker, and from 1 MiB in
    total: a few pages do no harm.
    """
    stale_segments = [*segments.files, *segments.sysv]
    total = sum(segment.bytes for segment in stale_segments)
    if total >= MIB:
        names = [
            segment.path if segment.path.startswith("/") else filled("segment {0}", segment.path)
            for segment in stale_segments
        ]
        remove = [f"`rm -- {shlex.quote(segment.path)}`" for segment in segments.files] + [
            f"`ipcrm -m {segment.path}`" for segment in segments.sysv
        ]
        yield Finding(
            "no process uses {observed} of shared memory that jobs left behind: {names}",
            observed=bytes_text(total),
            expected="none",
            names=limit_items(names, 4),
            remove=limit_items(remove, 8),
            count=len(stale_segments),
            objects=[segment.path for segment in stale_segments],
        )
