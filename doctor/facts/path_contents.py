"""What is in the files and folders named with --path."""

from __future__ import annotations

import os
import stat
import time

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.texts import filled


def _checksum(path: str, size: int, end: float) -> str:
    """Of the content; of large files size, first and last mebibyte. Raises: OSError, TimeoutError at ``end``."""
    import hashlib  # here: it loads OpenSSL's library

    content = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if size > 1 << 32:
            content.update(str(size).encode())
            for offset in (0, size - (1 << 20)):
                os.lseek(fd, offset, os.SEEK_SET)
                content.update(os.read(fd, 1 << 20))
            return content.hexdigest()
        while True:
            if time.monotonic() > end:
                raise TimeoutError
            piece = os.read(fd, 1 << 20)
            if not piece:
                return content.hexdigest()
            content.update(piece)
    finally:
        os.close(fd)


def _look(path: str, end: float) -> dict[str, object]:
    real = os.path.realpath(path)
    info = os.stat(real)
    if stat.S_ISREG(info.st_mode):
        return {"kind": "file", "size": info.st_size, "files": 1, "checksum": _checksum(real, info.st_size, end)}
    if not stat.S_ISDIR(info.st_mode):
        return {"kind": "other", "problem": "neither a file nor a folder"}
    import hashlib

    content, size, count = hashlib.sha256(), 0, 0
    for folder, folders, names in os.walk(real):
        folders.sort()
        for name in sorted(names):
            inner = os.path.join(folder, name)
            info = os.lstat(inner)
            count += 1
            if count > 20000:
                return {"kind": "folder", "problem": "more than 20,000 files; name the ones that matter"}
            text = os.path.relpath(inner, real)
            if stat.S_ISREG(info.st_mode):
                size += info.st_size
                text += " " + _checksum(inner, info.st_size, end)
            elif stat.S_ISLNK(info.st_mode):
                text += " -> " + os.readlink(inner)
            content.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return {"kind": "folder", "size": size, "files": count, "checksum": content.hexdigest()}


def read_paths(arguments: ProbeArguments) -> dict[str, dict[str, object]]:
    """Runs on the host: kind, size, number of files and a checksum of each path; at most 45 s in all."""
    end = time.monotonic() + 45

    states = {}
    for path in arguments.get("paths", []):
        try:
            states[path] = _look(path, end)
        except TimeoutError:
            states[path] = {"kind": "large", "problem": "too large to be read in 45 s"}
        except OSError as error:
            kind, problem = (
                ("", "")
                if isinstance(error, (FileNotFoundError, NotADirectoryError))
                else ("unreadable", str(error.strerror))
            )
            states[path] = {"kind": kind, "problem": problem}
    return states


class PathState(msgspec.Struct, frozen=True):
    """One path on one host. Equal states are equal contents."""

    kind: str
    """file, folder; empty where there is nothing."""
    size: int = 0
    """Bytes."""
    files: int = 0
    checksum: str = ""
    """SHA-256, hexadecimal."""
    problem: str = ""
    """Why it was not read."""

    def describe(self) -> str:
        """Such as ``file of 1234 bytes, sha256 9f86d081``."""
        checksum = self.checksum[:8]
        if self.kind == "folder":
            return filled("folder of {0} files, {1} bytes, sha256 {2}", self.files, self.size, checksum)
        return filled("{0} of {1} bytes, sha256 {2}", self.kind, self.size, checksum)


class JobPaths(Fact, frozen=True):
    """The paths that the command line named, as the job sees them.

    Raw output, as JSON::

        {"/data/vocab.txt": {"kind": "file", "size": 231508, "files": 1, "checksum": "07eced375cec144d..."},
         "/data/train": {"kind": "", "problem": ""}}
    """

    probe = ask(read_paths, job=True, timeout=60)

    states: dict[str, PathState]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> JobPaths:
        states = msgspec.convert(answer.json(), dict[str, PathState])
        if not states:
            raise Absent("no path was named with --path")
        return cls(states=states)
