"""The agent on a host: what it sees of ranks from outside, and that it leaves nothing behind. By every python3 here."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.remote.bootstrap import assemble
from doctor.remote.runtime.reading import read_text
from doctor.smoke import model
from doctor.smoke.programs.agent import network, procfs, rank_monitor, rank_watcher
from doctor.smoke.programs.agent.device_traffic import DeviceTraffic
from doctor.smoke.programs.agent.flight_recorder import FlightRecorder, name_of
from doctor.smoke.programs.agent.interpreters import rank_environment
from doctor.smoke.programs.agent.kernel import Limits, oom_kills_of_host
from doctor.smoke.programs.agent.network import proc_address
from doctor.smoke.programs.agent.procfs import visible_devices
from doctor.smoke.programs.agent.rank_monitor import RankMonitor
from doctor.smoke.programs.recorder_page import (
    CALL,
    CALLS_AT,
    CURRENT,
    CURRENT_AT,
    OPS,
    PAGE_SIZE,
    STAGES,
    TIMES,
    TIMES_AT,
)
from doctor.smoke.protocol import parse_message
from tests.readable import readable
from tests.smoke.stub import ENDS, WAITS, Client, has_ended
from tests.test_collector import PYTHONS

UNIFIED = Path("/sys/fs/cgroup/unified")
FREEZERS = {
    1: (Path("/sys/fs/cgroup/freezer"), ("freezer.state", "FROZEN", "THAWED")),
    2: (UNIFIED if UNIFIED.is_dir() else UNIFIED.parent, ("cgroup.freeze", "1", "0")),
}
"""By version of the control groups: the folder, and the file that freezes with its two states."""
MEMORY = Path("/sys/fs/cgroup/memory")
PIDS = Path("/sys/fs/cgroup/pids")


@pytest.fixture(params=PYTHONS, ids=lambda path: Path(path).parts[-3])
def any_python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client() -> Iterator[Client]:
    with Client() as sample_client:
        yield sample_client


def running(client: Client, live: str = WAITS, world: int = 2) -> None:
    """Until all ranks are in their collective."""
    client.start(live, world, python=sys.executable)
    for rank in range(world):
        client.until("snap", rank=rank, state="collective")


def test_its_source_is_plain() -> None:
    text = assemble("doctor.smoke.programs.agent.agent")
    assert "DOCTOR" not in re.sub(r"DOCTOR_SMOKE", "", text)
    assert STAGES == model.STAGES


def test_every_python_runs_it(any_python: str) -> None:
    with Client(any_python, listen=True) as client:
        hello = client.until("hello")
        assert hello["python"].split(".")[:2] == Path(any_python).parts[-3].split(".")[:2]
        assert hello["port"] > 0
        assert "127.0.0.1" in hello["addresses"]["lo"]
        running(client)
        client.order("stacks")
        assert set(client.until("stacks")) == {"0", "1"}
        client.order("sockets")
        assert client.until("sockets") == []
        client.order("probe", targets=[["127.0.0.1", 1]], seconds=0.2)
        assert client.until("probes")[0][:3] == ["127.0.0.1", 1, "refused"]
        client.order("end")
        assert client.until("bye")["left"] == []
        assert client.process.wait(5) == 0
        assert not client.pids()


def test_a_login_shell_may_say_what_it_likes() -> None:
    chatty = "echo welcome; printf 'no newline'; eval \"$1\""
    with Client(shell=("sh", "-c", chatty, "sh")) as client:
        client.until("hello")
        assert [line.strip() for line in client.noise] == [b"welcome", b"no newline"]


def test_lines_are_what_the_controller_expects(client: Client) -> None:
    running(client)
    client.order("end")
    client.until("bye")
    for line in client.received:
        parse_message(json.dumps(line).encode())


def test_bytes_that_are_not_utf_8_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """In what the host itself says, and in what a rank does; other letters stay."""
    monkeypatch.setenv("NCCL_X", os.fsdecode(b"a\xff\xfe \xf0\x9f\x98\x80"))
    with Client() as client:
        assert client.until("hello")["variables"] == {"NCCL_X": "a?? \U0001f600"}
        client.start(
            "def live(rank, box, say, orders):\n    raise OSError(os.fsdecode(b'no file /x\\xff') + '\\ud800')\n", 1
        )
        assert client.until("event", ev="error")["text"] == "no file /x??"
        for line in client.received:
            parse_message(json.dumps(line).encode())


def test_a_snapshot_of_a_rank_in_a_collective(client: Client) -> None:
    client.start("def live(rank, box, say, orders):\n    box.enter(2, 1, 4, 77, 3, 1)\n    time.sleep(1000)\n", 1)
    observed = client.until("snap", state="collective")
    assert observed["calls"] == [[2, 1, "broadcast", "bfloat16", 77, 1, 3, STAGES[4]]]
    assert {name: observed[name] for name in ("group", "seq", "op", "dtype", "numel", "root", "step", "stage")} == {
        "group": 2,
        "seq": 1,
        "op": "broadcast",
        "dtype": "bfloat16",
        "numel": 77,
        "root": 1,
        "step": 3,
        "stage": STAGES[4],
    }
    assert observed["entered"] == {"2": 1}
    again = client.until("snap", rank=0)
    assert "calls" not in again
    assert again["age"] > observed["age"]
    assert 0 < again["effective"] <= again["age"]


def test_no_call_is_lost_and_none_comes_twice(client: Client) -> None:
    client.start(
        """
def live(rank, box, say, orders):
    for n in range(3000):
        box.enter()
        time.sleep(0.0003)
""",
        1,
    )
    client.until("event", ev="exit", seconds=20)
    client.until("snap", dead="exit status 0")
    seqs = [call[1] for line in client.received for snap in line.get("snaps", ()) for call in snap.get("calls", ())]
    assert seqs == list(range(1, 3001))


def test_a_box_that_is_being_written_is_left_for_the_next_look() -> None:
    """Packing begins with zeros: a look in between is neither a rank at its start nor one that made no calls."""
    page = bytearray(PAGE_SIZE)

    def write(stamp: int, calls: int) -> None:
        for number in range(calls):
            CALL.pack_into(page, CALLS_AT + number * CALL.size, 0, number + 1, 3, 1, 4, 0, -1, 8, 0, 0)
        TIMES.pack_into(page, TIMES_AT, 1, 2, 3, calls)
        CURRENT.pack_into(page, CURRENT_AT, stamp, 3, 4, 3, 1, 0, 0, calls, -1, 8, 10**9, stamp)

    recorder = FlightRecorder(page, 0)  # type: ignore[no-untyped-call]
    write(7, 5)
    recorder.read()
    page[CURRENT_AT : CURRENT_AT + CURRENT.size] = bytes(CURRENT.size)
    recorder.read()
    assert (recorder.latest.state, recorder.calls) == (3, 5)
    write(8, 0)
    recorder.read()
    assert (recorder.stamp, recorder.calls) == (8, 5)
    write(9, 6)
    recorder.read()
    assert [call[1] for call in recorder.new_calls] == [1, 2, 3, 4, 5, 6]


def test_more_calls_than_the_ring_holds_still_count(client: Client) -> None:
    client.start(
        "def live(rank, box, say, orders):\n    for n in range(5000):\n        box.enter()\n    time.sleep(99)", 1
    )
    while client.until("snap").get("entered", {"0": 0})["0"] < 5000:
        pass


def test_ends_of_ranks(client: Client) -> None:
    live = """
