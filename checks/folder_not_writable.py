import shlex
from collections.abc import Iterable, Iterator, Mapping

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.container import JobContainer
from doctor.facts.disk import DiskSpace, FileSystem

ADVISORY = ("fleet",)
NEEDED = ("/tmp", "/dev/shm")
"""Without them torchrun's agent and loader workers do not start."""


@check(severity=ERROR, area="memory", advisory=ADVISORY)
def folder_not_writable(
    disks: DiskSpace, view: JobContainer | None, fleet: PerHost[DiskSpace] | None
) -> Iterator[Finding]:
    """The folders that a job writes to exist and are writable.

    ## Why it matters
    A job that cannot write its logs, temporary files or checkpoints stops. Where /tmp or /dev/shm
    cannot be written, torchrun, data loader workers and the shared memory of the communication libraries fail at their
    start.

    ## What to do
    On {host}: {remedy}

    ## Source
    /tmp, /dev/shm, the home folder, the Ascend log folder and TMPDIR must be writable for the user who looks, which
    root always is but on a read-only file system. Within a job, its own TMPDIR, HOME and working folder are checked as
    well on every host. A folder other than /tmp and /dev/shm is an error where most hosts can write to it, and else a
    warning: a job of Gloo whose home, working folder and TMPDIR are read-only by design runs (measured with torchrun
    and loader workers), and only the job knows where its checkpoints go. A read-only /var/log is a warning. In a
    container, whose image may be read-only by design, each such folder is one. So is a TMPDIR that does not exist:
    Python takes /tmp instead (https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir), while mktemp(1)
    fails.
    """
    in_container = bool(view and view.engine)
    for disk in disks.file_systems:
        if disk.missing_folder:
            yield Finding(
                "{path}, the job's TMPDIR, is no folder; expected this folder on every host",
                path=disk.missing_folder,
                remedy=filled(
                    "where nothing has this name: `mkdir -p -m 1777 {0}`. Else, in the job's script, name a folder "
                    "that every host has: `export TMPDIR=/tmp`.",
                    shlex.quote(disk.missing_folder),
                ),
            ).as_warning()
        yield from _not_writable(disk, in_container, fleet or {})


def _most_write(path: str, fleet: Mapping[str, DiskSpace]) -> bool:
    """Whether most hosts can write to the folder."""
    refusing = [host for host, disks in fleet.items() if any(path in _refused(disk) for disk in disks.file_systems)]
    return len(refusing) * 2 < len(fleet)


def _refused(disk: FileSystem) -> Iterable[str]:
    own = (disk.job_folder,) if disk.read_only and disk.job_folder else ()
    return dict.fromkeys((*own, *disk.refused))


def _not_writable(disk: FileSystem, in_container: bool, fleet: Mapping[str, DiskSpace]) -> Iterator[Finding]:
    """Folders that a job writes to, and cannot."""
    for path in _refused(disk):
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
            if path in NEEDED:
                remedy = filled("`chmod 1777 {0}`, as it is for all users.", path)
        by_design = path == "/var/log" or (path not in NEEDED and not _most_write(path, fleet))
        yield Finding(template, path=path, remedy=remedy).as_warning(in_container or by_design)
