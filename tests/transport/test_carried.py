"""The carrier and its commands without any launcher: over plain pipes, by every Python that hosts have."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doctor.transport import TransportError
from doctor.transport.launcher.carrier.carried_commands import WINDOW
from doctor.transport.launcher.launcher import TaskOutput, carrier_command
from doctor.transport.launcher.launcher_transport import LauncherTransport
from tests.test_collector import PYTHONS
from tests.transport.test_talk import ECHO, files, has_ended, python
from tests.transport.test_talk import Listener as Reader


class Ears:
    def __init__(self) -> None:
        self.host_by_task: dict[int, str] = {0: "here"}
        self.started_hosts: set[str] = set()
        self.errors_by_host: dict[str, TransportError] = {}
        self.launch_id = self.last_error = ""

    def read_stdout(self, piece: bytes) -> Iterator[TaskOutput]:
        yield TaskOutput(0, False, piece)

    def read_stderr(self, piece: bytes) -> Iterator[TaskOutput]:
        yield TaskOutput(0, True, piece)


class Here:
    """Launches one carrier, on this machine."""

    name, default_timeout = "here", 10.0

    def __init__(self, argv: Sequence[str] = (), folder: str = "") -> None:
        self._argv, self._folder = argv, folder

    def check(self) -> None:
        pass

    def groups(self, hosts: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(hosts)]

    def test_command(self, host: str) -> str:
        return ""

    def argv(self, hosts: Sequence[str], patience: float) -> Sequence[str]:
        return list(self._argv or carrier_command())

    def environ(self) -> Mapping[str, str]:
        return {**os.environ, "PMI_RANK": "0", "PATH": f"{self._folder}:{os.environ['PATH']}", "HOME": "/tmp"}

    def open_reader(self, hosts: Sequence[str]) -> Ears:
        return Ears()

    def affects_all_hosts(self, message: str) -> bool:
        return False

    def cancel(self, ears: object) -> None:
        pass

    def states(self, hosts: Sequence[str]) -> dict[str, TransportError]:
        return {}


@contextlib.contextmanager
def opened(folder: Path, interpreter: str) -> Iterator[LauncherTransport]:
    """Nothing of it stays: no file, no thread."""
    (folder / "python3").symlink_to(interpreter)
    before, threads = files(), set(threading.enumerate())
    transport = LauncherTransport(Here(folder=str(folder)), ["here"], limit=100_000)
    yield transport
    transport.close()
    assert files() <= before
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LauncherTransport]:
    with opened(tmp_path, sys.executable) as transport:
        yield transport


@pytest.fixture(params=PYTHONS, ids=lambda path: Path(path).parts[-3])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LauncherTransport]:
    with opened(tmp_path, request.param) as transport:
        yield transport


def test_a_command_says_all_that_it_has_to(anywhere: LauncherTransport) -> None:
    before = time.time()
    result = anywhere.run("here", "read line; echo out $line; echo err >&2; pwd; exit 3", b"word\n", 10)
    assert (result.code, result.out, result.err) == (3, b"out word\n/tmp\n", b"err\n")
    assert before <= result.sent <= result.received <= time.time()


def test_more_than_pipes_and_windows_hold_goes_both_ways(anywhere: LauncherTransport) -> None:
    """The sum, for the limit on what comes back is small here."""
    data = os.urandom(3 * WINDOW)
    result = anywhere.run("here", f"head -c {len(data)} | cksum; yes 0123456789 | head -c 90000", data, 20)
    assert result.out.split()[1] == b"%d" % len(data)
    assert len(result.out) > 90_000


def test_many_at_once_are_kept_apart(here: LauncherTransport) -> None:
    with ThreadPoolExecutor(16) as pool:
        results = list(
            pool.map(lambda n: here.run("here", f"head -c 5000 | wc -c; echo {n}", b"x" * 5000, 10), range(16))
        )
    assert [result.out.split() for result in results] == [[b"5000", b"%d" % n] for n in range(16)]


def test_a_late_command_is_ended_with_all_that_it_started(here: LauncherTransport) -> None:
    with pytest.raises(TransportError) as stop:
        here.run("here", "trap '' TERM HUP; sleep 1000 & echo $! $$; wait", b"", 0.5)
    assert (stop.value.kind, stop.value.text) == ("timeout", "the command did not end within 0.5 s")
    assert stop.value.partial_result is not None
    assert all(has_ended(int(pid)) for pid in stop.value.partial_result.out.split())


def test_what_a_command_left_running_by_intent_stays(here: LauncherTransport) -> None:
    result = here.run("here", "sleep 1000 >/dev/null 2>&1 & echo $!", b"", 5)
    os.kill(int(result.out), 9)


def test_a_flood_is_cut_and_holds_up_nobody(here: LauncherTransport) -> None:
    with ThreadPoolExecutor(2) as pool:
        flood = pool.submit(here.run, "here", "echo $$; exec cat /dev/urandom", b"", 30)
        assert here.run("here", "echo fine", b"", 5).out == b"fine\n"
        with pytest.raises(TransportError) as stop:
            flood.result(10)
    assert (stop.value.kind, stop.value.text) == ("flood", "it printed more than 97.7 KiB, and was closed")
    assert stop.value.partial_result is not None
    assert len(stop.value.partial_result.out) < 2 * WINDOW
    assert has_ended(int(stop.value.partial_result.out.split(b"\n")[0]))


def test_lines_go_both_ways_until_the_input_ends(anywhere: LauncherTransport) -> None:
    talk = anywhere.open_session("here", python(ECHO))
    listener = Reader(talk)
    assert int(listener.line()) > 1
    large = os.urandom(2_000_000).replace(b"\n", b" ")
    talk.send(b"one\n\ntw")
    talk.send(b"o\n" + large + b"\n")
    assert [listener.line() for _ in range(4)] == [b"one", b"", b"two", large]
    talk.end()
    assert listener.rest() == [b"bye"]
    assert (talk.host, talk.code, listener.error) == ("here", 3, None)


def test_its_program_ends_and_takes_what_it_started_along(here: LauncherTransport) -> None:
    talk = here.open_session("here", "sleep 1000 & echo $!; exit 4")
    (line,) = list(talk)
    assert talk.code == 4
    assert has_ended(int(line))


def test_close_ends_all(here: LauncherTransport) -> None:
    talk = here.open_session("here", "trap '' TERM; echo $$; while :; do sleep 60; done")
    listener = Reader(talk)
    pid = int(listener.line())
    began = time.monotonic()
    here.close()
    assert has_ended(pid)
    assert time.monotonic() - began < 4
    listener.rest()
    assert listener.error is not None
    assert listener.error.kind == "budget"
    with pytest.raises(TransportError) as stop:
        here.run("here", "true", b"", 5)
    assert stop.value.kind == "budget"


def test_a_carrier_that_is_killed_takes_its_commands_along(here: LauncherTransport) -> None:
    talk = here.open_session("here", "echo $PPID; echo $$; exec sleep 1000")
    listener = Reader(talk)
    parent, child = int(listener.line()), int(listener.line())
    os.kill(parent, 9)
    listener.rest()
    assert listener.error is not None
    assert listener.error.kind == "lost"
    assert has_ended(child)
    assert here.run("here", "echo again", b"", 10).out == b"again\n"


@pytest.mark.parametrize(
    ("argv", "kind", "message"),
    [
        (["/bin/sh", "-c", "exec sleep 60"], "dropped", "here had no answer from it within 0.5 s"),
        (
            ["/bin/sh", "-c", "echo doctor-no-python >&2; exec 1>&-; sleep 0.1"],
            "no-python",
            "there is no python3 on the host",
        ),
        (["/no/such/launcher"], "error", "launcher could not be started: No such file or directory"),
    ],
)
def test_a_host_that_never_answers_is_told_why(argv: list[str], kind: str, message: str) -> None:
    transport = LauncherTransport(Here(argv), ["here"], 0.5)
    with pytest.raises(TransportError) as stop:
        transport.run("here", "true", b"", 5)
    transport.close()
    assert (stop.value.kind, stop.value.text) == (kind, message)


def test_its_source_is_small() -> None:
    assert len(carrier_command()[-1]) < 8000
