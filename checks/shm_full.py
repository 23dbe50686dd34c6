from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, bytes_text, check
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.facts.memory import SharedMemory, ShmUse
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig

MIN_FREE_SHARE = 0.1
MIN_FREE_FILES = 64


@check(severity=ERROR, area="memory")
def shm_full(
    shm: SharedMemory,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    program: JobProgram | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """At least a tenth of /dev/shm is free, or as much as the job needs, and 64 files fit in.

    ## Why it matters
    A full /dev/shm fails a job like one that is too small: "No space left on device", "failed to extend /dev/shm", or
    a bus error in a loader worker.

    ## What to do
    - Room: on {host}, `du -ah /dev/shm | sort -h | tail` shows the largest files. `for file in /dev/shm/*; do fuser -s
      "$file" || ls -l "$file"; done` lists those that no process uses; as root, `for file in /dev/shm/*; do fuser -s
      "$file" || rm -f "$file"; done` removes them. The check shm-stale-segments names what dead jobs left behind.
    - Files: on {host}, as root, `mount -o remount,nr_inodes=0 /dev/shm` lifts the limit until the next start. What
      mounts it with `nr_inodes`, such as a line of /etc/fstab, sets it again.

    ## Source
    tmpfs(5). The share is ours: a tenth, and only when less is free than shm-too-small asks for. So are the 64 files: a
    file system with `nr_inodes` may have fewer, and each tensor of a loader worker is one. It is an error where that
    check calls as little an error, and else a warning.
    """
    if not shm.there:
        raise Skip("there is no /dev/shm")
    use = ShmUse.of(npus, gpus, program, launch)
    if shm.limited and shm.free < MIN_FREE_SHARE * shm.size and shm.free < use.required:
        yield Finding(
            "{observed} of {size} are free in /dev/shm; expected at least {expected}",
            observed=bytes_text(shm.free),
            size=bytes_text(shm.size),
            case="Room",
            expected=bytes_text(min(use.required, int(MIN_FREE_SHARE * shm.size))),
        ).as_warning(not use.fails_with(shm.free))
    if 0 <= shm.files_free < MIN_FREE_FILES:
        yield Finding(
            "/dev/shm has room for {observed} more files; expected at least {expected}",
            observed=shm.files_free,
            case="Files",
            expected=MIN_FREE_FILES,
        ).as_warning(not use.fails_with(0))
