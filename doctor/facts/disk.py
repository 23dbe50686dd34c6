"""Room on the file systems that a job writes to."""

from __future__ import annotations

import os

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.job import LaunchConfig


def other_temporary_folder(arguments: ProbeArguments) -> str:
    """Runs on the host: what Python takes where /tmp cannot be written, on another file system; empty without one.

    tempfile.gettempdir() of Python: TMPDIR, then /tmp, /var/tmp and /usr/tmp, the first that takes a file.
    """
    device = os.stat("/tmp").st_dev
    for path in (arguments.get("temporary_folder"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp"):
        if path and os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK) and os.stat(path).st_dev != device:
            room = os.statvfs(path)
            if room.f_bavail and (room.f_favail or not room.f_files) and not room.f_flag & os.ST_RDONLY:
                return path
    return ""


def list_file_systems(arguments: ProbeArguments) -> list:  # type: ignore[type-arg]
    """Runs on the host: size and free room, in bytes and in files, of the file systems that a job writes to.

    ``folders`` are the job's own; a mount may be read-only where the same file system is not elsewhere.
    ``temporary_folder`` is one of them that must be there. Nothing is written: access(2) says who may.
    """
    home = os.path.expanduser("~")
    logs = os.environ.get("ASCEND_PROCESS_LOG_PATH") or os.path.join(home, "ascend", "log")
    job_folders = [folder for folder in arguments.get("folders", ()) if os.path.isdir(folder)]
    written = ["/tmp", "/dev/shm", os.environ.get("TMPDIR") or "/tmp"]
    written += [home, logs] if os.path.isdir(home) else []
    usual = ["/", "/var/log", home, logs, *written]
    by_mount: dict = {}  # type: ignore[type-arg]
    absent = [folder for folder in arguments.get("folders", ()) if folder not in job_folders]
    for path in dict.fromkeys(usual + absent + job_folders):
        job_folder = path if path in job_folders else ""
        missing_folder = path if path == arguments.get("temporary_folder") and path not in job_folders else ""
        is_written = path in written or path in job_folders
        while not os.path.isdir(path) and path != "/":
            path = os.path.dirname(path) or "/"
        room = os.statvfs(path)
        read_only = bool(room.f_flag & os.ST_RDONLY)
        refused = (read_only and path == "/var/log") or (is_written and path != "/" and not os.access(path, os.W_OK))
        counts = {"files": room.f_files, "files_free": room.f_favail, "read_only": read_only, "refused": []}
        sizes = {"size": room.f_blocks * room.f_frsize, "free": room.f_bavail * room.f_frsize}
        named = {"path": path, "job_folder": "", "missing_folder": "", "stand_in": ""}
        mount = by_mount.setdefault((os.stat(path).st_dev, read_only), dict(named, **sizes, **counts))
        if refused and path not in mount["refused"]:
            mount["refused"].append(path)
        if path == "/tmp":
            mount["stand_in"] = other_temporary_folder(arguments)
        mount["missing_folder"] = mount["missing_folder"] or missing_folder
        mount["job_folder"] = mount["job_folder"] or job_folder
    return list(by_mount.values())


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
    job_folder: str = ""
    """A folder on it that the job itself names: TMPDIR, HOME or its working folder."""
    missing_folder: str = ""
    """The job's TMPDIR, if it is not there and would lie on this file system."""
    stand_in: str = ""
    """Of that of /tmp: a folder on another one that Python takes where /tmp cannot be written."""
    refused: tuple[str, ...] = ()
    """Folders on it that a job writes to, and that this user may not: /tmp, /dev/shm, home, logs, TMPDIR, its own."""


def is_replaced(disk: FileSystem, launch: LaunchConfig, devices: int) -> bool:
    """Whether the job runs without this file system, as it takes another folder for /tmp.

    torchrun and its ranks do, on hosts without devices (measured); mpirun and Ray have folders in /tmp by name.
    """
    is_of_python = launch.inner_launcher == "torchrun" and not launch.outer_launcher
    return bool(disk.stand_in) and is_of_python and not devices


class DiskSpace(Fact, frozen=True):
    """The file systems of /, /tmp, /dev/shm, /var/log, the home folder and the Ascend logs, where the job runs.

    And those of the job's own folders: TMPDIR, HOME and the working folder.

    Raw output, as JSON::

        [{"path": "/", "size": 270553174016, "free": 46472548352,
          "files": 16777216, "files_free": 16151079, "read_only": false, "refused": []}]
    """

    probe = ask(list_file_systems, job=True, timeout=15)

    file_systems: tuple[FileSystem, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DiskSpace:
        file_systems = tuple(msgspec.convert(answer.json(), list[FileSystem]))
        if not file_systems or any(not 0 <= file_system.free <= file_system.size for file_system in file_systems):
            raise Unreadable("the sizes of the file systems are inconsistent")
        return cls(file_systems=file_systems)
