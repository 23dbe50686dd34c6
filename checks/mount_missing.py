from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.analysis.majority import tied
from doctor.facts.mounts import MountTable

ABSENT = "not mounted"


@check(severity=WARNING, area="memory")
def mount_missing(mounts: PerHost[MountTable]) -> Iterator[Finding]:
    """Every host has the network file systems that most hosts have mounted.

    ## Why it matters
    On the host without it, the job finds no data and no programs, or writes its checkpoints to the local disk.

    ## What to do
    On {host}: `mount {target}` if /etc/fstab has it, else `mkdir -p {target}` and `mount -t {kind} {source} {target}`,
    with the options that `findmnt {target}` shows on another host.

    ## Source
    /proc/self/mounts of all hosts. A mount that more than half of them have, and at least two, is expected on all;
    where half of them have it, the difference is named, and no host.
    Mounts of containers' runtimes and of users' sessions lie in other folders on each host, and so are no finding; nor
    is one that the host mounts as soon as a process goes there (autofs, systemd.automount).
    """
    if len(mounts) < 3:
        raise Skip("fewer than three hosts cannot be compared")
    targets = {host: {mount.target: mount for mount in own.mounts} for host, own in mounts.items()}
    for target in sorted({target for own in targets.values() for target in own}):
        having = [host for host, own in targets.items() if target in own]
        lacking = [host for host in targets if host not in having and not mounts[host].is_automounted(target)]
        if len(having) < 2 or 2 * len(having) < len(targets) or not lacking:
            continue
        mount = targets[having[0]][target]
        if len(having) == len(lacking):
            yield tied({mount.source: having, ABSENT: lacking}, target=target, kind=mount.kind, source=mount.source)
            continue
        yield Finding(
            "{target} ({kind}) is not mounted; {count} of {total} hosts have it from {source}",
            hosts=lacking,
            target=target,
            kind=mount.kind,
            source=mount.source,
            count=len(having),
            total=len(targets),
        )
