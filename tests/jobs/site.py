"""A small site: test hosts under a real Slurm, a folder that all of them share, SSH from each to each, and `doctor`.

What stands in the README's job scripts is there under the same names: ``doctor`` in the PATH and in
/opt/cluster-doctor/bin, slurm.conf where Slurm looks for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.conftest import PREPARED
from tests.hosts import testbed
from tests.hosts.fleet import Fleet, merge
from tests.hosts.slurm import Cluster
from tests.smoke.interpreter import ROOT, visible_folders

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INSTALLED = "/opt/cluster-doctor/bin/doctor"
DOCTOR = f"""#!/bin/sh
exec env PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m doctor "$@"
"""
ENDED = re.compile(r"\bJobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|DEADLINE)\b")
PATIENCE = 30.0
T = TypeVar("T")
FAULT = "folder-not-writable"
_OURS = ("DOCTOR_", "SLURM_", "RANK_", "OMPI_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


class Site:
    """``folder`` is the shared one, under one name everywhere."""

    def __init__(
        self,
        make_fleet: Callable[..., Fleet],
        count: int,
        *,
        name: str,
        subnet: str,
        files: Mapping[str, str] = {},
        shows: Sequence[str] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="site-", dir="/tmp"))
        self.folder.chmod(0o755)
        own_values = {
            "shows": [*visible_folders(), *shows, str(self.folder)],
            "setup": f"mount -o remount,bind,rw {self.folder}",
            "files": {path: {"text": text, "mode": "755"} for path, text in {INSTALLED: DOCTOR, **files}.items()},
            "links": {"/usr/local/bin/doctor": INSTALLED},
        }
        self.fleet = make_fleet(count, {"*": merge(PREPARED, own_values)}, name=name, subnet=subnet, shm="4g")
        self.hosts = self.fleet.hosts
        self.environ = {**CLEAN, "PATH": PATH}
        for host in self.hosts:
            self._let_in(host)
        self._ends: list[Callable[[], None]] = []
        self.slurm: Cluster | None = None

    def _let_in(self, host: str) -> None:
        """root of this host reaches the others by SSH, as an administrator has set it up."""
        text = self.fleet.known_hosts.read_text()
        key = (self.fleet.directory / "id_ed25519").read_text()
        self.fleet.enter(host, "mkdir -p -m 700 /root/.ssh && cat >/root/.ssh/known_hosts", input=text)
        self.fleet.enter(host, "umask 077 && cat >/root/.ssh/id_ed25519", input=key)

    def start_slurm(self, more: str) -> None:
        """A Slurm of these hosts; ``more``: lines of slurm.conf."""
        self.slurm = slurm = Cluster(self.fleet, more)
        self._ends.append(slurm.end)
        self.environ |= slurm.environ
        for host in self.hosts:
            self.fleet.enter(host, f"mkdir -p /etc/slurm && ln -sf {slurm.folder}/slurm.conf /etc/slurm/slurm.conf")

    def end(self) -> None:
        for end in self._ends:
            end()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def broken(self, *hosts: str, sh: str, mended: str) -> Iterator[None]:
        """A fault in hosts that go on running: their slurmd must not go with it."""
        for host in hosts:
            self.fleet.enter(host, sh)
        try:
            yield
        finally:
            for host in hosts:
                self.fleet.enter(host, mended)

    def closed_tmp(self, *hosts: str) -> contextlib.AbstractContextManager[None]:
        """A real fault, `FAULT`, that every look at a host sees."""
        closed = "mount --rbind /tmp /tmp; mount -o remount,bind,ro /tmp"  # the shared folder is a mount of its own
        kept = "for f in /tmp/slurm-*; do [ -d $f ] && mount --bind $f $f && mount -o remount,bind,rw $f; done; true"
        return self.broken(*hosts, sh=f"{closed}; {kept}", mended="umount -R /tmp")

    def full_logs(self, *hosts: str) -> contextlib.AbstractContextManager[None]:
        """A real fault that no launcher meets, and no image has by design: there is no room for the logs of Ascend."""
        mount = "mkdir -p ~/ascend/log && mount -t tmpfs -o size=64k none ~/ascend/log"
        full = f"{mount} && head -c 65536 /dev/zero >~/ascend/log/x"
        return self.broken(*hosts, sh=full, mended="umount ~/ascend/log")

    @contextlib.contextmanager
    def mute(self, host: str) -> Iterator[None]:
        """Its sshd accepts and says nothing; those that it has let in stay."""
        pid = testbed.pid_of(testbed.load(self.fleet.directory), host)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def visited(self, host: str) -> bool:
        """Whether a client waits at its SSH port."""
        return bool(self.fleet.enter(host, "ss -Htn state established sport = :22").stdout)

    def run(self, *argv: str, cwd: Path | None = None) -> str:
        """A command as the user gives it on the login node. Returns what it prints."""
        done = self.fleet.run(argv, cwd=cwd or self.folder, env=self.environ)
        assert done.returncode == 0, f"{argv}: {done.returncode}: {done.stdout}{done.stderr}"
        return str(done.stdout).strip()

    def enter(self, host: str, command: str, env: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        """A command as it is given on a host, in the shared folder."""
        values = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **env}
        arguments = ["sh", "-c", f"cd {self.folder} && {command}"]
        return self.fleet.enter(host, arguments, check=False, env=values)

    def put(self, host: str, path: str, text: str) -> None:
        """A program of a host, whole at once: Slurm may be starting it."""
        put = f'cat >"{path}.new" && chmod 755 "{path}.new" && mv "{path}.new" "{path}"'
        self.fleet.enter(host, put, input=text)

    def job(self, number: str) -> str:
        return self.run("scontrol", "show", "job", "-o", number)

    def wait(self, number: str, until: re.Pattern[str] = ENDED) -> str:
        """Until a job's description matches. Returns it. What a requeued job would have to wait is cut short."""
        begun = set()

        def job_state() -> str:
            output = self.job(number)
            restarts = output.partition(" Restarts=")[2].partition(" ")[0]
            if "Reason=BeginTime" in output and restarts not in begun:
                begun.add(restarts)
                # In the second in which it was ended, the nodes still refuse it.
                self.run("scontrol", "update", f"JobId={number}", "StartTime=now+2")
            return output if until.search(output) else ""

        return self.until(job_state)

    def until(self, look: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE
        while not (result := look()):
            if time.monotonic() > deadline:
                raise TimeoutError(self.run("squeue", "-l"))
            time.sleep(0.1)
        return result
