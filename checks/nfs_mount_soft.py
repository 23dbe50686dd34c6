from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.mounts import MountTable


@check(severity=WARNING, area="memory")
def nfs_mount_soft(table: MountTable) -> Iterator[Finding]:
    """Every NFS mount that the job may write to waits for its server as long as it takes.

    ## Why it matters
    With `soft`, a server that is slow for a moment makes a write fail. A program that does not notice it when it closes
    the file is left with a damaged checkpoint; one that does ends with `Input/output error`.

    ## What to do
    On {host}, in /etc/fstab or the automounter's map of {target}: `hard` in place of `{observed}`. Then, when no
    program uses it: `findmnt -s {target} && umount {target} && mount {target}`. A data set that is only read may stay
    soft: mount it with `ro`.

    ## Source
    nfs(5), options soft, softerr and hard: "A so-called 'soft' timeout can cause silent data corruption in certain
    cases"; `hard` is the default. /proc/self/mounts has the options in force. A mount that is read-only is left out.
    """
    for mount in table.mounts:
        observed = mount.option("soft", "softerr")
        if mount.is_nfs and observed and not mount.is_read_only:
            yield Finding(
                "{target} (NFS from {source}) is mounted with {observed}, and can be written to; expected hard",
                target=mount.target,
                source=mount.source,
                observed=observed,
                expected="hard",
            )