def live(rank, box, say, orders):
    if rank == 0:
        raise ValueError("by design")
    if rank == 1:
        print("my last words", flush=True)
        os.kill(os.getpid(), 9)
    if rank == 2:
        os._exit(7)
"""
    before = oom_kills_of_host()
    client.start(live, 4)
    ends = {}
    while len(ends) < 4:
        snap = client.until("snap")
        if snap.get("dead"):
            ends[snap["rank"]] = snap
    assert [ends[rank]["dead"] for rank in range(4)] == ["exit status 13", "signal 9", "exit status 7", "exit status 0"]
    assert [ends[rank]["state"] for rank in range(4)] == ["compute", "compute", "compute", "done"]
    assert ends[0]["error"] == "by design"
    assert not any(end.get("oom") for end in ends.values())
    # Another test on this machine may have had a process killed for memory meanwhile: then it is not known.
    assert ends[1].get("oom") is False or oom_kills_of_host() != before
    assert all("oom" not in ends[rank] for rank in (0, 2, 3))
    exits = {e["rank"]: e for line in client.received if (e := line.get("event", {})).get("ev") == "exit"}
    assert exits[1]["tail"] == "my last words\n"
    assert [exits[rank]["status"] for rank in (0, 1, 2, 3)] == [13 << 8, 9, 7 << 8, 0]


def test_a_stopped_rank(client: Client) -> None:
    running(client, "def live(rank, box, say, orders):\n    box.enter()\n    os.kill(os.getpid(), signal.SIGSTOP)\n", 1)
    while client.until("snap").get("process") != "T":
        pass
    client.order("end")
    assert client.until("bye")["left"] == []


def test_a_rank_that_waits_for_a_cpu_is_not_held_against_it(client: Client) -> None:
    """Effective time is what is left of the age when the waiting for a CPU is taken off."""
    spin = "def live(rank, box, say, orders):\n    os.sched_setaffinity(0, {0})\n    while True: pass\n"
    client.start(spin, 6)
    ages = {}
    while len(ages) < 6 or min(snap["age"] for snap in ages.values()) < 1.0:
        snap = client.until("snap")
        ages[snap["rank"]] = snap
    # Six on one CPU: each of them ran for about a sixth of the time.
    assert all(snap["effective"] < 0.6 * snap["age"] for snap in ages.values())
    assert all(snap["cpu"] < 0.6 * snap["age"] for snap in ages.values())


def test_a_rank_that_gets_no_cpu_at_all_is_not_held_against_it_either(client: Client) -> None:
    """The kernel books a wait for a CPU when it ends; this one does not end."""
    live = """
def live(rank, box, say, orders):
    parent = os.getpid()
    os.sched_setaffinity(0, {0})
    for n in range(4):
        if os.fork() == 0:
            die_with(parent)
            while True: pass
    box.note("compute")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True: pass
"""
    client.start(live, 1)
    while (snap := client.until("snap"))["age"] < 1.5:
        pass
    assert snap["effective"] < 0.6 * snap["age"]


UNINTERRUPTIBLE = """
def live(rank, box, say, orders):
    os.mkfifo({fifo!r})
    box.note("compute")
    os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, {fifo!r}, os.O_RDONLY, 0)])
"""
"""A rank sleeps in the kernel, as for a disk, until the child that it starts has opened a pipe: nobody writes to it."""


def test_a_rank_that_waits_for_a_disk_is_not_held_against_it(client: Client, tmp_path: Path) -> None:
    client.start(UNINTERRUPTIBLE.format(fifo=str(tmp_path / "pipe")), 1, python=sys.executable)
    while (snap := client.until("snap"))["age"] < 1.0:
        pass
    os.close(os.open(tmp_path / "pipe", os.O_WRONLY))
    assert (snap["state"], snap["process"]) == ("compute", "D")
    assert snap["effective"] < 0.5 * snap["age"]


def test_a_disk_that_never_answers_counts_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_monitor, "process_status", lambda pid: "D")
    monkeypatch.setattr(rank_monitor, "cpu_times", lambda pid, all_threads: (1.0, 0.0, 0.0))
    monitor: Any = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
    monitor.recorder = SimpleNamespace(latest=SimpleNamespace(state="compute"), stamp=1, age=lambda clock: clock - 100)
    monitor.pid, monitor.cgroups_read_at = os.getpid(), 1e9
    effective = {}
    for tick in range(1, 240):
        monitor.observe(100 + tick / 16)
        effective[tick / 16] = monitor.effective
    assert effective[9.0] < 0.5
    assert effective[14.0] > 3.5


@pytest.mark.parametrize("paused_at", [0, 1])
def test_a_pause_of_the_agent_between_its_clock_and_its_reads_is_not_held_against_a_rank(
    monkeypatch: pytest.MonkeyPatch, paused_at: int
) -> None:
    """On a busy host the agent waits for a CPU itself, as the loader worker does that its rank waits for."""
    system, waited = [50.0], [0.0]
    reads = iter(range(100))

    def read_times(pid: int, all_threads: bool) -> tuple[float, float, float]:
        if next(reads) == paused_at:
            system[0] += 3.0
        waited[0] = system[0]
        return 1.0, 0.0, 0.0

    monkeypatch.setattr(rank_monitor, "time", SimpleNamespace(monotonic=lambda: system[0]))
    monkeypatch.setattr(rank_monitor, "process_status", lambda pid: "S")
    monkeypatch.setattr(rank_monitor, "cpu_times", read_times)
    monkeypatch.setattr(rank_monitor, "helper_times", lambda pid, with_loaders: {(1, 1): (0.0, waited[0], "S", 0)})
    monitor: Any = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
    latest = SimpleNamespace(state=rank_monitor.INPUT)
    monitor.recorder = SimpleNamespace(latest=latest, stamp=1, age=lambda clock: clock - 49.9)
    monitor.pid, monitor.cgroups_read_at = os.getpid(), 1e9
    for _ in range(4):
        monitor.observe(system[0])
        system[0] += 0.1
    assert monitor.age(system[0]) > 3.0
    assert monitor.effective < 0.3


@pytest.mark.parametrize("state", ["input", "compute"])
def test_a_rank_whose_loader_worker_waits_for_a_cpu(client: Client, state: str) -> None:
    """The rank sleeps until its worker is done, which shares a CPU with many."""
    live = f"""
