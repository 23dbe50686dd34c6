"""Whether the kernel killed a rank for memory: what its control groups count, before and while it ends."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from doctor.smoke.programs.agent import rank_monitor
from doctor.smoke.programs.agent.kernel import is_exiting
from doctor.smoke.programs.agent.procfs import process_status
from doctor.smoke.programs.agent.rank_monitor import OOM_SECONDS, RankMonitor
from doctor.smoke.programs.recorder_page import PAGE_SIZE

HEADLESS = """
import ctypes, os, threading
threading.Thread(target=os.read, args=(0, 1)).start()
ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)
"""
"""The main thread ends alone: exit(2)."""
AGENT, RANK, ROOT = {"memory": "/agent"}, {"memory": "/rank"}, {"memory": "/"}


class Kernel:
    """What it shows of one process."""

    def __init__(self) -> None:
        self.folders = AGENT
        self.counts = {"/agent": 3, "/rank": 7, "/": 5}
        self.exiting = False


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    displayed = Kernel()
    monkeypatch.setattr(rank_monitor, "cgroup_folders", lambda pid: displayed.folders)
    monkeypatch.setattr(rank_monitor, "is_exiting", lambda pid: displayed.exiting)
    monkeypatch.setattr(rank_monitor, "oom_kills", lambda folders: displayed.counts[folders["memory"]])
    yield displayed


@pytest.fixture
def monitor(kernel: Kernel) -> Any:
    monitor = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
    monitor.pid = 1
    kernel.folders = RANK
    monitor.note_oom_kills(100.0)  # type: ignore[no-untyped-call]
    return monitor


def test_kills_before_its_time_are_not_its_own(monitor: Any) -> None:
    assert not monitor.killed_for_memory(100.0)


def test_a_kill_since_the_last_observation(monitor: Any, kernel: Kernel) -> None:
    kernel.counts["/rank"] += 1
    assert monitor.killed_for_memory(100.5)


def test_a_kill_that_was_counted_before_the_rank_began_to_end(monitor: Any, kernel: Kernel) -> None:
    kernel.counts["/rank"] += 1
    monitor.note_oom_kills(101.0)
    assert monitor.killed_for_memory(101.5)
    assert not monitor.killed_for_memory(101.0 + OOM_SECONDS)


def test_a_rank_in_its_end_is_shown_in_the_root_group_however_long_that_takes(monitor: Any, kernel: Kernel) -> None:
    kernel.counts["/rank"] += 1
    monitor.note_oom_kills(101.0)
    kernel.folders, kernel.exiting = ROOT, True
    for second in range(102, 130):
        monitor.note_oom_kills(float(second))
    assert monitor.cgroups == RANK and monitor.killed_for_memory(130.0)


def test_a_rank_that_ends_otherwise(monitor: Any, kernel: Kernel) -> None:
    kernel.folders, kernel.exiting = ROOT, True
    monitor.note_oom_kills(101.0)
    assert not monitor.killed_for_memory(101.5)


def test_a_process_that_has_ended_is_in_its_end_and_one_that_runs_is_not() -> None:
    with subprocess.Popen(["sh", "-c", "exit 3"], stdin=subprocess.DEVNULL) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_exiting(process.pid)  # type: ignore[no-untyped-call]
    assert not is_exiting(os.getpid())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("program", "age", "is_dead"), [(HEADLESS, 3.0, True), (HEADLESS, 1.0, False), ("", 3.0, False)]
)
def test_a_rank_whose_main_thread_ended_alone_is_dead(program: str, age: float, is_dead: bool) -> None:
    """Its process ends with its last thread only; one that has ended is not told so before its status is known."""
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    assert process.stdin
    try:
        monitor: Any = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
        monitor.pid = process.pid
        while (process_status(process.pid) or "Z")[0] != "Z":  # type: ignore[no-untyped-call]
            pass
        monitor.read_state(age)
        assert (monitor.state, bool(monitor.dead)) == ("X", is_dead)
    finally:
        process.stdin.close()
        process.wait()


@pytest.mark.parametrize(
    ("left", "age", "is_dead"), [({"8"}, 3.0, True), ({"8"}, 1.0, False), ({"8", "9"}, 3.0, False)]
)
def test_a_rank_whose_thread_of_gloo_ended_alone_is_dead(
    monkeypatch: pytest.MonkeyPatch, left: set[str], age: float, is_dead: bool
) -> None:
    """Within a collective: between two of them, groups end with their threads."""
    monitor: Any = RankMonitor(0, mmap.mmap(-1, PAGE_SIZE), 0)  # type: ignore[no-untyped-call]
    monitor.pid, waits = os.getpid(), [True]
    monkeypatch.setattr(monitor, "waits_in_collective", lambda: waits[0])
    monkeypatch.setattr(rank_monitor, "gloo_threads", lambda pid: {"8", "9"})
    monitor.note_lost_threads(0.05)
    monkeypatch.setattr(rank_monitor, "gloo_threads", lambda pid: left)
    monitor.note_lost_threads(age)
    assert bool(monitor.dead) == is_dead
    waits[0], monitor.dead = False, ""
    monitor.note_lost_threads(age)
    assert not monitor.dead
