"""Whether a process gets on, by what the kernel shows of it and of those that it has started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doctor.watch.effort import Effort, process_tree
from doctor.watch.peer_wait import awaited_peer

WORK = "import time\nend = time.time() + 60\nwhile time.time() < end: sum(range(1000))"

IN_A_THREAD = (
    "import threading, subprocess\n"
    f"thread = threading.Thread(target=subprocess.run, args=[[sys.executable, '-c', {WORK!r}]])\n"
    "thread.start(); thread.join()"
)


@contextmanager
def python(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says ``.`` when it is where it is to be looked at."""
    prefix = "import sys, os, time\nos.write(1, b'.')\n"
    with subprocess.Popen([sys.executable, "-c", prefix + program, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.read(1) == b"."
        try:
            yield process
        finally:
            process.kill()


def kind_of(pid: int, looks: int = 6) -> str:
    """What several looks within some seconds show."""
    effort, clock = Effort(), time.monotonic()
    effort.begin(clock)
    time.sleep(0.3)
    for _ in range(looks):
        time.sleep(1.05)
        effort.look(pid, time.monotonic(), time.monotonic() - clock, loads=False)
    if not effort.kind:
        assert effort.rest(time.monotonic()) > looks - 3
    return effort.kind


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("time.sleep(100)", ""),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", ""),
        ("import tempfile; path = tempfile.mktemp(); os.mkfifo(path); open(path)", ""),
        ("import subprocess; subprocess.run(['sleep', '100'])", ""),
        (WORK, "works"),
        (f"import subprocess; subprocess.run([sys.executable, '-c', {WORK!r}])", "works"),
        (IN_A_THREAD, "works"),
        ("while not os.path.exists('/no/such/file'): time.sleep(0.3)", "asks again and again"),
    ],
)
def test_what_a_process_does(program: str, kind: str) -> None:
    with python(program) as process:
        assert kind_of(process.pid) == kind


@pytest.mark.parametrize(
    "wait",
    [
        "link.recv(1)",
        "link.settimeout(90); link.recv(1)",
        "import select; select.select([link], [], [])",
        "import select; waiter = select.epoll(); waiter.register(link, select.EPOLLIN); waiter.poll()",
        "import threading; thread = threading.Thread(target=link.recv, args=[1]); thread.start(); thread.join()",
    ],
)
def test_a_process_that_waits_for_a_server_does_not_rest(wait: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; link = socket.create_connection(('127.0.0.1', {port})); {wait}"
        with python(program) as process:
            assert kind_of(process.pid, looks=3) == f"waits for 127.0.0.1:{port}"


def test_a_connection_that_nobody_waits_for_is_no_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = "import socket; link = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(100)"
        with python(program, str(server.getsockname()[1])) as process:
            time.sleep(0.5)
            assert awaited_peer(process.pid, process_tree(process.pid)) == ""


def test_bytes_of_a_slow_copy_are_progress(tmp_path: Path) -> None:
    program = "file = open(sys.argv[1], 'wb', 0)\nwhile True: file.seek(0); file.write(bytes(1 << 18)); time.sleep(1)"
    with python(program, str(tmp_path / "copy")) as process:
        assert kind_of(process.pid) == "moves data"


def test_the_signal_that_asks_for_a_stack_is_no_progress() -> None:
    """It wakes the main thread."""
    program = "import signal; signal.signal(signal.SIGUSR1, lambda *_: None); time.sleep(100)"
    with python(program) as process:
        effort, clock = Effort(), time.monotonic()
        effort.begin(clock)
        for _ in range(5):
            time.sleep(1.05)
            os.kill(process.pid, 10)
            effort.forget_switches()
            time.sleep(0.05)
            effort.look(process.pid, time.monotonic(), time.monotonic() - clock, loads=False)
        assert effort.kind == "" and effort.rest(time.monotonic()) > 3


def test_a_process_that_is_gone_is_looked_at_without_an_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert kind_of(process.pid, looks=2) == ""