def live(rank, box, say, orders):
    parent = os.getpid()
    for n in range(6):
        if os.fork() == 0:
            die_with(parent)
            os.sched_setaffinity(0, {{0}})
            while True: pass
    box.note({state!r})
    time.sleep(1000)
"""
    client.start(live, 1)
    while (snap := client.until("snap"))["age"] < 1.0:
        pass
    assert snap["state"] == state
    assert snap["effective"] < 0.6 * snap["age"] if state == "input" else snap["effective"] > 0.6 * snap["age"]


def test_what_a_loader_worker_computes_is_the_ranks_own_time_however_many_wait_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workers in turn on one CPU: one of them always waits. Beside busy programs, a healthy one computes little."""
    worked = {7: 0.0, 8: 3.0}
    monkeypatch.setattr(rank_monitor, "process_status", lambda pid: "S")
    monkeypatch.setattr(rank_monitor, "thread_states", lambda pid: ["S"])
    monkeypatch.setattr(rank_monitor, "cpu_times", lambda pid, all_threads: (1.0, 0.0, 0.0))
    own = {(os.getpid(), 1): (50.0, 0.0, "S", 0)}
    monkeypatch.setattr(
        rank_monitor,
        "helper_times",
        lambda pid, with_loaders: own | {(pid, pid): (ran, 0.0, "R", 0) for pid, ran in worked.items()},
    )
    system = [50.0]
    monkeypatch.setattr(rank_monitor, "time", SimpleNamespace(monotonic=lambda: system[0]))
    monitor: Any = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
    latest = SimpleNamespace(state=rank_monitor.INPUT)
    monitor.recorder = SimpleNamespace(latest=latest, stamp=1, age=lambda clock: clock - 49.9)
    monitor.pid, monitor.cgroups_read_at = os.getpid(), 1e9

    def effective_after(turns: int, each: float) -> float:
        for turn in range(turns):
            monitor.observe(system[0])
            system[0] += 0.1
            worked[7 + turn % 2] += each
        return float(monitor.effective)

    assert effective_after(100, 0.001) < 0.3
    assert effective_after(100, 0.1) == pytest.approx(5.0, abs=0.2)
    monitor.recorder.stamp = 2  # the next batch
    assert effective_after(2, 0.1) < 0.3


