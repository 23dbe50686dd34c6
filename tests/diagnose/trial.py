"""One trial of the campaign: a job with a fault, its logs, and whether the diagnosis names the rank of the fault."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import ONE_OF_TWO, Diagnosis
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.readings import read_source
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.signature import load_signatures

if TYPE_CHECKING:
    from tests.diagnose.networks import Networks
    from tests.diagnose.prefork import Job, Prefork
    from tests.smoke.slurm import Slurm

FAULTS = (
    *("kill", "segv", "raise", "runtime-error", "file", "memory", "sleep", "exit", "exit-code", "disk"),
    *("never-starts", "import", "none", "abort", "nan", "assert", "stop", "early", "term", "interrupt"),
    *("shape", "larger", "order", "skip", "port-taken", "wrong-master", "wrong-interface", "shm", "oom", "drop"),
)
"""What befalls one rank; `program.py` does it."""
HEALTHY = ("none", "caught", "warns", "late", "restart", "child", "reads-again")
"""What befalls one rank of a run that ends well."""
WAYS = ("plain", "torchrun", "torchrun-folder", "spawn", "mpirun", "srun")
PLAIN_ONLY = frozenset({"never-starts", "drop", "oom"})
"""Faults that no launcher can have, or that need what only plain jobs are given."""
MASTER_FAULTS = frozenset({"port-taken", "wrong-master"})
"""Faults of the rendezvous; under torchrun the agent makes it."""
MISMATCHES = frozenset({"shape", "larger", "order", "skip"})
PROGRAM = Path(__file__).with_name("program.py")
SIGNATURES = load_signatures()
MATCHER = Matcher(SIGNATURES.values())
LIMIT_S = 240
"""Seconds that a job may take; then it is killed."""
_STAMP = re.compile(r"\b(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)|(?<=\[[EWIF])(\d{4} \d\d:\d\d:\d\d)")


class Place(NamedTuple):
    """Where trials run."""

    prefork: Prefork | None = None
    slurm: Slurm | None = None
    networks: Networks | None = None


class Trial:
    """One job with one fault, drawn from a seed."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        ways: Sequence[str] = WAYS,
        faults: Sequence[str] = FAULTS,
        sizes: Sequence[int] = (2, 3, 4),
    ) -> None:
        draw = random.Random(seed)
        self.seed = seed
        self.fault = faults[seed % len(faults)]
        self.ranks = draw.choice(sizes)
        self.rank = 0 if self.fault == "port-taken" else draw.randrange(self.ranks)
        if self.fault == "wrong-master":
            self.rank = draw.randrange(1, self.ranks)  # rank 0 is the store
        choices = [way for way in ways if not (self.fault in MASTER_FAULTS and way.startswith("torchrun"))]
        if self.fault == "restart":
            choices = ["torchrun", "torchrun-folder"]
        self.way = "plain" if self.fault in PLAIN_ONLY else draw.choice(choices or ["plain"])
        self.step = draw.randrange(1, 8)
        self.style = draw.choice(["plain", "logging", "bar"])
        self.recorder = draw.choice(["", "", "pickle", "json"])
        self.clock_off = self.way == "plain" and draw.random() < 0.2
        self.labels = draw.random() < 0.5
        self.detail = draw.random() < 0.2
        self.folder = folder / f"{seed}-{self.fault}-{self.rank}-of-{self.ranks}-{self.way}"
        self.struck = self.folder / "struck"
        self.logs = self.folder / "logs"
        self.failed = False
        """Whether a process of the job ended badly, or had to be killed."""
        self.seconds = 0.0

    def run(self, place: Place = Place()) -> str:
        """Runs the job, diagnoses its logs, and returns the result.

        right, one of two (`is_symmetric`), undecidable, one-of (the culprit among others), no rank (the cause, of a
        process whose rank no line shows), wrong, accused (an innocent, "certain"), not struck, cut (the job did not
        end in time).
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.logs.mkdir(parents=True)
        start = time.monotonic()
        network = place.networks.take() if self.fault == "drop" and place.networks else ""
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            if self.fault == "port-taken":
                held.listen()
            else:
                held.close()
            environ = self._environ(port)
            if network and place.networks:
                environ |= {"NETWORKS": network, "MASTER_ADDR": place.networks.address(network, 0)}
                environ["GLOO_SOCKET_IFNAME"] = "eth0"
            getattr(self, f"_run_{self.way.partition('-')[0]}")(environ, place)
        finally:
            held.close()
            if network and place.networks:
                place.networks.give_back(network)
            if self.fault == "oom":
                self._remove_cgroup(environ["CGROUP"])
        self.seconds = time.monotonic() - start
        if self.clock_off:
            _shift_clock(self.logs / f"rank_{self.rank}.log", 90)
        return self.judge(self.diagnose())

    def diagnose(self) -> Diagnosis:
        """The diagnosis of its logs."""
        readings = [reading for source in find_sources([str(self.logs)]) for reading in read_source(source, MATCHER)]
        return diagnose(readings, SIGNATURES)

    def remove(self) -> None:
        """Its files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environ(self, port: int) -> dict[str, str]:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_"))},
            "FAULT": self.fault,
            "FAULT_RANK": "-1" if self.fault == "none" else str(self.rank),
            "FAULT_STEP": str(self.step),
            "STRUCK": str(self.struck),
            "STYLE": self.style,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "CGROUP": f"/sys/fs/cgroup/memory/diagnose-{os.getpid()}-{self.seed}",
        }
        if self.detail:
            environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        if self.recorder:
            environ |= {
                "RECORDER": str(self.logs),
                "RECORDER_FORM": self.recorder,
                "TORCH_FR_BUFFER_SIZE": "100",
                "TORCH_NCCL_TRACE_BUFFER_SIZE": "",
            }
            del environ["TORCH_NCCL_TRACE_BUFFER_SIZE"]
        return environ

    def _run_plain(self, environ: dict[str, str], place: Place) -> None:
        jobs = []
        for rank in range(self.ranks):
            names = {"RANK": str(rank), "WORLD_SIZE": str(self.ranks), "LOCAL_RANK": str(rank)}
            with open(self.logs / f"rank_{rank}.log", "wb") as log:
                jobs.append(_start(place, ["rank"], {**environ, **names}, log.fileno()))
        deadline = time.monotonic() + LIMIT_S
        ends = [_failed(job, deadline) for job in jobs]
        self.failed = any(ends)

    def _run_torchrun(self, environ: dict[str, str], place: Place) -> None:
        argv = ["torchrun", "--nproc-per-node", str(self.ranks)]
        if self.fault == "restart":  # the static rendezvous cannot: see the check launch-restart-shares-store
            argv += ["--standalone", "--max-restarts", "1"]
            environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        else:
            argv += ["--master-port", environ["MASTER_PORT"]]
        if self.way == "torchrun-folder":
            argv += ["--log-dir", str(self.logs), "--redirects", "3"]
        if place.prefork:
            argv += ["--no-python", *place.prefork.command, "rank"]
        else:
            argv += [str(PROGRAM)]
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            environ.pop(name)
        self._run_one(argv, environ, place)

    def _run_spawn(self, environ: dict[str, str], place: Place) -> None:
        by = "fork" if place.prefork else "spawn"
        self._run_one(["spawn"], {**environ, "SPAWN": str(self.ranks), "SPAWN_BY": by}, place)

    def _run_one(self, argv: list[str], environ: dict[str, str], place: Place) -> None:
        with open(self.logs / "train.log", "wb") as log:
            job = _start(place, argv, environ, log.fileno())
        self.failed = _failed(job, time.monotonic() + LIMIT_S)

    def _run_mpirun(self, environ: dict[str, str], place: Place) -> None:
        argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(self.ranks)]
        argv += ["--tag-output"] if self.labels else []
        self._run_launcher(argv, environ, place)

    def _run_srun(self, environ: dict[str, str], place: Place) -> None:
        if not place.slurm:
            return self._run_plain(environ, place)
        argv = ["srun", "-n", str(self.ranks), "-N", "2" if self.ranks > 2 else "1", "--overcommit"]
        argv += ["--label"] if self.labels else ["-o", str(self.logs / "task_%t.log")]
        self._run_launcher(argv, {**environ, **place.slurm.environ}, place)
        return None

    def _run_launcher(self, argv: list[str], environ: dict[str, str], place: Place) -> None:
        command = place.prefork.command if place.prefork else [sys.executable, str(PROGRAM)]
        with open(self.logs / f"{argv[0]}.log", "wb") as log:
            job = subprocess.Popen([*argv, *command, "rank"], env=environ, stdout=log, stderr=log, stdin=-3)
        self.failed = _failed(job, time.monotonic() + LIMIT_S)

    def _remove_cgroup(self, folder: str) -> None:
        for _ in range(50):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
            else:
                return

    def judge(self, diagnosis: Diagnosis) -> str:
        """Compares the diagnosis with the fault."""
        culprits = [(cause, culprit) for cause in diagnosis.causes for culprit in cause.culprits]
        ranks = {culprit.rank for _, culprit in culprits}
        certain = {c.rank for cause, c in culprits if cause.confidence == "certain" and c.rank is not None}
        if self.fault in HEALTHY:
            unseen = self.fault in ("restart", "child") and not self._shows_good_end()
            return ("slow" if self.failed or unseen else "wrong") if diagnosis.failed else "right"
        if self.fault not in ("never-starts", "import", "port-taken") and not self.struck.exists():
            return "not struck"
        if certain - {self.rank}:
            return "accused"
        if not diagnosis.causes:
            return "undecidable" if diagnosis.failed else "cut" if self.seconds > LIMIT_S else "missed"
        port_taken = self.fault == "port-taken" and diagnosis.causes[0].signature == "torch-port-in-use"
        if ranks == {self.rank} or port_taken:
            return "right"
        if ranks <= {None}:
            return "no rank"
        return self._judge_several(diagnosis, ranks)

    def _judge_several(self, diagnosis: Diagnosis, ranks: set[int | None]) -> str:
        if self.rank in ranks and len(diagnosis.causes) == 1 and diagnosis.causes[0].rule == ONE_OF_TWO:
            return "one of two" if self.is_symmetric(ranks) else "one-of"
        return "one-of" if self.rank in ranks else "wrong"

    def _shows_good_end(self) -> bool:
        """A program that prints nothing leaves the traceback of its first attempt, or of its child, alone."""
        return any("training finished" in path.read_text(errors="replace") for path in self.logs.rglob("*.log"))

    def is_symmetric(self, ranks: set[int | None]) -> bool:
        """Whether a job with this fault on the other of two ranks could have left the same logs.

        So it is where all ranks are these two and both ran on, in different collectives or behind a network that
        drops packets; where two neighbors in the ring have tensors of different sizes, and no line shows that of a
        third; and where neither of the two printed an error, because the launcher ended the innocent one.
        """
        text = "\n".join(path.read_text(errors="replace") for path in self.logs.rglob("*.log"))
        reported = {int(rank) for rank in re.findall(r"\[rank(\d+)\]: [\w.]*(?:Error|Exception)", text)}
        reported |= {int(rank) for rank in re.findall(r"-- Process (\d+) terminated", text)}
        if self.fault in MISMATCHES | {"drop"} and (self.ranks == 2 or reported <= ranks):
            return True
        if self.fault in ("shape", "larger"):
            return not self.detail and self._distance(ranks) in (1, self.ranks - 1)
        return self.way != "plain" and not reported & ranks

    def _distance(self, ranks: set[int | None]) -> int:
        first, last = sorted(rank or 0 for rank in ranks)
        return last - first


