import shlex
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.container import JobContainer
from doctor.facts.disk import DiskSpace
from doctor.facts.memory import GIB, format_bytes

MIN_FREE_BYTES, MIN_FREE_SHARE = GIB, 0.05
MIN_FREE_FILES, MIN_FREE_FILES_SHARE = 10_000, 0.01
OLD_LOGS = (
    "Old Ascend logs: `find ~/ascend/log -mtime +7 -delete`. Send new ones elsewhere: `export "
    "ASCEND_PROCESS_LOG_PATH=<folder>`."
)


@check(severity=ERROR, area="memory")
def disk_full(disks: DiskSpace, view: JobContainer | None) -> Iterator[Finding]:
    """The file systems that a job writes to are writable and have free space.

    ## Why it matters
    Logs (`~/ascend/log`), compiled kernels, temporary files and checkpoints go to disk. When it is full the job ends
    with "No space left on device", and often without the log that would show why.

    ## What to do
    {remedy}

    ## Source
    The limits are ours: less than 1 GiB that is also less than 5 %, or fewer than 10000 files that are also less than 1
    %. Checked are /, /tmp, /var/log, the home folder, the Ascend log folder and TMPDIR. Within a job, its own TMPDIR,
    HOME and working folder are checked as well on every host, also for being writable. In a container, whose image may
    be read-only by design, such a folder is a warning: a job of Gloo with loader workers runs without it (measured).
    A TMPDIR that does not exist is a warning: Python takes /tmp instead
    (https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir), while mktemp(1) fails.
    """
    in_container = bool(view and view.engine)
    for disk in disks.file_systems:
        if disk.missing_folder:
            template = "{path}: is the job's TMPDIR, and no such folder exists; expected one on every host"
            remedy = filled(
                "Make it: `mkdir -p {0}`, or name a TMPDIR that every host has.", shlex.quote(disk.missing_folder)
            )
            yield Finding(template, path=disk.missing_folder, remedy=remedy).as_warning()
        if disk.read_only:
            if disk.job_folder:
                template = "{path}: is on a read-only file system; expected a writable one"
                folder = shlex.quote(disk.job_folder)
                remedy = filled(
                    "`findmnt -T {0}` shows how it is mounted, `dmesg | grep -iE 'remount|i/o error'` whether an "
                    "error of the disk made it so. If not: `mount -o remount,rw $(findmnt -n -o TARGET -T {1})`.",
                    folder,
                    folder,
                )
                yield Finding(template, path=disk.job_folder, remedy=remedy).as_warning(in_container)
            continue
        if disk.free < min(MIN_FREE_BYTES, MIN_FREE_SHARE * disk.size):
            expected = format_bytes(int(min(MIN_FREE_BYTES, MIN_FREE_SHARE * disk.size)))
            yield Finding(
                "{path}: {observed} of {size} are free; expected at least {expected}",
                path=disk.path,
                observed=format_bytes(disk.free),
                size=format_bytes(disk.size),
                expected=expected,
                remedy=filled(
                    "Find what fills it: `du -xh -d1 {0} | sort -h | tail`. {1}", shlex.quote(disk.path), OLD_LOGS
                ),
            )
        if disk.files_free < min(MIN_FREE_FILES, MIN_FREE_FILES_SHARE * disk.files):
            yield Finding(
                "{path}: {observed} of {size} inodes are free; expected at least {expected}",
                path=disk.path,
                observed=disk.files_free,
                size=disk.files,
                expected=int(min(MIN_FREE_FILES, MIN_FREE_FILES_SHARE * disk.files)),
                remedy=filled(
                    "Find what has so many files: `du -x --inodes -d1 {0} | sort -n | tail`. {1}",
                    shlex.quote(disk.path),
                    OLD_LOGS,
                ),
            )
