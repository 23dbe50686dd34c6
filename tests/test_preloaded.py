"""A forked doctor is what a started one is: what it prints, its exit code, its environment, its network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.hosts.fleet import Fleet

ROOT = Path(__file__).parents[1]
DOCTOR = (sys.executable, "-m", "doctor")

READS = """
import os, sys
reads = set()

def noted(name):
    plain = getattr(type(os.environ), name)
    def read(self, *rest):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if frame is not None:
            reads.add(str(frame.f_globals.get("__name__")))
        return plain(self, *rest)
    setattr(type(os.environ), name, read)

for name in ("__getitem__", "__contains__", "__iter__"):
    noted(name)
from tests import preloaded
reads.clear()
preloaded.load()
assert "typer.core" in reads, "this test sees no reads"
assert "torch" not in sys.modules
print(sorted(name for name in reads if name.startswith("doctor")))
"""


def test_no_module_of_doctor_reads_the_environment_while_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", READS], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def both(arguments: list[str], **options: Any) -> list[tuple[int, str, str]]:
    argv = [*DOCTOR, *arguments]
    options = {"capture_output": True, "text": True, "timeout": 100, **options}
    assert preloaded.can_run(argv, options)
    runs = subprocess.run(argv, **options), preloaded.run(argv, **options)
    return [(done.returncode, re.sub(r", 20.* s\n", "\n", done.stdout), done.stderr) for done in runs]


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["list", "shm"], {}),
        (["explain", "disk-full"], {"DOCTOR_LANG": "zh", "COLUMNS": "60"}),
        (["check", "--select", "python3-missing", "--scope", "local"], {"HCCL_IF_BASE_PORT": "99999"}),
        (["check", "--select", "nothing-of-the-name"], {"DOCTOR_LANG": "zh"}),
        (["report", "no-such-file"], {}),
        (["--no-such-option"], {"COLUMNS": "50"}),
    ],
    ids="-".join,
)
def test_it_prints_and_returns_the_same(tmp_path: Path, arguments: list[str], environ: dict[str, str]) -> None:
    (tmp_path / "disk-full").touch()  # a relative path is one of the given folder
    started, forked = both(arguments, env={**os.environ, "PYTHONPATH": str(ROOT), **environ}, cwd=tmp_path)
    assert forked == started
    assert started[1] or started[2]


def test_one_that_takes_too_long_is_ended() -> None:
    argv = [*DOCTOR, "watch", "--log", "/dev/null"]
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        preloaded.run(argv, capture_output=True, cwd=ROOT, timeout=0.1)
    assert time.monotonic() - began < 60
    done = preloaded.run([*DOCTOR, "list", "no-such-word"], capture_output=True, cwd=ROOT, timeout=100)
    assert done.returncode == 1, "the server goes on"


@pytest.mark.parametrize(
    ("options", "forked"),
    [
        ({}, True),
        ({"env": {**os.environ, "DOCTOR_LANG": "zh"}}, True),
        ({"env": {**os.environ, "LC_ALL": "C.iso88591"}}, False),
        ({"env": {**os.environ, "PYTHONPATH": "/another"}}, False),
        ({"stdin": subprocess.PIPE}, False),
        ({"start_new_session": True}, False),
    ],
)
def test_what_an_interpreter_reads_at_its_start_needs_one(options: dict[str, Any], forked: bool) -> None:
    assert preloaded.can_run([*DOCTOR, "list"], {"capture_output": True, **options}) == forked


def test_another_program_is_started() -> None:
    argv = [sys.executable, "-c", "import sys; print('doctor.cli' in sys.modules)"]
    assert preloaded.run(argv, capture_output=True, text=True).stdout == "False\n"


@pytest.mark.hosts
def test_it_enters_the_hub_of_a_fleet_and_leaves_ours_alone(fleet_cpu: Fleet) -> None:
    arguments = [*DOCTOR, "check", ",".join(fleet_cpu.hosts), "-F", str(fleet_cpu.ssh_config), "--json"]
    arguments += ["--select", "disk-full", "--select", "host-unreachable"]
    names = Path("/etc/hosts").read_bytes()
    started = subprocess.run(fleet_cpu.argv(arguments), cwd=ROOT, capture_output=True, text=True, timeout=100)
    forked = fleet_cpu.run(arguments, cwd=ROOT, timeout=100)
    assert started.returncode == forked.returncode == 0, forked.stderr
    assert started.stdout.count("\n") == forked.stdout.count("\n") and fleet_cpu.hosts[3] in forked.stdout
    assert Path("/etc/hosts").read_bytes() == names
