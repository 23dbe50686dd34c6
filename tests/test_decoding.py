"""Threads that decode at once: msgspec builds a type's description when it is first used, and takes no lock for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STRESS = """
import os, sys, threading
from doctor.collect import collector_request as protocol
from doctor.remote.runtime.framing import frame
from doctor.transport import CommandResult

body = '{"outputs": {"Fact": {"": {"out": "x"}}}, "python": "3.11", "uid": 0, "name": "a", "began": 1.0, "ended": 2.0}'
result = CommandResult(0, frame("M", body).encode(), b"", 0.0, 1.0)

names = []

def decode(barrier):
    barrier.wait()
    names.append(protocol.parse_response(result, "M").visit.name)

crashed = 0
for _ in range(ROUNDS):
    child = os.fork()
    if not child:  # a fresh copy of the modules, in which nothing was decoded yet
        sys.setswitchinterval(1e-6)
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=decode, args=(barrier,)) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        os._exit(names != ["a"] * 8)
    crashed += os.waitpid(child, 0)[1] != 0
print(crashed)
"""


def crashes(prologue: str = "", rounds: int = 60) -> int:
    """In how many of so many fresh processes eight threads that decode their first answer at once end by a signal."""
    done = subprocess.run(
        [sys.executable, "-c", prologue + STRESS.replace("ROUNDS", str(rounds))],
        capture_output=True, text=True, cwd=ROOT, timeout=100, check=True,
    )  # fmt: skip
    return int(done.stdout)


def test_hosts_that_answer_at_the_same_moment_do_not_crash_the_interpreter() -> None:
    assert crashes() == 0
