"""Starts the ranks of `attach_job.py` without any preparation, and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("attach_job.py")


class Job:
    """Ranks on this host, one process each."""

    def __init__(self, folder: Path, fault: str, culprit: int, world: int = 4, **environ: str) -> None:
        self.folder, self.fault, self.culprit, self.world = folder, fault, culprit, world
        folder.mkdir(parents=True, exist_ok=True)
        fifo = folder / "fifo"
        os.mkfifo(fifo)
        self._writer = os.open(fifo, os.O_RDWR)
        """Keeps the FIFO open, so that its readers wait."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        base = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": str(world),
            "JOB_FIFO": str(fifo),
            "JOB_FOLDER": str(folder),
            "JOB_TEST": str(os.getpid()),
            "OMP_NUM_THREADS": "1",
            **environ,
        }
        for name in ("SLURM_JOB_ID", "SLURM_PROCID"):
            base.pop(name, None)
        self._errors = [(folder / f"{rank}.err").open("wb") for rank in range(world)]
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), fault, str(culprit)],
                env={**base, "RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors[rank],
                start_new_session=True,
            )
            for rank in range(world)
        ]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.ranks]

    def wait_until_faulty(self, seconds: float = 120.0) -> None:
        """Until every rank has come to the step of the fault; a rank that is to be stopped is stopped."""
        deadline = time.monotonic() + seconds
        while len(list(self.folder.glob("*.ready"))) < self.world:
            if time.monotonic() > deadline:
                errors = (self.folder / f"{self.culprit}.err").read_text()[-500:]
                raise TimeoutError(f"{self.fault}: the ranks did not start: {errors}")
            time.sleep(0.05)
        if self.fault == "stop":
            os.kill(self.ranks[self.culprit].pid, signal.SIGSTOP)
        if self.fault == "exit":
            self.ranks[self.culprit].wait()
        time.sleep(1.0)  # the others come to the collective that they will wait in

    def end(self) -> None:
        """Ends all ranks and their loader workers."""
        for process in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for file in self._errors:
            file.close()
        os.close(self._writer)
