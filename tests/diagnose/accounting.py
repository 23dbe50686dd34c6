"""A Slurm with accounting: slurmdbd over a MariaDB of its own, everything in one folder.

Debian: slurm-wlm, slurmdbd and mariadb-server, in ``DEBIAN_PACKAGES`` and ``FULL_PACKAGES`` of `tests.hosts.testbed`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.smoke.slurm import ABSENT_PROGRAMS as WITHOUT_SLURM
from tests.smoke.slurm import Slurm, free_ports, program

ABSENT_PROGRAMS = [
    *WITHOUT_SLURM,
    *(name for name in ("mariadbd", "mariadb-install-db", "slurmdbd") if not program(name)),
]
_CLUSTER = "smoke"


class Accounting:
    """``environ`` is what clients need; `end` ends all of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database_port, self._port = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._slurm: Slurm | None = None
        self.environ = {"SLURM_CONF": str(folder / "slurm.conf")}
        try:
            self._start_database()
            settings = (
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={self._port}",
                f"AccountingStoragePass={folder}/munge.sock",
                "JobRequeue=1",
                "KillWait=1",
                "PreemptType=preempt/partition_prio",
                "PreemptMode=CANCEL",
                "PartitionName=urgent Nodes=ALL State=UP PriorityTier=9 OverSubscribe=NO",
            )
            self._slurm = Slurm(folder, settings, before=self._start_daemon)
        except BaseException:
            self.end()
            raise

    def _start_database(self) -> None:
        data = self._folder / "db"
        install = ["--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(["mariadb-install-db", *install, "--user=root"], check=True, timeout=120, capture_output=True)
        argv = [program("mariadbd"), "--no-defaults", f"--datadir={data}", "--user=root", "--bind-address=127.0.0.1"]
        argv += [f"--port={self._database_port}", f"--socket={self._folder}/db.sock", f"--pid-file={data}/pid"]
        argv += ["--innodb-buffer-pool-size=32M", "--innodb-lock-wait-timeout=900"]
        self._processes.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        _until((self._folder / "db.sock").exists, "MariaDB")

    def _start_daemon(self) -> None:
        """After munge, before slurmctld."""
        path = self._folder / "slurmdbd.conf"
        lines = ["AuthType=auth/munge", f"AuthInfo=socket={self._folder}/munge.sock", "DbdHost=localhost"]
        lines += [f"DbdPort={self._port}", "SlurmUser=root", f"LogFile={self._folder}/slurmdbd.log"]
        lines += [f"PidFile={self._folder}/slurmdbd.pid", "StorageType=accounting_storage/mysql"]
        lines += ["StorageHost=127.0.0.1", f"StoragePort={self._database_port}", "StorageUser=root"]
        path.write_text("\n".join([*lines, "StorageLoc=slurm_acct", ""]))
        path.chmod(0o600)
        environ = {**os.environ, **self.environ}
        self._processes.append(subprocess.Popen([program("slurmdbd"), "-D"], env=environ, stderr=subprocess.DEVNULL))
        add = ["sacctmgr", "--immediate", "add", "cluster", _CLUSTER]
        _until(lambda: not subprocess.run(add, env=environ, capture_output=True).returncode, "slurmdbd")

    def run(self, *argv: str) -> str:
        """The output of one of Slurm's programs."""
        environ = {**os.environ, **self.environ}
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60).stdout

    def kill_daemon(self, node: str) -> None:
        """Ends slurmd of a node, as the crash of its host does."""
        pid = int((self._folder / f"slurmd.{node}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        _until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of slurmd of {node}")

    def start_daemon(self, node: str) -> None:
        """Brings a node back whose slurmd was killed."""
        environ = {**os.environ, **self.environ}
        subprocess.run([program("slurmd"), "-N", node], env=environ, check=True, timeout=60)
        self.resume(node)
        state = ["sinfo", "-h", "-N", "-n", node, "-o", "%t"]
        _until(lambda: set(self.run(*state).split()) == {"idle"}, f"slurmd of {node}")

    def resume(self, node: str) -> None:
        """Brings a node back that is down; one that came back by itself is left alone."""
        argv = ["scontrol", "update", f"nodename={node}", "state=resume"]
        subprocess.run(argv, env={**os.environ, **self.environ}, capture_output=True, timeout=60, check=False)

    def end(self) -> None:
        if self._slurm:
            self._slurm.end()
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder / "db", ignore_errors=True)


def _until(done: object, description: str, seconds: float = 120.0) -> None:
    assert callable(done)
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{description} does not come up")
        time.sleep(0.2)
