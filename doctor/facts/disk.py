"""Room on the file systems that a job writes to."""

from __future__ import annotations

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, Unreadable, ask


def list_file_systems(arguments: dict) -> list:  # type: ignore[type-arg]
    """Runs on the host: size and free room, in bytes and in files, of the file systems that a job writes to."""
    import os

    home = os.path.expanduser("~")
    logs = os.environ.get("ASCEND_PROCESS_LOG_PATH") or os.path.join(home, "ascend", "log")
    file_systems, devices = [], set()
    for path in ("/", "/tmp", "/var/log", home, logs, os.environ.get("TMPDIR") or "/tmp"):
        while not os.path.isdir(path) and path != "/":
            path = os.path.dirname(path) or "/"
        device = os.stat(path).st_dev
        if device in devices:
            continue
        devices.add(device)
        room = os.statvfs(path)
        file_systems.append(
            {
                "path": path,
                "size": room.f_blocks * room.f_frsize,
                "free": room.f_bavail * room.f_frsize,
                "files": room.f_files,
                "files_free": room.f_favail,
                "read_only": bool(room.f_flag & os.ST_RDONLY),
            }
        )
    return file_systems


class FileSystem(msgspec.Struct, frozen=True):
    """One file system, by the first path that lies on it."""

    path: str
    size: int
    """Bytes."""
    free: int
    """Bytes that this user may still write."""
    files: int
    """How many files it can hold; 0: no such limit."""
    files_free: int
    read_only: bool


class DiskSpace(Fact, frozen=True):
    """The file systems of /, /tmp, /var/log, the home folder and the Ascend logs, where the job runs.

    Raw output, as JSON::

        [{"path": "/", "size": 270553174016, "free": 46472548352,
          "files": 16777216, "files_free": 16151079, "read_only": false}]
    """

    probe = ask(list_file_systems, job=True, timeout=15)

    file_systems: tuple[FileSystem, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DiskSpace:
        file_systems = tuple(msgspec.convert(answer.json(), list[FileSystem]))
        if not file_systems or any(not 0 <= file_system.free <= file_system.size for file_system in file_systems):
            raise Unreadable("the sizes of the file systems are inconsistent")
        return cls(file_systems=file_systems)
