"""A command on this machine: bounded in time and output, and nothing of it stays."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.transport import TransportError
from doctor.transport.local import Local


@pytest.fixture
def local() -> Iterator[Local]:
    transport = Local(max_output=100_000)
    yield transport
    transport.close()


def has_ended(pid: int) -> bool:
    """Waits for a killed process that is not our child to be reaped."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
    return False


def test_it_says_how_a_command_went(local: Local) -> None:
    before = time.time()
    result = local.run("here", "echo out; echo err >&2; exit 3", b"", 5)
    assert (result.code, result.out, result.err) == (3, b"out\n", b"err\n")
    assert before <= result.sent <= result.received <= time.time()


def test_death_by_a_signal_is_negative(local: Local) -> None:
    assert local.run("here", "kill -TERM $$", b"", 5).code == -15


def test_stdin_is_sent_whole_while_output_is_read(local: Local) -> None:
    """More each way than pipes hold."""
    result = Local(10**7).run("here", "yes 0123456789 | head -c 300000; head -c 300000", b"x" * 300_000, 10)
    assert (len(result.out), result.out[-300_000:]) == (600_000, b"x" * 300_000)


def test_stdin_stays_open_until_the_command_ends(local: Local) -> None:
    with pytest.raises(TransportError) as stop:
        local.run("here", "read line; echo got $line; cat; echo its end", b"word\n", 0.3)
    assert stop.value.kind == "timeout"
    assert stop.value.partial_result is not None
    assert stop.value.partial_result.out == b"got word\n"


def test_a_command_that_never_reads_its_stdin_is_fine(local: Local) -> None:
    assert local.run("here", "exec true", b"x" * 1_000_000, 5).code == 0


def test_a_late_command_is_ended_with_all_that_it_started(local: Local) -> None:
    with pytest.raises(TransportError) as stop:
        local.run("here", "trap '' TERM HUP; sleep 1000 & echo $! $$; wait", b"", 0.3)
    assert (stop.value.kind, stop.value.text) == ("timeout", "the command did not end within 0.3 s")
    assert stop.value.partial_result is not None
    assert all(has_ended(int(pid)) for pid in stop.value.partial_result.out.split())


def test_what_holds_the_output_open_is_not_waited_for_longer(local: Local) -> None:
    began = time.monotonic()
    with pytest.raises(TransportError) as stop:
        local.run("here", "sleep 1000 & echo $!", b"", 0.3)
    assert time.monotonic() - began < 2
    assert stop.value.partial_result is not None
    assert has_ended(int(stop.value.partial_result.out))


def test_what_a_command_left_running_by_intent_stays(local: Local) -> None:
    result = local.run("here", "sleep 1000 >/dev/null 2>&1 & echo $!", b"", 5)
    os.kill(int(result.out), 9)


def test_a_flood_is_cut(local: Local) -> None:
    began = time.monotonic()
    with pytest.raises(TransportError) as stop:
        local.run("here", "exec cat /dev/zero", b"", 30)
    assert (stop.value.kind, stop.value.text) == ("flood", "it printed more than 97.7 KiB, and was closed")
    assert stop.value.partial_result is not None
    assert 100_000 < len(stop.value.partial_result.out) < 300_000
    assert time.monotonic() - began < 5


def test_close_ends_what_runs(local: Local, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    stops: list[TransportError] = []

    def wait() -> None:
        with pytest.raises(TransportError) as stop:
            local.run("here", f"echo $$ >{tmp_path}/started; exec sleep 1000", b"", 60)
        stops.append(stop.value)

    thread = threading.Thread(target=wait)
    thread.start()
    pid = int((tmp_path / "started").read_text())
    local.close()
    thread.join(5)
    assert [stop.kind for stop in stops] == ["budget"]
    assert has_ended(pid)
    with pytest.raises(TransportError) as stop:
        local.run("here", "true", b"", 5)
    assert stop.value.kind == "budget"
