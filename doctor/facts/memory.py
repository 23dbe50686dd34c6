"""Memory of a host: how much is free, and the shared part in /dev/shm."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Absent, Answer, Fact, Unreadable, ask, read
from doctor.job import Launch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DOCKER_DEFAULT = 64 * MIB
SHM_OF_A_RANK = 128 * MIB
LEAST_SHM = GIB


def size(count: int) -> str:
    """A number of bytes in words.

    >>> size(64 * MIB), size(1536 * MIB), size(300)
    ('64 MiB', '1.5 GiB', '300 bytes')
    """
    for unit, name in ((GIB << 10, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{round(count / unit, 1):g} {name}"
    return f"{count} bytes"


def ranks_here(launch: Launch, devices: int) -> int:
    """Ranks on one host: as the job is launched, else one a device; 0 when nothing tells."""
    given = launch.ranks_per_host
    return (max(given.values(), default=0) if isinstance(given, dict) else given) or devices


def wanted_shm(ranks: int) -> int:
    """Bytes of /dev/shm for so many ranks on one host: 128 MiB a rank, and never less than 1 GiB."""
    return max(LEAST_SHM, SHM_OF_A_RANK * ranks)


def look_at_shm(given: dict) -> dict:  # type: ignore[type-arg]
    import os

    if not os.path.isdir("/dev/shm"):
        return {"there": False}
    seen = os.statvfs("/dev/shm")
    inside = os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")
    try:
        with open("/proc/1/cgroup") as file:
            text = file.read()
        inside = inside or any(word in text for word in ("docker", "kubepods", "containerd", "/lxc"))
    except OSError:
        pass
    return {
        "there": True,
        "size": seen.f_blocks * seen.f_frsize,
        "free": seen.f_bavail * seen.f_frsize,
        "container": inside,
    }


class SharedMemory(Fact, frozen=True):
    """How large /dev/shm is where the job runs, and how much of it is free."""

    probe = ask(look_at_shm, job=True)

    size: int
    """Bytes; 0 stands for a /dev/shm without a limit of its own."""
    free: int
    """Bytes."""
    container: bool
    """It is that of a container, as far as can be told."""

    @classmethod
    def read(cls, answer: Answer) -> SharedMemory:
        seen = answer.json()
        if not seen["there"]:
            raise Absent("there is no /dev/shm")
        return msgspec.convert({key: seen[key] for key in ("size", "free", "container")}, cls)

    @property
    def limited(self) -> bool:
        return self.size > 0


def look_for_segments(given: dict) -> dict:  # type: ignore[type-arg]
    import errno
    import fcntl
    import os
    import re
    import signal
    import stat
    import time

    # A lease for writing is granted only while nobody else has the file open or mapped, in any container. The kernel
    # refuses it to one who may not have it, and before 5.3 it always refused in memory file systems.
    found = re.match("([0-9]+)[.]([0-9]+)", os.uname().release)
    if not found or (int(found.group(1)), int(found.group(2))) < (5, 3):
        return {"release": os.uname().release}
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    files, untold = [], 0
    for folder, _, names in os.walk("/dev/shm"):
        for name in names:
            path = os.path.join(folder, name)
            try:
                seen = os.lstat(path)
            except OSError:
                continue
            age = time.time() - seen.st_mtime
            if not stat.S_ISREG(seen.st_mode) or age < 600:
                continue
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            except OSError as error:
                untold += error.errno != errno.ENOENT
                continue
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                files.append({"path": path, "bytes": seen.st_blocks * 512, "age": int(age)})
            except OSError as error:
                untold += error.errno != errno.EAGAIN
            finally:
                os.close(fd)
    table = ""
    if os.path.exists("/proc/sysvipc/shm"):
        with open("/proc/sysvipc/shm") as file:
            table = file.read()
    return {"files": files, "untold": untold, "sysv": table, "now": time.time()}


class Segment(msgspec.Struct, frozen=True):
    """One piece of shared memory that nobody uses."""

    path: str
    """``/dev/shm/...``; for a System V segment its id."""
    bytes: int
    age: int
    """Seconds since it was last written or, for System V, attached."""


class IdleSegments(Fact, frozen=True):
    """Shared memory on the host that no process has open, mapped or attached, and that is older than ten minutes."""

    probe = ask(look_for_segments, root=True, timeout=20)

    files: tuple[Segment, ...]
    sysv: tuple[Segment, ...]

    @classmethod
    def read(cls, answer: Answer) -> IdleSegments:
        seen = answer.json()
        if "release" in seen:
            raise Absent(f"Linux {seen['release']} cannot tell who uses a file in /dev/shm; Linux 5.3 and later can")
        files = msgspec.convert(seen["files"], list[Segment])
        hidden = {"/dev/shm": f"files of other users, {seen['untold']} here, can be judged as root only: --sudo"}
        return cls(
            files=tuple(sorted(files, key=lambda one: (-one.bytes, one.path))),
            sysv=_unattached(seen["sysv"], seen["now"]),
            unread=hidden if seen["untold"] else {},
        )


def _unattached(table: str, now: float) -> tuple[Segment, ...]:
    """The rows of /proc/sysvipc/shm with no process attached. Raises: Unreadable."""
    lines = table.splitlines()
    names = lines[0].split() if lines else []
    if lines and not {"shmid", "size", "nattch", "atime", "dtime", "ctime"} <= set(names):
        raise Unreadable(f"/proc/sysvipc/shm: {lines[0][:80]!r} are not the columns expected")
    found = []
    for line in lines[1:]:
        row = dict(zip(names, (int(word) for word in line.split()), strict=True))
        age = int(now - max(row["atime"], row["dtime"], row["ctime"]))
        if row["nattch"] == 0 and age >= 600:
            held = row.get("rss", row["size"]) + row.get("swap", 0)
            found.append(Segment(str(row["shmid"]), held, age))
    return tuple(found)


class HostMemory(Fact, frozen=True):
    """The host's memory, in bytes."""

    probe = read("/proc/meminfo")

    total: int
    available: int
    """What programs can still get without swapping, as the kernel estimates it."""

    @classmethod
    def read(cls, answer: Answer) -> HostMemory:
        text = answer.text("/proc/meminfo")
        total, available = _field(text, "MemTotal"), _field(text, "MemAvailable")
        if not 0 <= available <= total or total == 0:
            raise Unreadable(f"/proc/meminfo: {available} of {total} bytes available makes no sense")
        return cls(total=total, available=available)


def _field(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+([0-9]{{1,15}}) kB$", text, re.M | re.A)
    if not found:
        raise Unreadable(f"/proc/meminfo: no {name}")
    return int(found[1]) * KIB
