from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.mounts import MountAnswers, MountTable


@check(severity=WARNING, area="memory")
def mount_not_answering(table: MountTable, answers: MountAnswers) -> Iterator[Finding]:
    """Every network file system that a host has mounted answers.

    ## Why it matters
    A process that touches the mount hangs, and cannot be ended: a job that reads its data or writes its checkpoints
    there, a login whose home lies there, and `df`.

    ## What to do
    On {host}: `dmesg | grep -iE 'nfs|lustre'`, then the network and the service of {source}. A stale handle: `umount -l
    {target}`, then `mount {target}`.

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
                expected="an answer",
            )
