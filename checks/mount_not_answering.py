import shlex
from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.mounts import MountAnswers, MountTable


@check(severity=WARNING, area="memory")
def mount_not_answering(table: MountTable, answers: MountAnswers) -> Iterator[Finding]:
    """Every network file system that a host has mounted answers.

    ## Why it matters
    A process that touches the mount hangs, and cannot be ended: a job that reads its data or writes its checkpoints
    there, a login whose home lies there, and `df`.

    ## What to do
    On {host}: {remedy}

    ## Source
    statfs(2) on each NFS, Lustre, GPFS, Ceph, BeeGFS and similar mount of /proc/self/mounts, in a process of its own
    that is given five seconds.
    """
    for mount in table.mounts:
        state = answers.states.get(mount.target, "ok")
        if state != "ok":
            yield Finding(
                "{target} ({kind} from {source}): {observed}",
                target=mount.target,
                kind=mount.kind,
                source=mount.source,
                observed="no answer in 5 s" if state == "no answer" else state,
                remedy=_remedy(mount.kind, mount.source, mount.target),
            )


def _remedy(kind: str, source: str, target: str) -> str:
    """How the mount comes back, by the kind of file system."""
    place, origin = shlex.quote(target), shlex.quote(source)
    if kind == "fuse.sshfs":
        return filled(
            "`grep sshfs /proc/mounts` shows the options; then `fusermount -uz {0}` and `sshfs {1} {0}` with these "
            "options.",
            place,
            origin,
        )
    if kind.startswith("fuse"):
        return filled("`fusermount -uz {0}`, then start the program that mounts it ({1}) again.", place, kind)
    family = "nfs" if kind.startswith("nfs") else kind.partition(".")[0]
    return filled(
        "`dmesg | grep -i {0}`; look at the service of {1} and the network to it. If it answers other hosts: "
        "`umount -f -l {2}`, then `mount {2}`.",
        shlex.quote(family),
        source,
        place,
    )