@pytest.mark.parametrize(
    ("turns", "each", "state", "asks"),
    [
        (3000, 0.00005, "S", True),  # wakes up, looks, and sleeps
        (3000, 0.00005, "D", False),  # a page at a time from a slow disk
        (3000, 0.003, "R", False),  # computes on a busy host, and is taken off its CPU again and again
        (1500, 0.00005, "S", False),
    ],
)
def test_a_loader_worker_that_asks_again_and_again_waits_for_no_cpu(
    turns: int, each: float, state: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host it waits for a CPU for nearly all of the time, and for what it asks for alone."""
    monkeypatch.setattr(rank_monitor, "process_status", lambda pid: "S")
    monkeypatch.setattr(rank_monitor, "thread_states", lambda pid: ["S"])
    monkeypatch.setattr(rank_monitor, "cpu_times", lambda pid, all_threads: (1.0, 0.0, 0.0))
    times, made, system = [0.0, 0.0], [0], [50.0]
    monkeypatch.setattr(rank_monitor, "helper_times", lambda pid, with_loaders: {(7, 7): (*times, state, made[0])})
    monkeypatch.setattr(rank_monitor, "time", SimpleNamespace(monotonic=lambda: system[0]))
    monitor: Any = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
    latest = SimpleNamespace(state=rank_monitor.INPUT)
    monitor.recorder = SimpleNamespace(latest=latest, stamp=1, age=lambda clock: clock - 49.9)
    monitor.pid, monitor.cgroups_read_at = os.getpid(), 1e9
    for turn in range(1, 301):
        monitor.observe(system[0])
        system[0] += 0.1
        made[0] = turn * turns // 300
        times[:] = [made[0] * each, 0.1 * turn - made[0] * each]
    assert monitor.asks == asks
    assert (monitor.effective > 25.0) == asks
    monitor.recorder.stamp = 2  # the next batch
    monitor.observe(system[0])
    assert not monitor.asks


@pytest.mark.parametrize("waits", ["busy.join()", "time.sleep(1000)"])
def test_a_rank_whose_computing_threads_wait_for_a_cpu(client: Client, waits: str) -> None:
    """Its main thread waits for those that it shares a computation with; what sleeps by itself waits for none."""
    live = f"""
def live(rank, box, say, orders):
    import threading
    parent = os.getpid()
    for n in range(6):
        if os.fork() == 0:
            die_with(parent)
            os.sched_setaffinity(0, {{0}})
            while True: pass
    def compute():
        os.sched_setaffinity(0, {{0}})
        while True: sum(range(1000))
    busy = threading.Thread(target=compute, daemon=True)
    busy.start()
    box.note("compute")
    {waits}
"""
    client.start(live, 1)
    while (snap := client.until("snap"))["age"] < 1.5:
        pass
    assert (snap["effective"] < 0.6 * snap["age"]) == (waits == "busy.join()")


def test_a_wait_of_a_loader_worker_that_goes_on_counts_before_the_kernel_books_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of idle priority beside busy programs, a worker may wait for seconds; asleep it waits for nothing."""
    monitor = RankMonitor(0, memoryview(bytearray(PAGE_SIZE)), 0)  # type: ignore[no-untyped-call]
    monitor.pid = 1
    rank, loaders = (1.0, 9.0, "S", 0), {7: (0.5, 0.25, "R", 0)}
    threads = {1: {1: rank}, **{pid: {pid: times} for pid, times in loaders.items()}}
    monkeypatch.setattr(rank_monitor, "child_pids", lambda pid: [each for each in threads if each != 1])
    monkeypatch.setattr(rank_monitor, "thread_times", lambda pid: dict(threads[pid]))

    system = [0.0]
    monkeypatch.setattr(rank_monitor, "time", SimpleNamespace(monotonic=lambda: system[0]))

    def delay(since: float, first: bool = False) -> float:
        system[0] += since
        return float(monitor.read_helper_delay(first, 0.0, True))  # type: ignore[no-untyped-call]

    assert delay(9.0, first=True) == 0.0
    assert [delay(1.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    threads[7][7] = (0.6, 3.35, "R", 0)  # it ran, and its wait was booked
    assert delay(0.2) == pytest.approx(3.1)
    threads[7][7] = (0.6, 3.35, "S", 0)
    assert delay(7.0) == pytest.approx(3.1)
    assert not monitor.asks
    threads[8] = {8: (0.0, 0.0, "R", 0)}
    assert [delay(1.0), delay(5.0)] == pytest.approx([4.1, 9.1])  # it is new, and could run
    threads[8] = {8: (4.9, 0.0, "R", 0)}
    assert delay(5.0) == pytest.approx(9.2)  # it computes
    del threads[8]
    assert [delay(0.5), delay(5.0)] == pytest.approx([9.7, 9.7])  # what it waited before it ended is not known
    threads[9] = {9: (0.0, 0.0, "R", 0)}
    delay(0.0)
    for turn in range(1, 21):  # a tenth of a CPU; each second wait is booked in the turn after it
        threads[9][9] = (0.05 * turn, 0.9 * (turn // 2), "R", 0)
        last = delay(0.5)
    assert last - 9.7 == pytest.approx(20 * 0.45)


def test_waits_of_loader_workers_and_of_the_ranks_other_threads_count_by_turns_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that is to end waits, then the thread that hands an order to the next one, and at last that one."""
    monitor = RankMonitor(0, memoryview(bytearray(PAGE_SIZE)), 0)  # type: ignore[no-untyped-call]
    monitor.pid = 1
    states = {(1, 1): "S", (1, 2): "S", (7, 7): "R", (8, 8): "S"}
    monkeypatch.setattr(rank_monitor, "child_pids", lambda pid: [7, 8])
    monkeypatch.setattr(
        rank_monitor,
        "thread_times",
        lambda pid: {thread: (1.0, 1.0, state, 0) for (owner, thread), state in states.items() if owner == pid},
    )

    system = [0.0]
    monkeypatch.setattr(rank_monitor, "time", SimpleNamespace(monotonic=lambda: system[0]))

    def delay(first: bool = False) -> float:
        system[0] += 0.5
        return float(monitor.read_helper_delay(first, 0.0, True))  # type: ignore[no-untyped-call]

    assert delay(first=True) == 0.0
    assert [delay(), delay()] == [0.5, 1.0]
    states |= {(7, 7): "S", (1, 2): "R"}
    assert [delay(), delay()] == [1.5, 2.0]
    states |= {(1, 2): "S", (8, 8): "R", (7, 7): "R"}
    assert [delay(), delay()] == [2.5, 3.0]
    states |= {(8, 8): "S", (7, 7): "S", (1, 1): "R"}
    assert [delay(), delay()] == [3.0, 3.0]
    states |= {(1, 2): "R"}
    system[0] += 0.5
    assert monitor.read_helper_delay(False, 0.0, False, 0.4) == pytest.approx(3.1)  # type: ignore[no-untyped-call]


def test_the_stack_of_a_rank_and_of_its_loader_workers(client: Client) -> None:
    live = """
def fetching_a_sample():
    time.sleep(1000)

def live(rank, box, say, orders):
    box.enter()
    if rank == 0 and os.fork() == 0:
        fetching_a_sample()
    time.sleep(1000)
"""
    running(client, live)
    for _ in range(40):  # a rank that gets no CPU in time writes nothing
        client.order("stacks")
        stacks = client.until("stacks")
        if "in live" in stacks["0"] and "in fetching_a_sample" in stacks["0"]:
            break
    assert "in live" in stacks["0"]
    assert "loader worker" in stacks["0"]
    assert "in fetching_a_sample" in stacks["0"]
    assert "in fetching_a_sample" not in stacks["1"]
    counts = []
    while counts[-1:] != [1] and len(counts) < 40:
        client.order("stacks")
        counts.append(client.until("stacks")["1"].count("in live"))
    assert counts[-1] == 1


def test_what_has_no_handler_is_not_signalled(client: Client) -> None:
    running(
        client,
        "def live(rank, box, say, orders):\n    faulthandler.unregister(signal.SIGUSR1)\n" + WAITS.partition("\n")[2],
        1,
    )
    client.order("stacks")
    assert client.until("stacks") == {"0": ""}
    time.sleep(0.1)
    assert "dead" not in client.until("snap", rank=0)


def test_the_interpreter_inherits_what_it_was_meant_to(client: Client) -> None:
    """Nothing of the agent's own: a socket kept open by a stranger hides its owner's death."""
    client.start(ENDS, 3)
    fds = client.until("event", ev="imported")["fds"]
    # stdin, stdout, stderr; box, events; stacks and errors of three ranks; and the folder that is being listed.
    assert len(fds) == 3 + 2 + 6 + 1


@pytest.mark.parametrize(
    "python", ["/no/such/python", f"{sys.executable} -c 'raise SystemExit(9)'", "sh -c 'exit 9' -"]
)
def test_an_interpreter_that_does_not_start(client: Client, python: str) -> None:
    client.start(ENDS, 2, python=python)
    ended = client.until("event", ev="exit", rank=-1)
    assert ended["status"] >> 8 in (9, 127)
    if python.startswith("/no"):
        assert ended["tail"] == "/no/such/python: No such file or directory\n"


def test_an_interpreter_that_reads_nothing(client: Client) -> None:
    """The worker's text is more than a pipe holds: the agent must not wait for it to be read."""
    client.start("#" * 2_000_000 + "\n" + ENDS, 1, python="sh -c 'sleep 1000' -")
    client.until("snaps")
    client.order("end")
    assert client.until("bye", 3)["left"] == []


def test_an_interpreter_that_ends_well_at_once(client: Client) -> None:
    client.start(ENDS, 2, python="sh -c 'exit 0' -")
    assert client.until("event", ev="exit", rank=-1)["status"] == 0


def test_a_wrapper_that_ends_before_its_interpreter_is_not_its_end(client: Client) -> None:
    """What holds the pipe of the events goes on."""
    client.start(ENDS, 1, python="sh -c 'sleep 1000 & exit 0' -")
    client.until("snaps")
    while [read_text(f"/proc/{pid}/comm") for pid in client.pids()] != ["sleep\n"]:
        client.until("snaps")
    for _ in range(3):
        client.until("snaps")
    assert not [line for line in client.received if line.get("event", {}).get("ev") == "exit"]
    os.kill(*client.pids(), 9)
    assert client.until("event", ev="exit", rank=-1)["status"] == 0


@pytest.mark.parametrize(("command", "state"), [("kill -STOP $$", "T"), ("sleep 1000", "S")])
def test_an_interpreter_that_does_nothing_at_its_start(client: Client, command: str, state: str) -> None:
    client.start(ENDS, 1, python=f"sh -c '{command}' -")
    (row,) = client.until("starting")
    while row[2] <= 0.5:  # rounded
        (row,) = client.until("starting")
    assert row[:2] == [-1, state] and row[2] > 0.5


def test_an_interpreter_that_computes_or_reads_is_not_idle(client: Client) -> None:
    client.start(ENDS, 1, python="sh -c 'while :; do read -r line </proc/self/stat; done' -")
    for _ in range(8):
        client.until("snaps")
    assert not [line for line in client.received if "starting" in line]


def test_one_interpreter_a_rank(client: Client) -> None:
    client.start(WAITS, 2, start="exec")
    pids = {client.until("snap", rank=rank, state="collective")["rank"] for rank in (0, 1)}
    assert pids == {0, 1}
    os.kill(max(client.pids()), 9)
    assert client.until("event", ev="exit")["status"] == 9


def test_the_end_of_the_one_that_ranks_come_from(client: Client) -> None:
    running(client)
    os.kill(min(client.pids()), 9)
    ends = [client.until("event", ev="exit") for _ in range(3)]
    assert {(end["rank"], end["status"]) for end in ends} == {(-1, 9), (0, 9), (1, 9)}
    assert has_ended(client)


@pytest.mark.parametrize("method", ["eof", "sigterm", "sighup", "sigkill", "end"])
def test_nothing_is_left_behind(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other workers' agents have folders and semaphores of their own at the same time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    strays = """
def live(rank, box, say, orders):
    box.enter()
    parent = os.getpid()
    if os.fork() == 0:
        die_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for name in ("torch_%d_1_0", "sem.torch_%d_-x8ab") if KEEPS else ():
            open("/dev/shm/" + name % os.getpid(), "w").close()
        time.sleep(1000)
    time.sleep(1000)
""".replace("KEEPS", str(method != "sigkill"))
    with Client(listen=True) as client:
        port = client.until("hello")["port"]
        running(client, strays)
        assert within(3, lambda: len(client.pids()) == 5)
        pids = client.pids()
        if method == "eof":
            assert client.process.stdin
            client.process.stdin.close()
        elif method == "end":
            client.order("end")
        else:
            os.kill(client.process.pid, getattr(signal, method.upper()))
        assert has_ended(client)
        client.process.wait(5)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert [name for name in os.listdir("/dev/shm") for pid in pids if f"torch_{pid}_" in name] == []
    assert list(tmp_path.iterdir()) == []


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    return holds()


def test_it_ends_by_itself_when_its_time_is_up(client: Client) -> None:
    client.start(WAITS, 1, seconds=1.0)
    client.until("snap")
    assert client.process.wait(5) == 3
    assert has_ended(client)


def test_a_controller_that_takes_nothing_in_loses_no_call(tmp_path: Path) -> None:
    """Looks are skipped while lines wait; the ranks are not held up."""
    live = f"""
def live(rank, box, say, orders):
    for n in range(1500):
        say("note", text="x" * 4000)
        box.enter()
    say("through")
    os.close(os.open({str(tmp_path / "through")!r}, os.O_WRONLY))
    time.sleep(1000)
"""
    os.mkfifo(tmp_path / "through")
    through = os.open(tmp_path / "through", os.O_RDONLY | os.O_NONBLOCK)
    with Client() as client:
        client.until("hello")
        client.heed.clear()
        client.start(live, 1)
        while not select.select([through], [], [], 1.0)[0]:
            client.order("stay")  # an agent without orders ends after 15 s
        os.close(through)
        client.heed.set()
        client.until("event", ev="through")
        while {"0": 1500} not in [snap.get("entered") for line in client.received for snap in line.get("snaps", ())]:
            client.until("snaps")
        assert sum(line.get("event", {}).get("ev") == "note" for line in client.received) == 1500


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("version", [1, 2])
def test_a_frozen_rank_cannot_hold_up_the_end(client: Client, version: int) -> None:
    parent, (file, frozen, thawed) = FREEZERS[version]
    if not parent.is_dir() or (version == 2 and not (parent / "cgroup.controllers").exists()):
        pytest.skip(f"there is no tree of version {version}")
    folder = parent / f"doctor-test-{os.getpid()}"
    folder.mkdir()
    try:
        running(client, world=1)
        pid = max(client.pids())
        (folder / "cgroup.procs").write_text(str(pid))
        (folder / file).write_text(frozen)
        while client.until("snap").get("process") != "F":
            pass
        client.order("end")
        # Version 2 lets a frozen process be killed, version 1 does not.
        assert [remaining[0] for remaining in client.until("bye", 3)["left"]] == [pid] * (version == 1)
    finally:
        (folder / file).write_text(thawed)
        assert has_ended(client)
        remove(folder)


@pytest.mark.skipif(not MEMORY.is_dir() or os.geteuid() != 0, reason="needs root and the memory limits of cgroup v1")
def test_a_rank_killed_for_memory(client: Client) -> None:
    folder = MEMORY / f"doctor-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
        client.until("hello")
        agent = psutil.Process(client.process.pid)
        for process in (agent, *agent.children(recursive=True)):
            (folder / "cgroup.procs").write_text(str(process.pid))
        client.start("def live(rank, box, say, orders):\n    box.enter()\n    bytearray(1 << 28)\n", 1)
        ended = client.until("event", ev="exit", rank=0)
        assert ended["oom"] is True
        assert client.until("snap", dead="signal 9")["oom"] is True
        # The kernel's log is short, and some containers may not read it: then the control group's count stands there.
        assert re.search(r"Killed process|killed a process of its control group", ended["log"])
    finally:
        with contextlib.suppress(BrokenPipeError):
            client.order("end")
        client.process.wait(5)
        remove(folder)


def watch_opens(path: Path) -> int:
    """A file that can be read as soon as somebody has opened ``path``: inotify(7), IN_OPEN."""
    libc = ctypes.CDLL(None, use_errno=True)
    number: int = libc.inotify_init1(os.O_CLOEXEC)
    assert libc.inotify_add_watch(number, os.fsencode(path), 0x20) > 0, os.strerror(ctypes.get_errno())
    return number


@pytest.mark.skipif(
    not PIDS.is_dir() or os.geteuid() != 0, reason="needs root and the limits of processes of cgroup v1"
)
def test_a_rank_that_may_start_no_process(client: Client, tmp_path: Path) -> None:
    folder = PIDS / f"doctor-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "pids.max").write_text("1")
        opened = watch_opens(folder / "pids.events")
        live = f"""
def live(rank, box, say, orders):
    open("{folder}/cgroup.procs", "w").write(str(os.getpid()))
    box.enter()
    while not os.path.exists("{tmp_path}/observed"):
        time.sleep(0.01)
    os.fork()
"""
        client.start(live, 1)
        assert readable([opened], 15), "the agent never read the rank's control group"
        os.close(opened)
        (tmp_path / "observed").touch()
        ended = client.until("event", ev="exit", rank=0)
        assert "pids.max of its control group is 1" in ended["log"]
    finally:
        remove(folder)


def test_a_rank_that_may_open_no_file(client: Client) -> None:
    live = """
def live(rank, box, say, orders):
    import resource
    box.enter()
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    while True:
        os.open("/", os.O_RDONLY)
"""
    client.start(live, 1)
    assert client.until("event", ev="exit", rank=0)["log"] == "The limit of open files: ulimit -n is 30."


@pytest.mark.parametrize("name", ["AS", "DATA"])
def test_a_rank_that_may_have_no_more_memory(client: Client, name: str) -> None:
    """A thread that gets no stack fails with the error of one that is one too many."""
    live = f"""
def live(rank, box, say, orders):
    import resource
    box.enter()
    resource.setrlimit(resource.RLIMIT_{name}, (1 << 20, 1 << 20))
    raise RuntimeError("Resource temporarily unavailable")
"""
    client.start(live, 1)
    limits = ("1048576", "unlimited") if name == "AS" else ("unlimited", "1048576")
    text = "The limit of a process's memory in bytes: ulimit -v is {}, -d is {}.".format(*limits)
    assert client.until("event", ev="exit", rank=0)["log"] == text


def test_limits_are_read_from_both_kinds_of_control_groups(tmp_path: Path) -> None:
    for name, file, value in (
        ("", "memory.events", "low 0\noom_kill 2\n"),
        ("memory", "memory.oom_control", "oom_kill 2\n"),
    ):
        folder = tmp_path / (name or "unified")
        folder.mkdir()
        (folder / file).write_text("oom_kill 0\n")
        (folder / "pids.events").write_text("max 3\n")
        (folder / ("memory.limit_in_bytes" if name else "memory.max")).write_text("1048576\n")
        limits = Limits(os.getpid())
        limits.folders, limits.killed, limits.refused = {name: str(folder)}, 0, 3
        assert limits.sentences() == []
        (folder / file).write_text(value)
        output = "The kernel killed 2 processes of its control group for memory; the limit is 1048576 bytes."
        assert limits.sentences() == [output]


def remove(folder: Path) -> None:
    deadline = time.monotonic() + 3
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_sockets_of_a_rank(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        live = f"""
def live(rank, box, say, orders):
    link = socket.create_connection(("127.0.0.1", {port}))
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen(1)
    box.enter()
    time.sleep(1000)
"""
        running(client, live, 1)
        client.order("sockets")
        client.until("sockets")
        responses = client.received[-1]
        assert responses["sockets"] == [[0, "127.0.0.1", port, 0, 0]]
        assert [door[:2] for door in responses["listening"]] == [[0, "127.0.0.1"]]


def test_a_broken_event_is_a_fault_and_not_the_end(client: Client) -> None:
    live = "def live(rank, box, say, orders):\n    os.write(orders['events'], b'no event\\n')\n    say('after')\n"
    client.start(live, 1)
    assert "no event" in client.until("fault")
    client.until("event", ev="after")


def test_an_order_that_is_none_is_a_fault_and_not_the_end(client: Client) -> None:
    client.order("dance")
    assert "KeyError: 'dance'" in client.until("fault")
    client.order("probe", targets=[], seconds=0.1)
    assert client.until("probes") == []


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with Client(listen=True, port=port) as client:
            hello = client.until("hello")
            assert hello["port"] == 0
            assert hello["port_error"] == f"port {port}: Address already in use"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("0100007F:1F90", ("127.0.0.1", 8080)),
        ("00000000000000000000000001000000:0016", ("::1", 22)),
        ("0000000000000000FFFF00000100A8C0:0016", ("192.168.0.1", 22)),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the words are those of a little-endian machine")
def test_addresses_in_proc_net_tcp(word: str, expected: tuple[str, int]) -> None:
    assert proc_address(word) == expected


@given(st.integers(0, 300))
def test_a_code_out_of_range_is_no_crash(code: int) -> None:
    assert name_of(OPS, code) == (OPS[code] if code < len(OPS) else "?")


def test_settings_are_for_the_children_alone() -> None:
    plan = {"backend": "hccl", "timeout": 60, "interface": "", "places": [{"host": "a"}, {"host": "b"}]}
    before = dict(os.environ)
    result = rank_environment(plan, ["127.0.0.1", 1], "mark")
    assert dict(os.environ) == before
    assert (result["HCCL_CONNECT_TIMEOUT"], result["HCCL_EXEC_TIMEOUT"]) == ("120", "68")
    assert "HCCL_SOCKET_IFNAME" not in result  # the loopback is nothing that another host could reach
    assert result["DOCTOR_SMOKE"] == "mark"


def test_bytes_of_rdma_ports_count_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(network, "RDMA_FOLDER", str(tmp_path / "absent"))
    assert network.rdma_bytes() == 0
    for adapter, sent in (("mlx5_0", 100000), ("mlx5_1", 5)):
        folder = tmp_path / "ib" / adapter / "ports/1/counters"
        folder.mkdir(parents=True)
        (folder / "port_xmit_data").write_text(f"{sent}\n")
        (folder / "port_rcv_data").write_text("N/A (no PMA)\n")
    monkeypatch.setattr(network, "RDMA_FOLDER", str(tmp_path / "ib"))
    before = network.rdma_bytes()
    assert before == 6 * 65536  # 400,020 bytes
    (tmp_path / "ib/mlx5_1/ports/1/counters/port_xmit_data").write_text("99\n")  # management, no transfer
    assert network.rdma_bytes() == before
    (tmp_path / "ib/mlx5_1/ports/1/counters/port_xmit_data").write_text("60000\n")
    assert network.rdma_bytes() > before


@pytest.mark.parametrize(("backend", "moves"), [("nccl", True), ("gloo", False)])
def test_a_transfer_by_rdma_is_no_standstill(monkeypatch: pytest.MonkeyPatch, backend: str, moves: bool) -> None:
    """TCP carries nothing, and the ports of the host do: only where the library may use them."""
    carried = iter(range(0, 1 << 30, 65536))
    monkeypatch.setattr(network, "tcp_bytes", lambda pids: dict.fromkeys(pids, 7))
    monkeypatch.setattr(rank_watcher, "tcp_sockets", lambda pids: [])
    monkeypatch.setattr(network, "rdma_bytes", lambda: next(carried))
    noted: list[int | None] = []
    monitor = SimpleNamespace(
        rank=0, pid=5, ended=False, waits_in_collective=lambda: True, age=lambda clock: 9.0,
        note_traffic=lambda count, clock: noted.append(count),
    )  # fmt: skip
    watcher = rank_watcher.RankWatcher(None, None, None)
    watcher.monitors, watcher.devices = {0: monitor}, SimpleNamespace(carried=lambda: 0) if backend != "gloo" else None
    for clock in (100.0, 200.0, 300.0):
        watcher.find_retransmissions(clock)
    assert (len(set(noted)) == 3) == moves


NVLINK = """\
GPU 3: Tesla V100-SXM3-32GB (UUID: GPU-295726b4-8888-d1eb-5965-a70cbb91d136)
\t Link 0: Data Tx: 19241022 KiB
\t Link 0: Data Rx: 19255516 KiB
"""
"""As `nvidia-smi nvlink -gt d` printed it on a DGX-2 of Aalborg University, before a training on four of its GPUs."""
STAT = """\
packet statistics:
mac_tx_mac_pause_num:0
mac_tx_total_oct_num:4000
mac_rx_total_oct_num:5000
mac_rx_bad_oct_num:77
roce_rx_all_pkt_num:12
roce_tx_all_pkt_num:9
nic_tx_all_pkg_num:122404
"""
"""Emulated: the lines of `hccn_tool -i N -stat -g` by dcmi_network_pkt_stats_info, with numbers of our own."""


@pytest.mark.parametrize(
    ("backend", "tool", "text", "total"),
    [("nccl", "nvidia-smi", NVLINK, 38496538), ("hccl", "hccn_tool", STAT, 2 * 9021)],
)
def test_what_links_between_devices_carried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, tool: str, text: str, total: int
) -> None:
    (tmp_path / "answer").write_text(text)
    (tmp_path / tool).write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    traffic = DeviceTraffic(backend, (0, 5))
    assert traffic.carried() == 0, "nothing waits for the tool"
    assert answer_of(traffic) == total
    (tmp_path / "answer").write_text(text.replace(":9\n", ":10\n").replace("19241022", "19241023"))
    assert answer_of(traffic) > total


def answer_of(traffic: DeviceTraffic) -> int:
    """What it says once the tool that runs, or the next one, has answered."""
    if traffic.pipe < 0:
        traffic.carried()
    while traffic.pipe >= 0:
        readable([traffic.pipe], 60)
        traffic.collect()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return int(traffic.total)


def test_a_tool_that_is_not_there_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    traffic = DeviceTraffic("nccl")
    for _ in range(3):
        assert answer_of(traffic) == 0
    assert traffic.carried() == 0 and traffic.pipe == -1


def test_an_interface_is_named_exactly_where_a_name_is_a_prefix() -> None:
    plan = {"timeout": 60, "interface": "eth1", "places": [{"host": "a"}, {"host": "b"}]}

    def chosen(backend: str, interface: str = "eth1") -> str:
        environ = rank_environment(dict(plan, backend=backend, interface=interface), ["127.0.0.1", 1], "mark")
        return str(environ[f"{backend.upper()}_SOCKET_IFNAME"])

    assert [chosen(backend) for backend in ("gloo", "nccl", "hccl")] == ["eth1", "=eth1", "=eth1"]
    assert [chosen("hccl", text) for text in ("=eth1", "^eth1")] == ["=eth1", "^eth1"]


def test_hccls_settings_of_the_job_are_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"backend": "hccl", "timeout": 60, "interface": "", "places": [{"host": "a"}], "environment": "job"}
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1800")
    plan["variables"] = {"HCCL_EXEC_TIMEOUT": "3600"}

    def settings(**more: Any) -> list[str | None]:
        environ = rank_environment({**plan, **more}, ["127.0.0.1", 1], "mark")
        return [environ.get(f"HCCL_{name}") for name in ("CONNECT_TIMEOUT", "EXEC_TIMEOUT", "BUFFSIZE")]

    assert settings() == ["1800", "3600", None]
    assert settings(keep=["HCCL_EXEC_TIMEOUT"]) == ["120", "3600", None]
    assert settings(environment="clean") == ["120", "68", "16"]


@pytest.mark.parametrize(
    ("vendor", "text", "shown", "expected"),
    [
        ("npu", "0,2", [0, 1, 2, 3], [0, 2]),
        ("npu", "1", [4, 5], [5]),  # they count what a container shows
        ("npu", "1, 2,3", [0, 1, 2, 3], [1]),
        ("npu", "1,3,8", [0, 1, 2, 3], [1, 3]),
        ("npu", "3,1", [0, 1, 2, 3], []),
        ("npu", "", [0, 1], []),
        ("nvidia", "1,0", [0, 1], [1, 0]),
        ("nvidia", " 1, 0", [0, 1], [1, 0]),
        ("nvidia", "0,-1,1", [0, 1], [0]),
        ("nvidia", "0,0", [0, 1], [0]),
        ("nvidia", "GPU-8932f937,GPU-42f", [0, 1, 2], [0, 1]),
        ("nvidia", "GPU-8932f937,GPU-8932f937", [0, 1, 2], [0]),
        ("nvidia", "GPU-1,GPU-2,GPU-3", [0, 1], [0, 1]),
        ("nvidia", "NoDevFiles", [0, 1], []),
        ("nvidia", "0 1", [0, 1], [0]),  # seen on an H200, as "0;1" and "0x0"
        ("nvidia", "1;0,0x0", [0, 1], [1, 0]),
        ("nvidia", "00001", [0, 1], []),
        ("nvidia", "9" * 5000, [0, 1], []),
        ("amd", "2,0", [0, 1, 2], [2, 0]),
        ("amd", "0,GPU-DEADBEEFDEADBEEF", [4, 5, 6], [4, 5]),  # a UUID that is not known
        ("amd", "0,GPU-1902000000000c2a", [4, 5, 6], [4, 6]),
        ("amd", "GPU-1902000000000c2a,2", [4, 5, 6], [6]),  # twice the same
        ("amd", "GPU-,1", [4, 5], []),
        ("amd", "GPU----,1", [4, 5], [4, 5]),
    ],
)
def test_devices_that_a_variable_shows(vendor: str, text: str, shown: list[int], expected: list[int]) -> None:
    assert visible_devices(text, shown, vendor, {0x1902000000000C2A: 6}) == expected


AMD_NODES = {
    "0": "cpu_cores_count 64\nsimd_count 0\nunique_id 0\n",
    "1": "",  # of a GPU of another container: its file may not be read
    "2": "cpu_cores_count 0\nsimd_count 416\ndrm_render_minor 129\nunique_id 1801979520617338022\n",
    "10": "cpu_cores_count 0\nsimd_count 416\ndrm_render_minor 130\nunique_id 1801979520617338023\n",
    "9": "cpu_cores_count 0\nsimd_count 416\ndrm_render_minor 131\nunique_id 18446744073709551615\n",
}
"""As ROCm's driver shows MI210s: github.com/ROCm/k8s-device-plugin, testdata/topo-mi210-xgmi-pcie, shortened."""


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        ((129, 130, 131), None, [1, 2, 3]),
        ((129, 130), None, [1, 3]),  # a container without the one of node 9
        ((129, 130, 131), {"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ((129, 130, 131), {"HIP_VISIBLE_DEVICES": "2,0", "CUDA_VISIBLE_DEVICES": "1"}, [3, 1]),
        ((129, 130, 131), {"CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ((129, 130, 131), {"ROCR_VISIBLE_DEVICES": "GPU-1901ead3a2ecd4a6,GPU-FFFFFFFFFFFFFFFF"}, [1, 2]),
        ((), None, []),
    ],
)
def test_gpus_of_amd(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: tuple[int, ...], variables: Any, expected: list[int]
) -> None:
    for node, text in AMD_NODES.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "properties").write_text(text)
    exists, renderers = os.path.exists, {f"/dev/dri/renderD{number}" for number in files}
    monkeypatch.setattr(procfs, "AMD_NODES", str(tmp_path))
    monkeypatch.setattr(procfs, "numbered_files", lambda prefix: [])
    monkeypatch.setattr(os.path, "exists", lambda path: path in renderers or ("/dri/" not in path and exists(path)))
    assert procfs.accelerators(variables)["gpu"] == expected


def test_the_interface_of_one_host_is_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    plan = {"backend": "gloo", "interface": "", "places": [{"host": "a"}, {"host": "a"}]}
    assert rank_environment(plan, ["10.9.9.9", 1], "m")["GLOO_SOCKET_IFNAME"] == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    assert rank_environment(plan, ["10.9.9.9", 1], "m")["GLOO_SOCKET_IFNAME"] == "lo"
    assert rank_environment(dict(plan, interface="ib0"), ["10.9.9.9", 1], "m")["GLOO_SOCKET_IFNAME"] == "ib0"


def test_huge_pages_are_asked_for_where_they_are_small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"backend": "gloo", "interface": "lo", "places": [{"host": "a"}]}

    def tunables(backend: str = "gloo") -> str:
        return str(rank_environment(dict(plan, backend=backend), ["127.0.0.1", 1], "m").get("GLIBC_TUNABLES"))

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(os, "sysconf", lambda name: 4096)
    assert (tunables(), tunables("nccl")) == ("glibc.malloc.hugetlb=1", "None")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=3")
    assert tunables() == "glibc.malloc.check=3"
    monkeypatch.delenv("GLIBC_TUNABLES")
    monkeypatch.setattr(os, "sysconf", lambda name: 65536)
    assert tunables() == "None"


def test_the_jobs_variables_are_in_force_all_some_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    plan = {
        "backend": "gloo",
        "interface": "",
        "places": [{"host": "a"}, {"host": "b"}],
        "variables": {"NCCL_DEBUG": "INFO"},
    }

    def variables_in_force(**more: object) -> tuple[str | None, str | None]:
        environ = rank_environment({**plan, "environment": "job", **more}, ["127.0.0.1", 1], "m")
        return environ.get("GLOO_SOCKET_IFNAME"), environ.get("NCCL_DEBUG")

    assert variables_in_force() == ("eth7", "INFO")
    assert variables_in_force(keep=["NCCL_DEBUG", "interface"]) == (None, "INFO")
    assert variables_in_force(keep=["GLOO_SOCKET_IFNAME"]) == ("eth7", None)
    assert variables_in_force(environment="clean")[1] is None
    assert variables_in_force(interface="eth1")[0] == "eth1"


@pytest.mark.parametrize(("value", "hidden"), [("-1", ["gpu"]), ("", ["gpu"]), ("7", ["gpu"]), ("0", []), (None, [])])
def test_devices_that_the_environment_hides(value: str | None, hidden: list[str], monkeypatch: Any) -> None:
    """As on a host with one GPU: the job that sees none of its devices ends."""
    monkeypatch.setattr(procfs, "numbered_files", lambda prefix: [0] if prefix == "nvidia" else [])
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert procfs.hidden_accelerators(procfs.accelerators(environ), environ) == (hidden, [])


@pytest.mark.parametrize(
    ("variables", "none"),
    [
        ({}, True),
        ({"SLURM_JOB_GPUS": "NoDevFiles", "GPU_DEVICE_ORDINAL": "NoDevFiles"}, True),
        ({"SLURM_STEP_GPUS": "NoDevFiles", "SLURM_JOB_PARTITION": "gpu2"}, True),
        ({"SLURM_STEP_GPUS": "NoDevFiles", "SLURM_JOB_GPUS": "0"}, False),  # of a job that has one
        ({"SLURM_GPUS_ON_NODE": "8"}, False),
        ({"SLURM_GPUS_PER_NODE": "a100:8"}, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
        ({"SLURM_JOB_ID": None}, False),
    ],
)
def test_devices_that_slurm_has_not_allocated(
    variables: dict[str, str | None], none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's own word is meant, not what anybody may set; a job that has asked for GPUs is none on CPUs."""
    monkeypatch.setattr(procfs, "numbered_files", lambda prefix: [0] if prefix == "nvidia" else [])
    set_by_slurm = {"SLURM_JOB_ID": "42", "CUDA_VISIBLE_DEVICES": "NoDevFiles", **variables}
    environ = {name: value for name, value in set_by_slurm.items() if value is not None}
    hidden = procfs.hidden_accelerators(procfs.accelerators(environ), environ)
    assert hidden == (([], ["gpu"]) if none else (["gpu"], []))
