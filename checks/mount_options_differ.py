from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, filled
from doctor.analysis.majority import differing
from doctor.facts.mounts import Mount, MountTable

NFS_OPTIONS = {
    "file locks": ("nolock", "local_lock"),
    "caching of attributes": ("noac", "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax"),
    "lookup cache": ("lookupcache",),
    "waiting for the server": ("soft", "softerr"),
}
"""Options of NFS by what they set; one that is not shown has its default, as has local_lock=none."""
WRITABLE = "`mount -o remount,rw {0}` makes it writable until the next start, where the server allows it."
ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="memory", single_host=ONE_HOST)
def mount_options_differ(mounts: PerHost[MountTable]) -> Iterator[Finding]:
    """A network file system is mounted alike on all hosts: writable, and with the same rules for locks and caches.

    ## Why it matters
    A host that may only read the folder fails when it writes a checkpoint or a cache there. With other rules for locks
    or caches it does not see what the others have locked or written. Two processes build the same cache at once, a rank
    reads an old file or finds none.

    ## What to do
    On {host}: `findmnt {target}` shows the mount. {now} On a host that is right, `findmnt -no
    SOURCE,TARGET,FSTYPE,OPTIONS {target}` prints the right line. Put it into /etc/fstab on {host}, with two zeros
    behind it; `grep -nw {target} /etc/fstab /etc/auto.*` prints where the old line is. When no program uses it:
    `findmnt -s {target} && umount {target} && mount {target}`.

    ## Source
    /proc/self/mounts of all hosts; the majority is the norm. nfs(5): ro, vers (locks are a part of version 4 alone),
    nolock and local_lock ("provide exclusion only against other applications running on the same client"), ac, noac
    and actimeo (data and metadata coherence), lookupcache, soft. Lustre Operations Manual, mount.lustre: flock,
    localflock and noflock. Minor versions of NFS and sizes of requests are left out: client and server agree on them.
    """
    by_host = {host: {mount.target: mount for mount in own.mounts} for host, own in mounts.items()}
    for target in sorted({target for own in by_host.values() for target in own}):
        having = {host: own[target] for host, own in by_host.items() if target in own}
        if len(having) < 2:
            continue
        if len({_family(mount) for mount in having.values()}) > 1:
            continue  # another file system, which mount-missing and the job's paths are about
        for setting in ("access", *_settings(next(iter(having.values())))):
            values = {host: _value(mount, setting) for host, mount in having.items()}
            for finding in differing(
                values,
                "{target} ({setting}): {observed}; {count} of {total} hosts have {expected}",
                target=target,
                setting=setting,
                now=filled(WRITABLE, target) if setting == "access" else "",
            ):
                # Hosts that only read, and one that prepares the data, are usual.
                if setting != "access" or finding.values.get("observed") == "read-only":
                    yield finding


def _family(mount: Mount) -> str:
    return "nfs" if mount.is_nfs else mount.kind


def _settings(mount: Mount) -> tuple[str, ...]:
    if mount.is_nfs:
        return ("version", *NFS_OPTIONS)
    return ("file locks",) if mount.kind == "lustre" else ()


def _value(mount: Mount, setting: str) -> str:
    """A setting as text."""
    if setting == "access":
        return "read-only" if mount.is_read_only else "read and write"
    if setting == "version":
        version = mount.option("vers", "nfsvers").partition("=")[2] or ("4" if mount.kind == "nfs4" else "3")
        return filled("version {0}", version.partition(".")[0])
    if mount.kind == "lustre":
        return mount.option("flock", "localflock", "noflock") or "noflock"
    shown = mount.option(*NFS_OPTIONS[setting])
    return "the default" if shown in ("", "local_lock=none") else shown
