import shlex
from collections.abc import Iterator

from doctor import ERROR, GIB, Finding, bytes_text, check, filled, joined
from doctor.facts.disk import DiskSpace, FileSystem, is_replaced
from doctor.facts.gpu import GpuCards
from doctor.facts.memory import accelerator_count
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig

MIN_FREE_BYTES, MIN_FREE_SHARE = GIB, 0.05
MIN_FREE_FILES, MIN_FREE_FILES_SHARE = 10_000, 0.01
ROOM_BELOW_ROOT = "Until there is room, in the job's script: `export TMPDIR=/var/tmp{0}`."
OLD_LOGS = "Old Ascend logs: `find ~/ascend/log -mtime +7 -delete`."


@check(severity=ERROR, area="memory")
def disk_full(
    disks: DiskSpace, npus: NpuInventory | None, gpus: GpuCards | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """The file systems that a job writes to have free space.

    ## Why it matters
    A job that cannot write its logs (`~/ascend/log`), compiled kernels, temporary files or checkpoints stops, and often
    leaves no log that would show why. A full disk is "No space left on device".

    ## What to do
    On {host}: {remedy}

    ## Source
    The limits are ours: less than 1 GiB that is also less than 5 %, or fewer than 10000 files that are also less than 1
    %. Checked are /, /tmp, /var/log, the home folder, the Ascend log folder and TMPDIR; within a job, also its own
    TMPDIR, HOME and working folder on every host. Quotas of users are not read. What is read-only has no room to want:
    `folder-not-writable` looks at that. A full /var/log that is a file system of its own is a warning: a job runs
    beside it (measured with torchrun). So is a full /tmp where torchrun starts the job on hosts without devices and
    TMPDIR or /var/tmp is on another file system with room, which Python takes (measured).
    """
    for disk in disks.file_systems:
        if not disk.read_only and disk.path != "/dev/shm":
            roots = [other for other in disks.file_systems if other.path == "/" and not other.read_only]
            is_replaced_tmp = disk.path == "/tmp" and is_replaced(disk, launch, accelerator_count(npus, gpus))
            is_spare = disk.path == "/var/log" or is_replaced_tmp
            room = [ROOM_BELOW_ROOT] if roots and not any(map(_is_full, roots)) else []
            logs = " ASCEND_PROCESS_LOG_PATH=/var/tmp/ascend-log" if npus else ""
            advice = [*(filled(text, logs) for text in room), *([OLD_LOGS] if npus else [])]
            yield from _no_room(disk, is_spare, joined(" ", advice))


def _is_full(disk: FileSystem) -> bool:
    return disk.free < min(MIN_FREE_BYTES, MIN_FREE_SHARE * disk.size)


def _no_room(disk: FileSystem, is_spare: bool, advice: str) -> Iterator[Finding]:
    """Too few bytes or files that could still be written.

    ``is_spare``: a job runs without it. ``advice``: what else to do.
    """
    if _is_full(disk):
        expected = bytes_text(int(min(MIN_FREE_BYTES, MIN_FREE_SHARE * disk.size)))
        yield Finding(
            "{path}: {observed} of {size} are free; expected at least {expected}",
            path=disk.path,
            observed=bytes_text(disk.free),
            size=bytes_text(disk.size),
            expected=expected,
            remedy=filled(
                "`du -axh {0} | sort -h | tail` shows the largest folders and files. {1}",
                shlex.quote(disk.path),
                advice,
            ),
        ).as_warning(is_spare)
    if disk.files_free < min(MIN_FREE_FILES, MIN_FREE_FILES_SHARE * disk.files):
        yield Finding(
            "{path}: {observed} of {size} inodes are free; expected at least {expected}",
            path=disk.path,
            observed=disk.files_free,
            size=disk.files,
            expected=max(1, int(min(MIN_FREE_FILES, MIN_FREE_FILES_SHARE * disk.files))),
            remedy=filled(
                "`du -x --inodes -d1 {0} | sort -n | tail` shows what has so many files. {1}",
                shlex.quote(disk.path),
                advice,
            ),
        ).as_warning(is_spare)
