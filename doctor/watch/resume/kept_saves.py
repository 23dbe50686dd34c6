"""Marks of saved checkpoints in the user's state folder: ``~/.local/state/doctor/resume/``, a file for each save."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from doctor.config.file import state_folder
from doctor.history.run_store import NoHistory, is_masked, open_private
from doctor.watch.resume.marks import MAX_MARK, Mark

FOLDER = "resume"
_NAME = re.compile(r"[0-9a-f]{12}-\d{12}-[0-9a-f]{12}\.save\Z", re.ASCII)
MAX_FILES, MAX_FILES_OF_JOB = 256, 24
MAX_BYTES = 256 << 20
"""Of all files together."""
MAX_COMPARED = 48
"""Saves that a training is compared with: the newest."""


class KeptSave(msgspec.Struct):
    """What the ranks of one host had when a checkpoint was saved."""

    command: str
    host: str
    world: int
    step: int
    at: float
    marks: list[Mark]


class SaveFolder:
    """The opened folder. Others of this user may write to it at the same time."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def names(self) -> list[str]:
        """The files of all saves, the newest first. Raises: OSError."""
        names = (name for name in os.listdir(self._handle) if _NAME.match(name))
        return sorted(names, key=lambda name: name[13:25], reverse=True)

    def write(self, save: KeptSave) -> None:
        """Keeps a save; one that was kept before is replaced. Raises: OSError."""
        identity = hashlib.sha256(f"{save.command} {save.host} {save.step} {save.world}".encode()).hexdigest()[:12]
        job = hashlib.sha256(save.command.encode()).hexdigest()[:12]
        name = f"{job}-{int(save.at):012d}-{identity}.save"
        data = zlib.compress(msgspec.msgpack.encode(save), 1)
        if len(data) > MAX_MARK:
            raise OSError(0, "the marks of a save are too large to be kept")
        draft = f".{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=self._handle), "wb") as file:
            file.write(data)
        os.rename(draft, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def prune(self) -> None:
        """Removes the oldest of what is too much. Raises: OSError."""
        total, of_job = 0, dict[str, int]()
        for number, name in enumerate(self.names()):
            with suppress(FileNotFoundError):
                total += os.stat(name, dir_fd=self._handle, follow_symlinks=False).st_size
                of_job[name[:12]] = of_job.get(name[:12], 0) + 1
                if total > MAX_BYTES or number >= MAX_FILES or of_job[name[:12]] > MAX_FILES_OF_JOB:
                    os.unlink(name, dir_fd=self._handle)

    def saves(self) -> Iterator[KeptSave]:
        """The newest, one by one; what cannot be read is left out. Raises: OSError."""
        for name in self.names()[:MAX_COMPARED]:
            with suppress(OSError, zlib.error, msgspec.DecodeError, RecursionError):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, dir_fd=self._handle), "rb") as file:
                    inflater = zlib.decompressobj()
                    content = inflater.decompress(file.read(MAX_MARK), 8 * MAX_MARK)
                if inflater.eof:
                    yield msgspec.msgpack.decode(content, type=KeptSave)


@contextmanager
def open_saves(environ: Mapping[str, str], create: bool) -> Iterator[SaveFolder | None]:
    """The user's folder; None where there is none, or none can be used."""
    base = state_folder(environ)
    is_in_home = not os.path.isabs(environ.get("XDG_STATE_HOME", ""))
    if base is None or (is_in_home and not os.path.isdir(environ["HOME"])) or is_masked(base / FOLDER):
        yield None
        return
    try:
        handle = open_private(base / FOLDER, create)
    except (OSError, NoHistory):
        yield None
        return
    try:
        yield SaveFolder(handle)
    finally:
        os.close(handle)
