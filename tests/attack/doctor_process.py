"""`doctor` as a process of its own on a fleet, and its end by SIGKILL, for the groups ``kills`` and ``fix``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.hosts import testbed
from tests.hosts.fleet import INSIDE, Fleet

ROOT = Path(__file__).resolve().parents[2]


def start_doctor(fleet: Fleet, words: Sequence[str], state_folder: Path) -> subprocess.Popen[str]:
    """Starts `doctor` on the fleet's hub, without the variables of a job. stdout has stderr, too."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_"))}
    return subprocess.Popen(
        fleet.argv([sys.executable, "-m", "doctor", *words, "-F", str(fleet.ssh_config)]),
        env={**environ, "XDG_STATE_HOME": str(state_folder)},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_on_host(fleet: Fleet, host: str, words: Sequence[str], **environ: str) -> subprocess.Popen[str]:
    """Starts `doctor` on a host itself, as its user root."""
    return subprocess.Popen(
        testbed.enter_argv(
            testbed.pid_of(testbed.load(fleet.directory), host), [sys.executable, "-m", "doctor", *words]
        ),
        env={**INSIDE, "PYTHONPATH": str(ROOT), **environ},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_doctor(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the program, and to what has put it into the hub; its own children are left to end by themselves."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if each.pid == process.pid or any(word.rpartition("/")[2] == "doctor" for word in each.cmdline()[:6]):
                    os.kill(each.pid, signal.SIGKILL)
