"""Signs of life, and the end that comes whatever hangs."""

from __future__ import annotations

import io
import os
import queue
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.preflight.deadline import Heartbeat

ROOT = Path(__file__).resolve().parents[2]


def test_a_sign_of_life_says_what_is_waited_for() -> None:
    beat = Heartbeat(None, time.monotonic() - 12)
    beat.expect(3)
    beat.step("a", HostRecord(Visit()))
    beat.step("b", HostRecord(Visit("refused", "nothing listens")))
    assert beat.text() == "doctor preflight: 12 s, waiting for hosts, 1 of 3 hosts answered, 1 could not be reached"
    beat.stage("training", 4.0)
    assert "smoke run: training done after 4.0 s" in beat.text()
    beat.stage("try", 0.0)
    assert "network test: try" in beat.text()


def test_it_is_given_again_and_again_until_the_end() -> None:
    out, into = os.pipe()
    with os.fdopen(into, "w") as stream, os.fdopen(out) as reader:
        beat = Heartbeat(stream, time.monotonic(), interval=0.01)
        assert [reader.readline()[:18] for _ in range(3)] == ["doctor preflight: "] * 3
        beat.close()


def test_nobody_who_reads_it_ends_it_and_is_no_trouble() -> None:
    """A thread that died of it would print a traceback, and pytest would fail this test."""
    tried: queue.Queue[str] = queue.Queue()

    class ClosedStream(io.StringIO):
        def write(self, text: str) -> int:
            tried.put(text)
            raise BrokenPipeError

    Heartbeat(ClosedStream(), time.monotonic(), interval=0.01)
    tried.get(timeout=10)
    with pytest.raises(queue.Empty):
        tried.get(timeout=0.1)


def test_the_age_of_a_process_counts_from_its_start() -> None:
    program = "import time; time.sleep(0.2); from doctor.preflight.deadline import process_age; print(process_age())"
    began = time.monotonic()
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert 0.2 <= float(output) <= time.monotonic() - began + 0.02


def test_a_process_that_hangs_ends_in_time_with_its_last_words() -> None:
    program = """
import time
from doctor.preflight.deadline import Deadline
def last_words():
    print("the end", flush=True)
    return 12
Deadline(time.monotonic() + 0.1, last_words)
try:
    time.sleep(60)
finally:
    print("never")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (12, "the end\n", "")


def test_an_end_that_was_called_off_does_not_come() -> None:
    program = """
import time
from doctor.preflight.deadline import Deadline
deadline = Deadline(time.monotonic() + 0.2, lambda: 12)
deadline.cancel()
time.sleep(0.4)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30).returncode == 0
