"""Network file systems that a host has mounted, and whether they answer."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask, read

_FUSE = (
    *("glusterfs", "juicefs", "ceph-fuse", "sshfs", "curvefs", "rclone", "hf3fs", "moosefs", "mfs", "seaweedfs"),
    *("s3fs", "mount-s3", "goofys", "geesefs", "gcsfuse", "blobfuse", "blobfuse2", "ossfs", "ossfs2", "obsfs", "cosfs"),
    *("alluxio-fuse", "alluxio", "jindofs-fuse", "goosefs-fuse", "fuse_dfs", "quobyte"),
)
KINDS = frozenset(
    (
        *("nfs", "nfs4", "lustre", "gpfs", "ceph", "beegfs", "cifs", "smb3", "wekafs", "dpc", "JuiceFS"),
        *("panfs", "orangefs", "pvfs2", "afs", "9p", "virtiofs", "gfs2", "ocfs2", "glusterfs"),
        *(f"fuse.{name}" for name in _FUSE),
    )
)
"""Types of file systems that need a server."""
DISK_KINDS = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "vfat", "tmpfs", "hugetlbfs")
)
"""Types of file systems on disks of the host, or in its memory."""
PASSED_OVER = re.compile(r"/(?:var/lib/(?:kubelet|docker|containers)|run|snap|etc|proc|sys)(?:/|$)")
"""Folders where mounts come and go with each container or login, or have a fact for themselves."""
MAX_MOUNTS = 64
MAX_OPTIONS = 2000
"""Characters of a mount's options."""


class Mount(msgspec.Struct, frozen=True):
    """One mounted network file system."""

    target: str
    source: str
    kind: str
    options: tuple[str, ...] = ()
    """As the kernel has them in force, such as rw, vers=4.2, hard."""

    @property
    def is_nfs(self) -> bool:
        return self.kind in ("nfs", "nfs4")

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options

    def option(self, *names: str) -> str:
        """The options among these, with their values, in the order of the names; empty for none.

        >>> Mount("/data", "nas1:/data", "nfs", ("rw", "vers=3", "nolock")).option("local_lock", "nolock")
        'nolock'
        """
        by_name = {option.partition("=")[0]: option for option in self.options}
        return ",".join(by_name[name] for name in names if name in by_name)


class MountTable(Fact, frozen=True):
    """The file systems that the job's processes see, of the network and of disks.

    Raw output, from ``/proc/self/mounts``::

        nas1:/export/data /data nfs4 rw,relatime,vers=4.2,hard,proto=tcp 0 0
        /dev/sda1 / ext4 rw,relatime 0 0
    """

    probe = read("/proc/self/mounts", job=True, limit=1 << 20)

    mounts: tuple[Mount, ...]
    automounts: tuple[str, ...] = ()
    """Paths where a mount appears as soon as a process goes there (type autofs)."""
    disks: tuple[Mount, ...] = ()
    """File systems on disks of the host, or in its memory."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> MountTable:
        rows = [line.split() for line in answer.text("/proc/self/mounts").splitlines()]
        rows = [row for row in rows if len(row) > 3 and row[1].startswith("/")]
        if not rows:  # every process has a root
            raise Unreadable("/proc/self/mounts: expected lines of four columns")
        every = [Mount(_unescape(row[1]), row[0], row[2], tuple(row[3][:MAX_OPTIONS].split(","))) for row in rows]
        mounts = [mount for mount in every if mount.kind in KINDS]
        disks = [mount for mount in every if mount.kind in DISK_KINDS and not PASSED_OVER.match(mount.target)]
        automounts = [_unescape(row[1]) for row in rows if row[2] == "autofs"]
        return cls(tuple(mounts[:MAX_MOUNTS]), tuple(automounts[:MAX_MOUNTS]), tuple(disks[:MAX_MOUNTS]))

    def is_automounted(self, target: str) -> bool:
        """Whether a path is, or lies in, one where mounts appear when they are needed."""
        return any(target == path or target.startswith(f"{path.rstrip('/')}/") for path in self.automounts)


def _unescape(path: str) -> str:
    """A path of the table; blanks in it are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def try_mounts(arguments: ProbeArguments) -> list[list[str]]:
    """Runs on the host: what becomes of statfs on each path, tried in a process of its own that has five seconds."""
    mounts = [[path, "no answer"] for path in arguments[arguments["asked"]]]  # type: ignore[literal-required]
    waiting = {}
    for mount in mounts:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(1)
            os.close(reader)
            try:
                os.statvfs(mount[0])
                text = "ok"
            except OSError as error:
                text = error.strerror or "error"
            os.write(writer, text.encode("utf-8", "replace"))
            os._exit(0)
        os.close(writer)
        waiting[reader] = mount
    end = time.monotonic() + 5
    ready = [0]
    while waiting and ready:  # what has come is read, however late
        ready = select.select(list(waiting), [], [], max(0, end - time.monotonic()))[0]
        for reader in ready:
            text = os.read(reader, 200).decode("utf-8", "replace")
            waiting.pop(reader)[1] = text or "no answer"
            os.close(reader)
    return mounts


class MountAnswers(Fact, frozen=True):
    """What each network file system answers.

    Raw output, as JSON::

        [["/data", "ok"], ["/home", "no answer"]]
    """

    probe = ask(try_mounts, job=True, timeout=15)
    needs = (MountTable,)
    not_planned_reason = "no network file system is mounted"

    states: dict[str, str]
    """By path: ok, no answer (in 5 s), or the error of statfs, such as Stale file handle."""

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        """Only where something is mounted."""
        return {
            host: [mount.target for mount in table.mounts]
            for host, table in fleet_facts[MountTable].items()
            if table.mounts
        }

    @classmethod
    def read(cls, answer: ProbeAnswer) -> MountAnswers:
        return cls(states=dict(msgspec.convert(answer.json(), list[tuple[str, str]])))
