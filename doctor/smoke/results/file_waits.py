"""What to do about file systems that do not answer. Pure."""

from __future__ import annotations

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
    (
        r"\(SMB\)",
        "`cat /proc/fs/cifs/DebugData` on that host shows the server and the open requests.",
    ),
    (
        r"\(Ceph\)",
        "`cat /sys/kernel/debug/ceph/*/mdsc` on that host shows the open requests, `ceph -s` the servers.",
    ),
    (
        r"\(Lustre\)",
        "`lfs check all` on that host names the servers that do not answer.",
    ),
    (
        r"\(Storage Scale\)",
        "`mmdiag --waiters` on that host shows what is waited for, and since when.",
    ),
    (
        r"\(fsfreeze\)",
        "`fsfreeze -u MOUNT` on that host thaws it; a snapshot or a backup has frozen it.",
    ),
)
"""By what `doctor.remote.runtime.kernel_waits` says of the wait."""
