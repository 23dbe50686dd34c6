"""Real programs that fail, and their logs diagnosed.

python -m tests.diagnose.campaign N [--seed S] [--keep DIR]

Each trial runs the gloo training of `tests/diagnose/program.py` with a random fault on a random rank, as separate
processes or under torchrun (one output, or a folder of logs for each rank), and compares the diagnosis with the fault.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from doctor.diagnose.cause import Diagnosis
from doctor.diagnose.run import diagnose_logs

FAULTS = (
    *("kill", "segv", "raise", "runtime-error", "file", "memory", "sleep", "exit", "exit-code", "disk"),
    *("never-starts", "import", "none"),
)
"""What befalls one rank; `program.py` does it."""
WAYS = ("plain", "torchrun", "torchrun-folder")
PROGRAM = Path(__file__).with_name("program.py")
LIMIT_S = 150
"""Seconds that a job may take; then it is killed."""


class Trial:
    """One job with one fault, drawn from a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = random.Random(seed)
        self.fault = FAULTS[seed % len(FAULTS)]
        self.ranks = draw.choice([2, 3, 4])
        self.rank = draw.randrange(self.ranks)
        # torchrun itself starts a rank that exits before the rendezvous; only a plain job can lack one.
        self.way = "plain" if self.fault == "never-starts" else draw.choice(WAYS)
        self.step = draw.randrange(1, 8)
        self.folder = folder / f"{seed}-{self.fault}-{self.rank}-of-{self.ranks}-{self.way}"
        self.struck = self.folder / "struck"
        self.logs = self.folder / "logs"

    def run(self) -> str:
        """Runs the job, diagnoses its logs, and returns the result: right, undecidable, one-of, wrong, accused."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.logs.mkdir(parents=True)
        port = _free_port()
        environment = {
            **os.environ,
            "FAULT": self.fault,
            "FAULT_RANK": "-1" if self.fault == "none" else str(self.rank),
            "FAULT_STEP": str(self.step),
            "STRUCK": str(self.struck),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        if self.way == "plain":
            self._run_plain(environment)
        else:
            self._run_torchrun(environment, port)
        return self.judge(diagnose_logs([str(self.logs)])[0])

    def _run_plain(self, environment: dict[str, str]) -> None:
        jobs = []
        for rank in range(self.ranks):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(self.ranks), "LOCAL_RANK": str(rank)}
            with open(self.logs / f"rank_{rank}.log", "wb") as log:
                command = [sys.executable, str(PROGRAM)]
                jobs.append(subprocess.Popen(command, env={**environment, **variables}, stdout=log, stderr=log))
        end = time.monotonic() + LIMIT_S
        for job in jobs:
            _wait(job, end - time.monotonic())

    def _run_torchrun(self, environment: dict[str, str], port: int) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks)]
        command += ["--master-port", str(port)]
        if self.way == "torchrun-folder":
            command += ["--log-dir", str(self.logs), "--redirects", "3"]
        with open(self.logs / "train.log", "wb") as log:
            job = subprocess.Popen([*command, str(PROGRAM)], env=environment, stdout=log, stderr=log)
        _wait(job, LIMIT_S)

    def judge(self, diagnosis: Diagnosis) -> str:
        """Compares the diagnosis with the fault."""
        ranks = {culprit.rank for cause in diagnosis.causes for culprit in cause.culprits}
        certain = {
            culprit.rank
            for cause in diagnosis.causes
            for culprit in cause.culprits
            if cause.confidence == "certain" and culprit.rank is not None
        }
        if self.fault == "none":
            return "wrong" if diagnosis.failed else "right"
        if self.fault not in ("never-starts", "import") and not self.struck.exists():
            return "not struck"
        if certain - {self.rank}:
            return "accused"
        if not diagnosis.causes:
            return "undecidable"
        if ranks == {self.rank}:
            return "right"
        return "one-of" if self.rank in ranks else "wrong"


def _wait(job: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        job.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> int:
    """Runs the trials and prints one line for each that is not right, and the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="keep the logs of all trials in this folder")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        for seed in range(arguments.seed, arguments.seed + arguments.trials):
            trial = Trial(seed, folder)
            result = trial.run()
            counts[result] += 1
            if result != "right":
                print(f"{trial.folder.name}: {result}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.most_common()))
    return 1 if counts["wrong"] or counts["accused"] else 0


if __name__ == "__main__":
    sys.exit(main())
