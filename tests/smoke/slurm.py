"""A Slurm of its own on this machine, for tests: two nodes, everything in one folder, ended by its pid files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_NODES = 2


def program(name: str) -> str:
    """The path of one of its daemons, under either name that Debian gives it; empty where it is not installed."""
    return shutil.which(name) or shutil.which(f"{name}-wlm") or shutil.which(name, path="/usr/sbin") or ""


ABSENT_PROGRAMS = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not program(name)]


class Slurm:
    """``environ`` is what its clients need."""

    def __init__(self, folder: Path, settings: Sequence[str] = (), before: Callable[[], None] = lambda: None) -> None:
        self._folder, self._settings = folder, settings
        self.environ = {"SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", "spool"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (folder / "slurm.conf").write_text(self._configuration())
        self._start(
            "munged",
            "--force",
            *(f"--{name}-file={folder / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")),
            f"--socket={folder / 'munge.sock'}",
        )
        before()
        self._start("slurmctld", "-c")
        for node in range(_NODES):
            (folder / "spool" / f"n{node}").mkdir()
            self._start("slurmd", "-N", f"n{node}")
        self._wait()

    def _configuration(self) -> str:
        host, folder = socket.gethostname().partition(".")[0], self._folder
        first, *ports = free_ports(1 + _NODES)
        lines = [
            "ClusterName=smoke",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={first}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge.sock",
            "CredType=cred/munge",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd.%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd.%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SchedulerType=sched/backfill",
            "SlurmdParameters=config_overrides",
            "ReturnToService=2",
            "SwitchType=switch/none",
        ]
        lines += [
            f"NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=1000 State=UNKNOWN"
            for node, port in enumerate(ports)
        ]
        return "\n".join(
            [*lines, *self._settings, "PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=YES", ""]
        )

    def _start(self, name: str, *arguments: str) -> None:
        subprocess.run([program(name), *arguments], env={**os.environ, **self.environ}, check=True, timeout=20)

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        argv = ["sinfo", "-h", "-o", "%t %D"]
        while True:
            done = subprocess.run(argv, env={**os.environ, **self.environ}, capture_output=True, text=True, check=False)
            if done.stdout.split() == ["idle", str(_NODES)]:
                return
            if time.monotonic() > deadline:
                self.end()
                raise TimeoutError(f"Slurm does not come up: {done.stdout}{done.stderr}")
            time.sleep(0.2)

    def end(self) -> None:
        pids = [int(path.read_text()) for path in sorted(self._folder.glob("*.pid"), reverse=True)]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports
