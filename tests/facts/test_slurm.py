"""slurmd of this machine, and what is no answer. The real one: tests/preflight/test_jobs.py."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given

from doctor.engine.fact import Absent, Unreadable
from doctor.facts.slurm import JobServices, SlurmDaemon, accepts, find_services, find_slurmd, processes
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6


def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/no/such/file")
    assert find_slurmd({}) == {"node": False} or os.path.exists("/etc/slurm/slurm.conf")
    assert isinstance(answered(SlurmDaemon, {"node": False}), Absent)


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones of other tests' hosts are seen from this machine."""
    monkeypatch.setattr(os, "listdir", lambda path: [])


@pytest.mark.usefixtures("no_processes")
def test_a_node_whose_daemon_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (tmp_path / "slurm.conf").write_text(f"SlurmdPort={port}  # ours\nSlurmdSpoolDir={tmp_path}\nPrologFlags=x y\n")
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        fact = answered(SlurmDaemon, find_slurmd({}))
        assert isinstance(fact, SlurmDaemon)
        assert (fact.states, fact.port, fact.answers) == ((), port, True)
        assert accepts(port)
    assert not accepts(port)


@pytest.mark.usefixtures("no_processes")
def test_no_node_of_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A login node has the configuration, and neither the daemon nor its folder."""
    (tmp_path / "slurm.conf").write_text(f"SlurmdSpoolDir={tmp_path}/%n/spool\nSlurmdPort=6818-6820\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert not find_slurmd({})["node"]


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ()),
        ("PropagateResourceLimits=ALL\n", ()),
        ("PropagateResourceLimits=NONE\n", ("NOFILE", "MEMLOCK")),
        ("PropagateResourceLimits=core,nofile\n", ("MEMLOCK",)),
        ("PropagateResourceLimitsExcept=MEMLOCK\n", ("MEMLOCK",)),
    ],
)
def test_the_limits_that_tasks_have_from_the_daemon(
    text: str, kept: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slurm.conf").write_text(f"SlurmdSpoolDir={tmp_path}\nSlurmdPort=1\n{text}")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    fact = answered(JobServices, find_services({"services": ["slurmd"]}))
    assert isinstance(fact, JobServices)
    assert fact.kept == kept


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(SlurmDaemon, value), Absent | Unreadable)
    assert isinstance(answered(JobServices, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(find_slurmd)
    assert runs_on_python_3_6(find_services)


@pytest.mark.parametrize("service", ["pbs_mom", "sbatchd", "condor_startd"])
def test_the_limits_of_a_service_that_runs_here(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process of its name, and another one whose name begins so."""
    monkeypatch.setenv("SLURM_CONF", "/no/such/file")
    shutil.copy("/bin/sleep", tmp_path / service)
    shutil.copy("/bin/sleep", tmp_path / f"{service}x")
    started = [
        subprocess.Popen(["sh", "-c", f"ulimit -n {number}; exec {tmp_path}/{name} 60"])
        for name, number in ((service, 61), (f"{service}x", 62))
    ]
    try:
        while [Path(f"/proc/{run.pid}/comm").read_text() for run in started] != [f"{service}\n", f"{service}x\n"]:
            time.sleep(0.01)
        others = {pid for name, _, pid in processes([service])} - {str(started[0].pid)}
        fact = answered(JobServices, find_services({"services": [service]}))
        assert isinstance(fact, JobServices)
        assert others or re.search(r"Max open files\s+61\s", fact.limits[service])
        assert f"{service}x" not in fact.limits
    finally:
        for run in started:
            run.kill()
            run.wait()
