"""Whether a process gets on, by what the kernel shows of it and of those that it has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doctor.smoke.programs.agent.procfs import cpu_times
from doctor.watch import effort as effort_module
from doctor.watch.attach.inspector.awaited_processes import lock_owners, other_ends
from doctor.watch.attach.inspector.rank_state import ends_in, process_tree, sleeps_for
from doctor.watch.effort import Effort
from doctor.watch.local_wait import awaited_peer
from tests.watch.test_awaited_processes import until

WORK = "import time\nwhile True: sum(range(500_000)); time.sleep(0.03)"
"""A fifth to a third of a CPU: several times what counts as work."""

IN_A_THREAD = (
    "import threading, subprocess\n"
    f"thread = threading.Thread(target=subprocess.run, args=[[sys.executable, '-c', {WORK!r}]])\n"
    "thread.start(); thread.join()"
)


@contextmanager
def python(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says ``.`` when it is where it is to be looked at."""
    prefix = "import sys, os, time\nos.write(1, b'.')\n"
    argv = [sys.executable, "-c", prefix + program, *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout and process.stdout.read(1) == b"."
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # what it has started, too


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


def goes_to_rest(pid: int, kind: str, looks: int = 6) -> None:
    """So it is seen as soon as it has nothing more to do: looks without the seconds between would show the same."""

    def rests() -> bool:
        effort = Effort()
        effort.begin(0.0)
        for second in range(1, looks + 1):
            effort.look(pid, 1.1 * second, 1.1 * second, loads=False)
        is_kind = effort.kind.startswith(kind) if kind else effort.kind == ""
        return is_kind and (bool(kind) or effort.rest(1.1 * looks) > looks - 3)

    until(rests)
    assert rests()


def test_who_has_the_other_end_of_a_wait_is_not_searched_for_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of the user are listed for it."""
    searched: list[int] = []
    real = effort_module.files_of  # type: ignore[attr-defined]
    monkeypatch.setattr(effort_module, "files_of", lambda others: searched.append(1) or real(others))
    program = "import socket; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
    with socket.create_server(("127.0.0.1", 0)) as server, python(program, str(server.getsockname()[1])) as rank:
        until(lambda: other_ends(rank.pid))  # type: ignore[no-untyped-call]
        effort = Effort()
        effort.begin(0.0)
        for second in range(1, 26):
            effort.look(rank.pid, 1.1 * second, 0.0, loads=False)
        assert 2 <= len(searched) <= 4


STOPS = "os.kill(os.getpid(), signal.SIGSTOP)"
LOCKED = "threading.Lock().acquire(); lock = threading.Lock(); lock.acquire(); lock.acquire()"
IN_THREAD = "thread = threading.Thread(target=client.recv, args=[1]); thread.start(); thread.join()"


@pytest.mark.parametrize(
    ("server", "wait", "rests"),
    [
        (STOPS, "client.recv(1)", True),
        (STOPS, IN_THREAD, True),
        (LOCKED, "client.recv(1)", True),
        (LOCKED, IN_THREAD, True),
        ("time.sleep(1000)", IN_THREAD, True),
        ("time.sleep(100)", "client.recv(1)", False),
        ("threading.Lock().acquire(timeout=100)", IN_THREAD, False),
        ("server.accept()[0].recv(1)", "client.recv(1)", False),
        ("threading.Thread(target=time.sleep, args=[100]).start(); " + LOCKED, IN_THREAD, False),
        ("os.read(os.pipe()[0], 1)", "client.recv(1)", False),
    ],
)
def test_who_waits_for_a_process_of_its_host_that_is_held_up_rests(server: str, wait: str, rests: bool) -> None:
    """As for a server that was stopped, or is in a deadlock. One with a thread that may go on may answer yet."""
    program = (
        "import socket, signal, threading; server = socket.create_server(('127.0.0.1', 0))\n"
        f"if not os.fork():\n    {server}; time.sleep(100)\n"
        f"client = socket.create_connection(server.getsockname()); server.close(); {wait}"
    )
    with python(program) as rank:
        until(lambda: awaited_peer(rank.pid, [rank.pid]).peer)
        effort = Effort()
        effort.begin(0.0)
        for second in range(1, 8):
            effort.look(rank.pid, 1.1 * second, 0.0, loads=False)
        assert effort.kind.startswith("waits for 127.0.0.1:") is not rests
        assert bool(effort.rest(8.0) > 3.0) is rests


@pytest.mark.parametrize(
    ("keeps", "asks", "named"),
    [
        ("fcntl.flock", "fcntl.flock", True), ("fcntl.lockf", "fcntl.lockf", True),
        ("None", "fcntl.flock", False), ("fcntl.flock", "None", False),
    ],
)  # fmt: skip
def test_who_keeps_the_lock_for_which_a_process_asks_again_and_again(
    keeps: str, asks: str, named: bool, tmp_path: Path
) -> None:
    """Not who has the file open without a lock, nor that of a file which the process has not open."""
    file = tmp_path / "index.lock"
    keeper = (
        f"import fcntl; file = open({str(file)!r}, 'w'); {keeps} and {keeps}(file, fcntl.LOCK_EX)\ntime.sleep(1000)"
    )
    asking = f"""import fcntl
file = open({str(file)!r} if {asks} else '/dev/null', 'w')
while True:
    try:
        time.sleep(0.2)
        {asks} and {asks}(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: pass
"""
    with python(keeper) as owner, python(asking) as process:
        time.sleep(0.5)
        assert lock_owners(process.pid) == ([owner.pid] if named else [])  # type: ignore[no-untyped-call]
        assert not named or lock_owners(owner.pid) == []  # type: ignore[no-untyped-call]


def test_a_rank_that_accepts_connections_waits_for_a_request() -> None:
    with python("import socket; socket.create_server(('127.0.0.1', 0)).accept()") as rank:
        until(lambda: awaited_peer(rank.pid, [rank.pid]).peer)
        assert awaited_peer(rank.pid, [rank.pid]).peer.startswith("a request at 127.0.0.1:")


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("time.sleep(1000)", ""),
        ("time.sleep(100)", "sleeps"),
        ("import threading; threading.Event().wait(100)", "sleeps"),
        ("import threading; threading.Event().wait(1000)", ""),
        ("import select; select.select([], [], [], 100)", "sleeps"),
        ("import asyncio; asyncio.run(asyncio.sleep(100))", "sleeps"),
        ("import asyncio; asyncio.run(asyncio.Event().wait())", ""),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", ""),
        ("import tempfile; path = tempfile.mktemp(); os.mkfifo(path); open(path)", ""),
        ("import subprocess; subprocess.run(['sleep', '1000'])", ""),
        (WORK, "works"),
        (f"import subprocess; subprocess.run([sys.executable, '-c', {WORK!r}])", "works"),
        (IN_A_THREAD, "works"),
        ("while not os.path.exists('/no/such/file'): time.sleep(0.3)", "asks again and again"),
    ],
)
def test_what_a_process_does(program: str, kind: str) -> None:
    with python(program) as process:
        if kind in ("", "sleeps"):
            time.sleep(0.5)
            goes_to_rest(process.pid, kind)
            return
        observed, (_, waited, _) = kind_of(process.pid), cpu_times(process.pid, False)  # type: ignore[no-untyped-call]
    expected_kinds = {kind}
    if kind == "asks again and again":  # a loaded host lets it sleep longer, or wait for a CPU each time
        expected_kinds |= {"sleeps", "works"} if waited > 0.2 else {"sleeps"}
    assert observed in expected_kinds


@pytest.mark.parametrize(
    ("program", "seconds"),
    [
        ("time.sleep(500)", 500),
        ("import subprocess; subprocess.run(['sleep', '300'])", 300),
        ("import subprocess; subprocess.run(['cat'], stdin=os.pipe()[0])", -1),
        ("os.read(os.pipe()[0], 1)", -1),
        ("import threading; t = threading.Thread(target=time.sleep, args=[200]); t.start(); t.join()", 200),
        ("import select; select.select([], [], [], 100)", 100),
        ("import threading; threading.Event().wait(100)", 100),
        ("import threading; threading.Event().wait()", -1),
        ("import signal; signal.sigtimedwait({signal.SIGUSR1}, 400)", 400),
        ("import signal; signal.sigwait({signal.SIGUSR1})", -1),
        ("import subprocess; subprocess.run(['timeout', '90', 'cat'], stdin=os.pipe()[0])", -1),
        ("import subprocess; subprocess.run(['bash', '-c', 'read -t 70'], stdin=os.pipe()[0])", 70),
    ],
)
def test_how_long_a_process_or_one_below_it_sleeps(program: str, seconds: float) -> None:
    with python(program) as process:
        time.sleep(1)
        own, awaited = ends_in(process.pid, process.pid), process_tree(process.pid)[1:]  # type: ignore[no-untyped-call]
        found = max(own, sleeps_for(process.pid, process.pid, awaited))  # type: ignore[no-untyped-call]
        assert found == pytest.approx(seconds, abs=20 if seconds > 0 else 0)


BEATS = "import threading; threading.Thread(target=lambda: [time.sleep(0.2) for _ in range(1000)]).start(); "


@pytest.mark.full
def test_a_thread_that_wakes_up_now_and_then_on_a_loaded_host_is_no_work() -> None:
    """Each time it waits for a CPU for a moment, in which it is found ready to run."""
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6 * (os.cpu_count() or 1))]
    try:
        with python(BEATS + "reader, writer = os.pipe(); os.write(writer, bytes(1 << 20))") as process:
            time.sleep(1)
            effort, kinds = Effort(), []
            effort.begin(time.monotonic())
            for _ in range(10):
                time.sleep(1.05)
                effort.look(process.pid, time.monotonic(), 0.0, loads=False)
                kinds.append(effort.kind)
    finally:
        for spinner in load:
            spinner.kill()
            spinner.wait()
    assert "works" not in kinds, kinds


CHILD = "import subprocess; subprocess.{0}(['sh', '-c', 'sleep 90; true']{1})"
FORK = "import multiprocessing; fork = multiprocessing.get_context('fork'); "
ASYNC = """import asyncio
async def go(): await (await asyncio.create_subprocess_exec('sleep', '90')).wait()
asyncio.run(go())"""
LOCK = FORK + "lock = fork.Lock(); lock.acquire(); "


@pytest.mark.parametrize(
    "program",
    [
        CHILD.format("run", ""),
        CHILD.format("check_output", ""),
        CHILD.format("Popen", ", stdin=-1, stdout=-1, stderr=-1") + ".communicate()",
        FORK + "child = fork.Process(target=time.sleep, args=(90,)); child.start(); child.join()",
        FORK + "q = fork.Queue(); fork.Process(target=lambda: (time.sleep(90), q.put(1))).start(); q.get()",
        FORK + "a, b = fork.Pipe(); fork.Process(target=lambda: (time.sleep(90), b.send(1))).start(); a.recv()",
        LOCK + "fork.Process(target=time.sleep, args=(90,)).start(); lock.acquire()",
        FORK + "fork.Pool(2).map(time.sleep, [90, 90])",
        ASYNC,
    ],
)
def test_a_child_that_sleeps_is_waited_for(program: str) -> None:
    with python(program) as process:
        try:
            goes_to_rest(process.pid, "waits for process ", looks=3)
        finally:
            for child in process_tree(process.pid)[1:]:
                os.kill(child, 9)


@pytest.mark.parametrize(
    "program",
    [
        LOCK + "child = fork.Process(target=lock.acquire); child.start(); child.join()",
        FORK + "pool = fork.Pool(2); import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
        FORK + "q = fork.Queue(); child = fork.Process(target=q.get); child.start(); child.join()",
    ],
)
def test_a_child_that_is_held_up_itself_is_no_progress(program: str) -> None:
    with python(program) as process:
        time.sleep(0.5)
        try:
            goes_to_rest(process.pid, "")
        finally:
            for child in process_tree(process.pid)[1:]:
                os.kill(child, 9)


def test_a_thread_that_sleeps_may_release_the_lock() -> None:
    lock = "import threading; lock = threading.Lock(); lock.acquire(); "
    thread = lock + "threading.Thread(target={0}, args=(90,)).start(); lock.acquire()"
    with python(thread.format("time.sleep")) as process:
        goes_to_rest(process.pid, "waits for a thread that sleeps", looks=3)
    with python(thread.format("threading.Event().wait")) as process:
        time.sleep(0.5)
        goes_to_rest(process.pid, "")


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
            goes_to_rest(process.pid, f"waits for 127.0.0.1:{port}", looks=3)


def test_a_connection_that_nobody_waits_for_is_no_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = "import socket; link = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(100)"
        with python(program, str(server.getsockname()[1])) as process:
            time.sleep(0.5)
            assert awaited_peer(process.pid, process_tree(process.pid)).peer == ""


def test_bytes_of_a_slow_copy_are_progress(tmp_path: Path) -> None:
    program = "file = open(sys.argv[1], 'wb', 0)\nwhile True: file.seek(0); file.write(bytes(1 << 18)); time.sleep(1)"
    with python(program, str(tmp_path / "copy")) as process:
        assert kind_of(process.pid) == "moves data"


def test_the_signal_that_asks_for_a_stack_is_no_progress() -> None:
    """It wakes the main thread."""
    program = "import signal; signal.signal(signal.SIGUSR1, lambda *_: None); time.sleep(1000)"
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
