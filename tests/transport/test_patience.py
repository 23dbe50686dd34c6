"""A host is not late because doctor itself stood still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

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
