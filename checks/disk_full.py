import shlex
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.container import JobContainer
from doctor.facts.disk import DiskSpace, FileSystem
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
    A job that cannot write its logs (`~/ascend/log`), compiled kernels, temporary files or checkpoints stops, and often
    leaves no log that would show why. A full disk is "No space left on device". Where /tmp or /dev/shm cannot be
    written, torchrun, data loader workers and the shared memory of the communication libraries fail at their start.

    ## What to do
    {remedy}

    ## Source
    The limits are ours: less than 1 GiB that is also less than 5 %, or fewer than 10000 files that are also less than 1
    %. Checked are /, /tmp, /var/log, the home folder, the Ascend log folder and TMPDIR; quotas of users are not read.
    /tmp, /dev/shm, the home folder, the Ascend log folder and TMPDIR must be writable for the user who looks, which
    root always is but on a read-only file system. A read-only /var/log is a warning, and so is a home folder that is
    read-only with /, as on hosts without a disk of their own. Within a job, its own TMPDIR,
    HOME and working folder are checked as well on every host, also for being writable. In a container, whose image may
    be read-only by design, such a folder is a warning: a job of Gloo with loader workers runs without it (measured).
    A TMPDIR that does not exist is a warning: Python takes /tmp instead
    (https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir), while mktemp(1) fails.
    """
    in_container = bool(view and view.engine)
    for disk in disks.file_systems:
        if disk.missing_folder:
            template = "{path}, the job's TMPDIR, does not exist; expected this folder on every host"
            remedy = filled(
                "On every host: `mkdir -p {0}`, or set TMPDIR to a folder that every host has.",
                shlex.quote(disk.missing_folder),
            )
            yield Finding(template, path=disk.missing_folder, remedy=remedy).as_warning()
        yield from _not_writable(disk, in_container)
        if not disk.read_only and disk.path != "/dev/shm":
            yield from _no_room(disk)


def _not_writable(disk: FileSystem, in_container: bool) -> Iterator[Finding]:
    """Folders that a job writes to, and cannot."""
    own = (disk.job_folder,) if disk.read_only and disk.job_folder else ()
    for path in dict.fromkeys((*own, *disk.refused)):
        folder = shlex.quote(path)
        if disk.read_only:
            template = "{path} is on a read-only file system; expected a writable one"
            remedy = filled(
                "`findmnt -T {0}` shows how it is mounted, `dmesg | grep -iE 'remount|i/o error'` whether the disk had "
                "errors. With errors: take the host out of use and replace the disk. Without: "
                "`mount -o remount,rw $(findmnt -n -o TARGET -T {1})`, and correct /etc/fstab.",
                folder,
                folder,
            )
            if in_container:
                remedy = filled(
                    "Give the container a volume at {0}: an `emptyDir` in Kubernetes, `docker run --tmpfs {1}`.",
                    path,
                    folder,
                )
        else:
            template = "{path}: this user may not write there; expected a folder that the job's user may write to"
            remedy = filled("`ls -ld {0}` and `id` show why.", folder)
            if path in ("/tmp", "/dev/shm"):
                remedy = filled("{0} is for all users: `chmod 1777 {1}`.", path, path)
        by_design = disk.path == "/" and path not in ("/tmp", "/dev/shm", *own)
        yield Finding(template, path=path, remedy=remedy).as_warning(in_container or by_design or path == "/var/log")


def _no_room(disk: FileSystem) -> Iterator[Finding]:
    """Too few bytes or files that could still be written."""
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
