"""How earlier runs of each job went: ``~/.local/state/doctor/pace/``, a file for each job, for its owner alone.

A job is known by its launch line, which is kept as a digest: it may hold secrets.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from doctor.engine.watch_summary import RunPace
from doctor.history.private_folder import PrivateFolder, packed

MOST_RUNS, MOST_JOBS = 16, 256
MAX_BYTES, MAX_DECODED = 4 << 20, 64 << 20
"""Of a file."""
_NAME = re.compile(r"[0-9a-f]{16}\.pace\Z", re.ASCII)
OF_ONE_RUN = ("--master-port", "--master-addr", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--node-rank")
"""Options whose values differ from run to run, or from host to host, of one job; also with ``_`` for ``-``."""


def job_identity(command: Sequence[str]) -> str:
    """A digest of the words of a launch line that are the same in each run, and on each host.

    >>> one = job_identity(["/usr/bin/torchrun", "--master-port", "29500", "train.py"])
    >>> one == job_identity(["torchrun", "--master_port=29501", "train.py"])
    True
    >>> one == job_identity(["torchrun", "--master_port=29501", "train.py", "--batch", "8"])
    False
    """
    kept, skips = [], False
    for number, word in enumerate(command):
        name, equals, _ = word.partition("=")
        is_of_run = name.replace("_", "-") in OF_ONE_RUN
        if not skips and not is_of_run:
            kept.append(os.path.basename(word) if number == 0 else word)
        skips = is_of_run and not equals
    return hashlib.sha256("\0".join(kept).encode("utf-8", "surrogateescape")).hexdigest()[:16]


class PaceFolder(PrivateFolder):
    """The opened folder. Others of this user may write to it at the same time."""

    name = "pace"

    def runs(self, job: str) -> list[RunPace]:
        """Kept runs of a job, oldest first; none where the file cannot be read."""
        return (self.read_packed(f"{job}.pace", list[RunPace], MAX_BYTES, MAX_DECODED) or [])[-MOST_RUNS:]

    def add(self, job: str, run: RunPace) -> None:
        runs = [*self.runs(job), run][-MOST_RUNS:]
        while runs:
            data = packed(runs)
            if len(data) <= MAX_BYTES:
                self.write_file(f"{job}.pace", data)
                break
            runs.pop(0)
        for name in self.jobs()[MOST_JOBS:]:
            with suppress(FileNotFoundError):
                os.unlink(f"{name}.pace", dir_fd=self.handle)
        self.remove_old_drafts(_NAME)

    def jobs(self) -> list[str]:
        """Of all jobs, the one that ran last first. Raises: OSError."""
        with os.scandir(self.handle) as entries:
            times = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.name) for entry in entries if _NAME.match(entry.name)
            ]
        return [name.partition(".")[0] for _, name in sorted(times, reverse=True)]


def last_runs(environ: Mapping[str, str], job: str, hosts: frozenset[str]) -> list[RunPace]:
    """Those of this job, else of the newest job that ran on some of these hosts; oldest first. Raises: OSError."""
    with PaceFolder.opened(environ, create=False) as folder:
        if folder is None:
            return []
        if job and (runs := folder.runs(job)):
            return runs
        for name in folder.jobs():
            runs = folder.runs(name)
            if runs and hosts & {pace.host.partition(".")[0] for pace in runs[-1].ranks.values()}:
                return runs
    return []
