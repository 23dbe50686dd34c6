"""Faults of memory, shared memory and disks."""

from __future__ import annotations

from tests.faults import Row
from tests.faults.kernel import grouped, limit

SIZE = "findmnt -n -o OPTIONS /dev/shm | tr , '\\n' | grep ^size="


def shm(size: str, more: str = "") -> tuple[str, str]:
    """Makes /dev/shm of another size, and as large as it was."""
    keep = f"{SIZE} >/run/kept.shm\nmount -o remount,size={size} /dev/shm\n"
    return keep + more, 'rm -f /dev/shm/full\nmount -o remount,"$(cat /run/kept.shm)" /dev/shm'


def small_tmp(options: str, fill: str) -> tuple[str, str]:
    """A /tmp of its own, that is filled."""
    return f"mount -t tmpfs -o {options} none /tmp\n{fill}", "umount /tmp"


FILL = "head -c {count} /dev/zero >{path} 2>/dev/null || true"
MEMINFO = "sed 's/^MemAvailable:.*/MemAvailable:    1024 kB/' /proc/meminfo >/run/meminfo\n"
STRICT = """\
sed 's|^CommitLimit:.*|CommitLimit: 1024 kB|; s|^Committed_AS:.*|Committed_AS: 2048 kB|' /proc/meminfo >/run/meminfo
mount --bind /run/meminfo /proc/meminfo
echo 2 >/run/overcommit
mount --bind /run/overcommit /proc/sys/vm/overcommit_memory
"""
"""The kernel's own setting is that of all hosts of this machine: each reads its own files instead."""

ROWS = [
    Row("address-space-limit-low", *limit("as", 3 << 30), fleet="cpu", values={"observed": "3 GiB", "letter": "v"}),
    Row("shm-docker-default", *shm("64m"), values={"observed": "64 MiB"}),
    Row("shm-docker-default", *shm("64m"), fleet="cpu"),
    Row("shm-too-small", *shm("512m"), values={"observed": "512 MiB", "expected": "1 GiB", "ranks": 8}),
    Row("shm-too-small", *shm("1g"), fleet="a3", values={"observed": "1 GiB", "expected": "2 GiB", "ranks": 16}),
    Row(
        "shm-full",
        *shm("20m", FILL.format(count=20 << 20, path="/dev/shm/full")),
        values={"size": "20 MiB"},
        also=("shm-too-small",),
    ),
    Row(
        "shm-stale-segments",
        FILL.format(count=4 << 20, path="/dev/shm/nccl-Xq3f9Z") + "\ntouch -d '2 hours ago' /dev/shm/nccl-Xq3f9Z",
        "rm /dev/shm/nccl-Xq3f9Z",
        host=2,
        values={"observed": "4 MiB", "count": 1, "objects": ["/dev/shm/nccl-Xq3f9Z"]},
    ),
    Row(
        "memory-short",
        *grouped("memory", "memory.limit_in_bytes", "1G", "memory.max=1G"),
        values={"total": "1 GiB", "expected": "8 GiB", "ranks": 8},
        apart=("npu-count-differs", "npu-missing"),  # a rank for each NPU
    ),
    Row("memory-short", MEMINFO + "mount --bind /run/meminfo /proc/meminfo", "umount /proc/meminfo", fleet="cpu"),
    Row(
        "disk-full",
        *small_tmp("size=8m", FILL.format(count=9 << 20, path="/tmp/full")),
        fleet="cpu",
        values={"path": "/tmp", "observed": "0 B"},
    ),
    Row(
        "disk-full",
        *small_tmp("size=8m,nr_inodes=100", "for n in $(seq 99); do : >/tmp/$n; done"),
        fleet="cpu",
        values={"path": "/tmp", "observed": 0, "size": 100},
    ),
    *(
        Row(
            "folder-not-writable",
            f"mount --bind {folder} {folder}\nmount -o remount,bind,ro {folder}",
            f"umount {folder}",
            fleet="cpu",
            values={"path": folder},
            says="read-only file system",
            apart=("*",),
            clause="are writable",
        )
        for folder in ("/tmp", "/dev/shm", "/root", "/var/log")
    ),
    Row(
        "folder-not-writable",
        "rmdir /run/doctor-scratch 2>/dev/null || true",
        fleet="cpu",
        environ={"TMPDIR": "/run/doctor-scratch", "SLURM_JOB_ID": "7"},
        blamed=(0, 1, 2, 3),
        values={"path": "/run/doctor-scratch"},
        clause="exist",
        healthy_first=False,
    ),
    Row(
        "overcommit-forbidden",
        STRICT,
        "umount /proc/sys/vm/overcommit_memory /proc/meminfo",
        fleet="cpu",
        values={"mode": 2, "observed": "0 B"},
    ),
]
