"""The folder of a watch on one host: the hook that travels by environment, and what the ranks write."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from doctor.watch.hook import hook_text

VARIABLE = "DOCTOR_WATCH"
"""Names the folder in the job's environment."""
PLACES = ("/dev/shm", "/tmp")


class WatchFolder:
    """A folder that only this user can enter; gone with the watch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls) -> WatchFolder:
        """Raises: OSError where no place can be written to."""
        places = [place for place in PLACES if os.access(place, os.W_OK | os.X_OK)]
        folder = cls(Path(tempfile.mkdtemp(prefix="doctor-watch-", dir=places[0] if places else None)))
        folder.fill()
        return folder

    def fill(self) -> None:
        """Raises: OSError."""
        self.ranks.mkdir()
        self.hook.mkdir()
        (self.hook / "sitecustomize.py").write_text(hook_text(), "ascii")

    @property
    def ranks(self) -> Path:
        """Where each rank has its files."""
        return self.path / "ranks"

    @property
    def hook(self) -> Path:
        """What stands first in PYTHONPATH."""
        return self.path / "hook"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of the watched command."""
        paths = [str(self.hook), *filter(None, [environ.get("PYTHONPATH", "")])]
        return {**environ, VARIABLE: str(self.path), "PYTHONPATH": os.pathsep.join(paths)}

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