def _start(place: Place, argv: list[str], environ: dict[str, str], log: int) -> subprocess.Popen[bytes] | Job:
    if place.prefork:
        return place.prefork.start(argv, environ, log)
    command = [sys.executable, str(PROGRAM)]
    if argv[0] == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", *argv[1:]]
    return subprocess.Popen(command, env=environ, stdout=log, stderr=log)


def _failed(job: subprocess.Popen[bytes] | Job, deadline: float) -> bool:
    """Waits for the end of a job; whether it ended badly, or had to be killed."""
    if not isinstance(job, subprocess.Popen):
        return job.wait(deadline) != 0
    try:
        return job.wait(max(1.0, deadline - time.monotonic())) != 0
    except subprocess.TimeoutExpired:
        job.terminate()
        try:
            job.wait(10)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        return True


def _shift_clock(log: Path, seconds: int) -> None:
    """The log as a host writes it whose clock is off by this: every time in it is shifted."""

    def shifted(match: re.Match[str]) -> str:
        iso, glog = match[1], match[2]
        form = "%Y-%m-%d %H:%M:%S" if iso else "%Y%m%d %H:%M:%S"
        moment = datetime.strptime((iso or f"2026{glog}").replace("T", " "), form) + timedelta(seconds=seconds)
        return moment.strftime(form) if iso else moment.strftime("%m%d %H:%M:%S")

    if log.exists():
        text = log.read_bytes().decode("utf-8", "surrogateescape")
        log.write_bytes(_STAMP.sub(shifted, text).encode("utf-8", "surrogateescape"))
