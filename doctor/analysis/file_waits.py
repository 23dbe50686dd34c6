"""Processes that a file system holds up: which file and mount, since when, and what to do about it. Pure."""

from __future__ import annotations

import msgspec

from doctor.engine.texts import filled, joined


class FileWait(msgspec.Struct, frozen=True):
    """The file that a process is held up by."""

    path: str
    mount: list[str]
    """Mount point, type and source, as ``["/data", "nfs4", "nas1:/export"]``; empty: not known."""
    seconds: float
    """Since its main thread last ran; -1: not known."""
    beside: list[tuple[int, str]]
    """Pid and name of others that hang in the same mount, but for the job's own ranks."""
    call: str = ""
    """What it asks of the file system: open, stat, read; empty: not known."""
    function: str = ""
    """The function of the kernel that it sleeps in."""

    @property
    def text(self) -> str:
        """Such as `` of /data/a.pt on /data (nfs4, nas1:/export) for 312 s; pid 7 (tar) hangs there as well``."""
        where = filled(" on {0} ({1}, {2})", *self.mount) if len(self.mount) == 3 else ""
        since = filled(" for {0} s", f"{self.seconds:.0f}") if self.seconds >= 1 else ""
        held = joined(", ", [filled("pid {0} ({1})", pid, name) for pid, name in self.beside[:4]])
        beside = filled("; also held up there: {0}", held) if held else ""
        if len(self.beside) > 4:
            beside = filled("{0} and {1} more", beside, len(self.beside) - 4)
        return filled(" of {0}{1}{2}{3}", self.path, where, since, beside)


FILE_WAITS = (
    (
        r"\(FUSE\)",
        (
            "`grep fuse /proc/mounts` on that host names the mount, `ps aux` shows whether the program that serves it "
            "runs. Start or continue it; `fusermount -uz MOUNT` lets go of what waits for it."
        ),
    ),
    (
        r"\(NFS\)",
        (
            "`nfsstat -m` on that host names the server, `dmesg -T | grep 'not responding'` since when it is silent. "
            "Bring the server or the way to it back: a hard mount waits for ever."
        ),
    ),
    (
        r"\(9P\)",
        (
            "`grep 9p /proc/mounts` in the virtual machine names the share. Look on its host at the process that "
            "serves it (QEMU), and at the storage below."
        ),
    ),
    (
        r"\(autofs\)",
        "`systemctl status autofs` on that host shows the automounter, `journalctl -u autofs` the mount it waits for.",
    ),
    (r"\(SMB\)", "`cat /proc/fs/cifs/DebugData` on that host shows the server and the open requests."),
    (r"\(Ceph\)", "`cat /sys/kernel/debug/ceph/*/mdsc` on that host shows the open requests, `ceph -s` the servers."),
    (r"\(Lustre\)", "`lfs check all` on that host names the servers that do not answer."),
    (r"\(Storage Scale\)", "`mmdiag --waiters` on that host shows what is waited for, and since when."),
    (r"\(fsfreeze\)", "`fsfreeze -u MOUNT` on that host thaws it; a snapshot or a backup has frozen it."),
    (
        r"\(fanotify\)",
        "`grep -l fanotify /proc/*/fdinfo/*` on that host, as root, names the program: a virus scanner or an auditor.",
    ),
)
"""By what `doctor.remote.runtime.kernel_waits` says of the wait."""
