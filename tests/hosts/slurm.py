"""A real Slurm over test hosts: its controller in the hub, a slurmd in each host, munge everywhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hosts import testbed
from tests.hosts.fleet import Fleet
from tests.smoke.slurm import ABSENT_PROGRAMS, program

__all__ = ["ABSENT_PROGRAMS", "Cluster", "needs_mpirun", "needs_slurm"]

needs_slurm = pytest.mark.skipif(
    bool(ABSENT_PROGRAMS), reason=f"needs Slurm and munge: no {', '.join(ABSENT_PROGRAMS)}"
)
needs_mpirun = pytest.mark.skipif(not program("mpirun"), reason="needs Open MPI's mpirun (openmpi-bin)")

_PATIENCE = 30.0
SETTINGS = """\
ClusterName=carried
SlurmctldHost={controller}({hub})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SlurmdParameters=config_overrides
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=300
MessageTimeout=10
{more}
{nodes}
PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8 MaxTime=10
"""


class Cluster:
    """``environ`` is what its clients need; they run in the fleet's hub, as the controller does. ``gpus``: files of
    devices that each host calls GPUs."""

    def __init__(self, fleet: Fleet, more: str = "", gpus: Sequence[str] = ()) -> None:
        self.fleet, self._gpus = fleet, "".join(f"Name=gpu File={path}\n" for path in gpus)
        # The hosts have this folder too, each its own: one slurm.conf serves all.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.environ = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._key = os.urandom(1024)
        self._configuration = self._settings(f"{more}GresTypes=gpu\n" if gpus else more, len(gpus))
        self._fill(self.folder)
        try:
            for host in fleet.hosts:
                self.start(host)
            self._daemon("munged")
            self._daemon("slurmctld")
            self.wait()
        except BaseException:
            self.end()
            raise

    def _settings(self, more: str, gpus: int) -> str:
        shared = testbed.load(self.fleet.directory)["shared"]
        gres = f"Gres=gpu:{gpus} " if gpus else ""
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={address} CPUs=8 RealMemory=1000 {gres}State=UNKNOWN"
            for name, address in self.fleet.addresses.items()
        )
        controller = os.uname().nodename.partition(".")[0]
        return SETTINGS.format(
            controller=controller, hub=shared["hub_address"], folder=self.folder, nodes=nodes, more=more
        )

    def _fill(self, folder: Path) -> None:
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        (folder / "munge.key").write_bytes(self._key)
        (folder / "munge.key").chmod(0o600)
        (folder / "slurm.conf").write_text(self._configuration)
        (folder / "gres.conf").write_text(self._gpus)

    def _munge(self) -> list[str]:
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        return [program("munged"), "--force", *files, f"--socket={self.folder}/munge.sock"]

    def _daemon(self, name: str) -> None:
        argv = self._munge() if name == "munged" else [program(name)]
        done = self.fleet.run(argv, env={**os.environ, **self.environ}, timeout=30)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    def start(self, host: str) -> None:
        """munged and slurmd on a host that has neither."""
        text = f'mkdir -p "{self.folder}/state" "{self.folder}/spool" && chmod 755 "{self.folder}"'
        key = f'umask 077; cat >"{self.folder}/munge.key"'
        self.fleet.enter(host, f"{text} && {key}", input=self._key, text=False)
        self.fleet.enter(host, f'cat >"{self.folder}/slurm.conf"', input=self._configuration)
        self.fleet.enter(host, f'cat >"{self.folder}/gres.conf"', input=self._gpus)
        self.fleet.enter(host, f'echo CgroupPlugin=cgroup/v1 >"{self.folder}/cgroup.conf"')  # there is none to detect
        self.fleet.enter(host, self._munge())
        self.start_slurmd(host)

    def start_slurmd(self, host: str) -> None:
        self.fleet.enter(host, f"SLURM_CONF={self.folder}/slurm.conf {program('slurmd')}")

    def allocate(self) -> dict[str, str]:
        """A job that has all nodes and goes on when one fails: what tells a command that it runs in it."""
        done = self.run("salloc", "--nodes", str(len(self.fleet.hosts)), "--no-kill", "--no-shell")
        observed_match = re.search(r"Granted job allocation (\d+)", done.stderr)
        assert observed_match, done.stderr
        return {**self.environ, "SLURM_JOB_ID": observed_match[1], "SLURM_JOB_NODELIST": ",".join(self.fleet.hosts)}

    def slurmd(self, host: str) -> int:
        """Its number inside the host."""
        return int(self.fleet.read(host, f"{self.folder}/slurmd.pid"))

    def signal(self, host: str, name: str) -> None:
        self.fleet.enter(host, f"kill -{name} {self.slurmd(host)}")

    def run(self, *argv: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        return self.fleet.run(argv, env={**os.environ, **self.environ}, timeout=timeout)

    def wait(self, state: str = "idle") -> None:
        """Until all nodes are in a state."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            done = self.run("sinfo", "-h", "-o", "%t %D")
            if done.stdout.split() == [state, str(len(self.fleet.hosts))]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"Slurm does not come up: {done.stdout}{done.stderr}")
            time.sleep(0.1)

    def end(self) -> None:
        """Ends the controller and its munge; what runs in a host ends with it."""
        pids = [int(path.read_text()) for path in sorted(self.folder.glob("*.pid"), reverse=True)]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)
