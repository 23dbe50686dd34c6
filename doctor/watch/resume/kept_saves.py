"""Marks of saved checkpoints in the user's state folder: ``~/.local/state/doctor/resume/``, a file for each save."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from doctor.history.private_folder import PrivateFolder, packed
from doctor.watch.resume.marks import MAX_MARK, Mark

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


class SaveFolder(PrivateFolder):
    """The opened folder. Others of this user may write to it at the same time."""

    name = "resume"

    def names(self) -> list[str]:
        """The files of all saves, the newest first. Raises: OSError."""
        names = (name for name in os.listdir(self.handle) if _NAME.match(name))
        return sorted(names, key=lambda name: name[13:25], reverse=True)

    def write(self, save: KeptSave) -> None:
        """Keeps a save; one that was kept before is replaced. Raises: OSError."""
        identity = hashlib.sha256(f"{save.command} {save.host} {save.step} {save.world}".encode()).hexdigest()[:12]
        job = hashlib.sha256(save.command.encode()).hexdigest()[:12]
        name = f"{job}-{int(save.at):012d}-{identity}.save"
        data = packed(save)
        if len(data) > MAX_MARK:
            raise OSError(0, "the marks of a save are too large to be saved")
        self.write_file(name, data)

    def prune(self) -> None:
        """Removes the oldest of what is too much, and what killed writers left. Raises: OSError."""
        self.remove_old_drafts(_NAME)
        total, of_job = 0, dict[str, int]()
        for number, name in enumerate(self.names()):
            with suppress(FileNotFoundError):
                total += os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_size
                of_job[name[:12]] = of_job.get(name[:12], 0) + 1
                if total > MAX_BYTES or number >= MAX_FILES or of_job[name[:12]] > MAX_FILES_OF_JOB:
                    os.unlink(name, dir_fd=self.handle)

    def saves(self) -> Iterator[KeptSave]:
        """The newest, one by one; what cannot be read is left out. Raises: OSError."""
        for name in self.names()[:MAX_COMPARED]:
            save = self.read_packed(name, KeptSave, MAX_MARK, 8 * MAX_MARK)
            if save:
                yield save
