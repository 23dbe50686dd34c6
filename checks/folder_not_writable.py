import shlex
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.container import JobContainer
from doctor.facts.disk import DiskSpace, FileSystem


@check(severity=ERROR, area="memory")
def folder_not_writable(disks: DiskSpace, view: JobContainer | None) -> Iterator[Finding]:
    """The folders that a job writes to exist and are writable.

    ## Why it matters
    A job that cannot write its logs, temporary files or checkpoints stops. Where /tmp or /dev/shm
    cannot be written, torchrun, data loader workers and the shared memory of the communication libraries fail at their
    start.

    ## What to do
    On {host}: {remedy}

    ## Source
    /tmp, /dev/shm, the home folder, the Ascend log folder and TMPDIR must be writable for the user who looks, which
    root always is but on a read-only file system. A read-only /var/log is a warning, and so is a home folder that is
    read-only with /, as on hosts without a disk of their own. Within a job, its own TMPDIR, HOME and working folder are
    checked as well on every host. In a container, whose image may be read-only by design, such a folder is a warning: a
    job of Gloo with loader workers runs without it (measured). A TMPDIR that does not exist is a warning: Python takes
    /tmp instead (https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir), while mktemp(1) fails.
    """
    in_container = bool(view and view.engine)
    for disk in disks.file_systems:
        if disk.missing_folder:
            yield Finding(
                "{path}, the job's TMPDIR, does not exist; expected this folder on every host",
                path=disk.missing_folder,
                remedy=filled(
                    "`mkdir -p -m 1777 {0}`. Or, in the job's script, name a folder that every host has: "
                    "`export TMPDIR=/tmp`.",
                    shlex.quote(disk.missing_folder),
                ),
            ).as_warning()
        yield from _not_writable(disk, in_container)


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
                "`mount -o remount,rw $(findmnt -n -o TARGET -T {1})`, and in /etc/fstab write `rw` for `ro`.",
                folder,
                folder,
            )
            if in_container:
                remedy = filled(
                    "the container needs a volume at {0}: `docker run --tmpfs {1}`, in Kubernetes an `emptyDir`.",
                    path,
                    folder,
                )
        else:
            template = "{path}: this user may not write there; expected a folder that the job's user may write to"
            remedy = filled("`ls -ld {0}` and `id` show why.", folder)
            if path in ("/tmp", "/dev/shm"):
                remedy = filled("`chmod 1777 {0}`, as it is for all users.", path)
        by_design = disk.path == "/" and path not in ("/tmp", "/dev/shm", *own)
        yield Finding(template, path=path, remedy=remedy).as_warning(in_container or by_design or path == "/var/log")
