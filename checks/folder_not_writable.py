import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.container import JobContainer
from doctor.facts.disk import DiskSpace, FileSystem, is_replaced
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.facts.memory import ShmUse, accelerator_count
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig

NEEDED = ("/tmp", "/dev/shm")
"""Without a folder in place of /tmp torchrun does not start, without /dev/shm loader workers and NCCL do not."""


@check(severity=ERROR, area="memory")
def folder_not_writable(
    disks: PerHost[DiskSpace],
    views: PerHost[JobContainer] | None,
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    programs: PerHost[JobProgram] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The folders that a job writes to exist and are writable.

    ## Why it matters
    A job that cannot write its logs, temporary files or checkpoints stops. torchrun fails at its start where neither
    /tmp nor a folder in its place can be written. Data loader workers and the communication libraries of devices fail
    where /dev/shm cannot.

    ## What to do
    On {host}: {remedy}

    ## Source
    /tmp, /dev/shm, the home folder, the Ascend log folder and TMPDIR must be writable for the user who looks, which
    root always is but on a read-only file system. Within a job, its own TMPDIR, HOME and working folder are checked as
    well on every host. A folder other than /tmp and /dev/shm is an error where most hosts can write to it, and else a
    warning: a job of Gloo whose home, working folder and TMPDIR are read-only by design runs (measured with torchrun
    and loader workers), and only the job knows where its checkpoints go; launch-program-missing judges the folders that
    the launch line names. /dev/shm is an error as in shm-too-small, and /tmp as in disk-full. A read-only /var/log is a
    warning. In a container, whose image may be read-only by design, each such folder is one. So is a TMPDIR that does
    not exist:
    Python takes /tmp instead (https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir), while mktemp(1)
    fails.
    """
    refusing = Counter(path for own in disks.values() for path in set(_refused(*own.file_systems)))
    written_by_most = {path for path, hosts in refusing.items() if hosts * 2 < len(disks)}
    for host, own in disks.items():
        view = views.get(host) if views else None
        program = programs.get(host) if programs else None
        npu, gpu = npus.get(host) if npus else None, gpus.get(host) if gpus else None
        use, devices = ShmUse.of(npu, gpu, program, launch), accelerator_count(npu, gpu)
        needed = {*NEEDED, *written_by_most} - {"/var/log", *([] if use.fails_with(0) else ["/dev/shm"])}
        for disk in own.file_systems:
            spare = {"/tmp"} if is_replaced(disk, launch, devices) else set()
            for finding in _on_disk(disk, bool(view and view.engine), needed - spare):
                yield finding.with_host(host)


def _refused(*disks: FileSystem) -> Iterable[str]:
    """Folders that a job writes to, and cannot."""
    for disk in disks:
        yield from dict.fromkeys((*((disk.job_folder,) if disk.read_only and disk.job_folder else ()), *disk.refused))


def _on_disk(disk: FileSystem, in_container: bool, needed: Collection[str]) -> Iterator[Finding]:
    """``needed``: folders without which the job is known to fail, or that most hosts can write to."""
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
            remedy = filled(
                '`ls -ld {0}` and `id` show why. As the job\'s user, to own it: `sudo chown "$(id -un)" {1}`.',
                folder,
                folder,
            )
            if path in NEEDED:
                remedy = filled("`chmod 1777 {0}`, as it is for all users.", path)
        yield Finding(template, path=path, remedy=remedy).as_warning(in_container or path not in needed)
