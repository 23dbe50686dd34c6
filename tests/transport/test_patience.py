"""A host is not late because doctor itself stood still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.transport.test_launcher_failures import SRUN

if TYPE_CHECKING:
    from tests.transport.conftest import Ground

PROGRAM = """
import sys
from doctor.transport import TransportError
from doctor.transport.local import Local
print("ready", flush=True)
try:
    print(Local().run("n1", sys.argv[1], b"", 6.0).out.decode().strip()[-4:])
except TransportError as error:
    print(error.kind)
"""


def output_of_stopped(program: str, *arguments: str, begun: float, seconds: float) -> str:
    """What a doctor prints that is stopped for so many seconds, when it has begun for a while."""
    doctor = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)
    assert doctor.stdout is not None and doctor.stdout.readline() == "ready\n"
    time.sleep(begun)
    os.kill(doctor.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(doctor.pid, signal.SIGCONT)
    output, _ = doctor.communicate(timeout=60)
    return output.strip()


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("sleep 2; echo done", "done"),
        ("sleep 2; head -c 300000 /dev/zero | tr '\\\\0' x; echo done", "done"),  # more than a pipe holds
        ("sleep 60", "timeout"),
    ],
)
def test_a_controller_that_was_stopped_still_hears_what_its_hosts_said(command: str, answer: str) -> None:
    assert output_of_stopped(PROGRAM, command, begun=0.5, seconds=8.0) == answer


CONNECTING = """
import sys
from doctor.transport import TransportError
from doctor.transport.open import open_transport
from doctor.transport.options import SshOptions
print("ready", flush=True)
try:
    transport = open_transport(False, "ssh", SshOptions(config=sys.argv[1], connect_timeout=3.0), [sys.argv[2]])
    print(transport.run(sys.argv[2], "echo done", b"", 6.0).out.decode().strip())
except TransportError as error:
    print(error.kind)
"""


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("delay", "answer"),
    [
        ('test -e "{0}" || {{ touch "{0}"; sleep 2; }}; ', "done"),  # the first time, while doctor stands still
        ("sleep 60; ", "jump"),  # for ever
    ],
)
def test_a_host_that_doctor_was_stopped_before_reaching_is_reached(ground: Ground, delay: str, answer: str) -> None:
    host = ground.good[0]
    way = f"exec ssh -F {ground.folder}/ssh_config -W {ground.fleet.addresses[host]}:22 {ground.good[1]}"
    script = ground.folder / "way"
    script.write_text(delay.format(ground.folder / "begun") + way)
    config = ground.config(f"Host {host}\n ProxyCommand sh {script}\n")
    assert output_of_stopped(CONNECTING, str(config), host, begun=1.5, seconds=5.0) == answer


ABSENT = """
from doctor.transport import TransportError, transport_error
from doctor.transport.kubernetes.kubectl import while_absent
attempts = []
def attempt():
    attempts.append(1)
    if len(attempts) < 4:
        raise transport_error("refused", "no API server")
    return "done"
print("ready", flush=True)
print(while_absent(attempt, 3.0))
"""


def test_an_api_server_that_was_absent_while_doctor_stood_still_is_tried_as_long_as_others() -> None:
    assert output_of_stopped(ABSENT, begun=0.2, seconds=6.0) == "done"


BY_SRUN = """
import sys
from doctor.transport import TransportError
from doctor.transport.open import open_transport
from doctor.transport.options import SshOptions
print("ready", flush=True)
transport = open_transport(False, "slurm", SshOptions(connect_timeout=6.0), ["n1"])
try:
    print(transport.run("n1", "echo done", b"", 6.0).out.decode().strip())
except TransportError as error:
    print(error.kind)
transport.close()
"""


@pytest.mark.parametrize(("late", "answer"), [("4", "done"), ("60", "dropped")])
def test_a_launcher_that_started_its_tasks_while_doctor_stood_still_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str, answer: str
) -> None:
    (tmp_path / "srun.py").write_text(SRUN)
    variables = {"DOCTOR_SRUN": f"{sys.executable} {tmp_path}/srun.py", "LAUNCHES": str(tmp_path / "launches")}
    for name, value in {**variables, "DEAD": "-", "SILENT": "-", "MODE": "end", "LATE": late}.items():
        monkeypatch.setenv(name, value)
    assert output_of_stopped(BY_SRUN, begun=1.5, seconds=12.0) == answer
