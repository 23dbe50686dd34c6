"""A host is not late because doctor itself stood still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

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


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("sleep 2; echo done", "done"),
        ("sleep 2; head -c 300000 /dev/zero | tr '\\\\0' x; echo done", "done"),  # more than a pipe holds
        ("sleep 60", "timeout"),
    ],
)
def test_a_controller_that_was_stopped_still_hears_what_its_hosts_said(command: str, answer: str) -> None:
    doctor = subprocess.Popen([sys.executable, "-c", PROGRAM, command], stdout=subprocess.PIPE, text=True)
    assert doctor.stdout is not None and doctor.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.kill(doctor.pid, signal.SIGSTOP)
    time.sleep(8.0)
    os.kill(doctor.pid, signal.SIGCONT)
    output, _ = doctor.communicate(timeout=60)
    assert output.strip() == answer
