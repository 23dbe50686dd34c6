"""SSH from host to host, next to a real mpirun: an error exactly where Open MPI cannot start its daemons."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import needs_mpirun

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(300),
    needs_mpirun,
]
CHECK = "launcher-login-fails"
ROWS = {
    # By name: what is done on the first host, what on the second, options of mpirun, and the problem; empty: it lives.
    "healthy": ("", "", "", ""),
    "host-key-unknown": (
        "grep -v ll0002 ~/.ssh/known_hosts >k; mv k ~/.ssh/known_hosts",
        "",
        "",
        "is not in known_hosts",
    ),
    "host-key-changed": (
        "ssh-keygen -qt ed25519 -N '' -f k; echo ll0002 $(cut -d' ' -f1,2 k.pub) >~/.ssh/known_hosts",
        "",
        "",
        "is not the one in known_hosts",
    ),
    "key-accepted-anew": (
        (
            "grep -v ll0002 ~/.ssh/known_hosts >k; mv k ~/.ssh/known_hosts; "
            "echo StrictHostKeyChecking accept-new >~/.ssh/config"
        ),
        "",
        "",
        "",
    ),
    "no-key": ("rm ~/.ssh/id_ed25519", "", "", "no key is accepted"),
    "key-of-a-stranger": (
        "rm ~/.ssh/id_ed25519; ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id_ed25519",
        "",
        "",
        "no key is accepted",
    ),
    "key-with-a-passphrase": ("ssh-keygen -qp -N secret -P '' -f ~/.ssh/id_ed25519", "", "", "no key is accepted"),
    "key-readable-by-all": ("chmod 644 ~/.ssh/id_ed25519", "", "", "no key is accepted"),
    "other-user": ("echo User nobody-here >~/.ssh/config", "", "", "no key is accepted"),
    "other-port": ("echo Port 2222 >~/.ssh/config", "", "", "refuses connections"),
    "port-of-the-line": ("echo Port 2222 >~/.ssh/config", "", "--mca plm_rsh_args '-p 22'", ""),
    "name-unresolved": ("sed -i '/ll0002/d' /etc/hosts", "", "", "does not resolve there"),
    "config-of-another": ("echo Nonsense yes >~/.ssh/config", "", "", "SSH configuration is refused"),
    "profile-ends-the-shell": ("", "echo 'exit 3' >~/.bashrc; usermod -s /bin/bash root", "", "shell runs no command"),
    "profile-prints": ("", "echo 'echo welcome; echo to you >&2' >~/.bashrc; usermod -s /bin/bash root", "", ""),
    "shell-that-is-none": ("", "usermod -s /usr/sbin/nologin root", "", "shell runs no command"),
}


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Two hosts whose roots reach each other by SSH."""
    created_fleet = make_fleet(2, name="ll", subnet="10.71.0.0/16", shm="1g")
    key = (created_fleet.directory / "id_ed25519").read_text()
    known = created_fleet.known_hosts.read_text()
    for host in created_fleet.hosts:
        created_fleet.enter(host, "mkdir -p -m 700 /root/.ssh && cat >/root/.ssh/known_hosts", input=known)
        created_fleet.enter(host, "umask 077 && cat >/root/.ssh/id_ed25519", input=key)
    return created_fleet


@pytest.mark.parametrize("name", ROWS)
def test_an_error_exactly_where_mpirun_cannot_start(fleet: Fleet, name: str) -> None:
    first, second, options, problem = ROWS[name]
    head, other = fleet.hosts
    for host, script in ((head, first), (other, second)):
        if script:
            fleet.enter(host, f"cd /root; export HOME=/root; {script}")
    known = fleet.read(head, "/root/.ssh/known_hosts")
    outcome = check(fleet, options)
    assert fleet.read(head, "/root/.ssh/known_hosts") == known, "a host key was written down"
    assert fleet.enter(head, "ls /tmp | grep -c doctor-login", check=False).stdout.strip() == "0"
    lives, text = launch(fleet, options)
    assert lives == (not problem), text
    assert outcome["status"] == ("failed" if problem else "passed"), outcome
    if problem:
        (finding,) = outcome["findings"]
        assert problem in finding["message"] and f"cannot log in to {other} over SSH" in finding["message"]
        at_head = any(word in problem for word in ("there", "configuration", "known_hosts"))
        assert finding["hosts"] == [head if at_head else other]


def check(fleet: Fleet, options: str, line: str = "") -> dict[str, Any]:
    hosts = fleet.hosts
    words = line or f"mpirun -np 2 -H {hosts[0]}:1,{hosts[1]}:1 {options} hostname"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER", "OMPI"))}
    argv = [sys.executable, "-m", "doctor", "check", ",".join(hosts), "-F", str(fleet.ssh_config), "--json"]
    argv += ["--select", CHECK, "--no-history", "--", *shlex.split(words)]
    done = fleet.run(argv, env=clean, cwd=Path(__file__).parents[2], timeout=100)
    report = json.loads(done.stdout)
    (outcome,) = [entry for entry in report["outcomes"] if entry["check"] == CHECK]
    return dict(outcome)


def launch(fleet: Fleet, options: str, start: int = 0) -> tuple[bool, str]:
    """Whether mpirun on one of the hosts starts a process on both hosts; a question on no terminal is a refusal."""
    hosts = fleet.hosts
    line = f"mpirun -np 2 -H {hosts[0]}:1,{hosts[1]}:1 {options} hostname"
    environ = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HOME": "/root"}
    job = fleet.enter(
        hosts[start], f"setsid timeout 60 {line} </dev/null", env={**INSIDE, **environ}, check=False, timeout=100
    )
    return job.returncode == 0 and all(host in job.stdout for host in hosts), job.stdout + job.stderr


def test_the_way_back_is_tried_where_the_launch_may_start_on_either_host(fleet: Fleet) -> None:
    head, other = fleet.hosts
    fleet.enter(other, "rm /root/.ssh/id_ed25519")
    outcome = check(fleet, "")
    (finding,) = outcome["findings"]
    assert (finding["severity"], finding["hosts"]) == ("warning", [head])
    assert f"mpirun on {other} cannot log in to {head} over SSH: no key is accepted" in finding["message"]
    assert launch(fleet, "")[0] and not launch(fleet, "", start=1)[0]


@pytest.mark.parametrize("line", ["torchrun --nproc-per-node 2 train.py", "srun -n 2 hostname"])
def test_where_no_launcher_logs_in_it_does_not_apply(fleet: Fleet, line: str) -> None:
    fleet.enter(fleet.hosts[0], "rm /root/.ssh/id_ed25519")
    assert check(fleet, "", line)["status"] == "skipped"
