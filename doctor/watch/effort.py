"""Whether a rank that makes no collective gets on all the same: CPU time, bytes and changes of its process tree.

What a function is called says nothing. A rank that computes, reads, writes or has a subprocess that does so is at work;
one that asks again and again, or waits for a peer over TCP, waits for something outside of the job; one whose sleep, or
whose child's, has an end goes on by itself (`doctor.watch.local_wait`). Only one that does none of these has come to
rest: in a lock, in an endless sleep, in a file system.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from doctor.engine.texts import filled
from doctor.remote.runtime.reading import read_text, thread_schedule
from doctor.smoke.programs.agent.network import tcp_bytes
from doctor.smoke.programs.agent.procfs import cpu_times, process_status
from doctor.watch.attach.inspector.awaited_processes import (
    beside,
    files_of,
    holders,
    lock_holders,
    lock_owners,
    other_ends,
)
from doctor.watch.attach.inspector.rank_state import (
    MOST_PROCESSES,
    process_times,
    process_tree,
    status_number,
    transferred,
)
from doctor.watch.local_wait import awaited_peer, is_held_up, local_wait, threads_of

LOOK_SECONDS = 1.0
"""Between two looks at a rank, at first; later `LOOK_SHARE` of the time that it has been without a sign."""
LOOK_SHARE = 0.02
BUSY_SHARE = 0.05
"""Of a CPU, for all processes of the rank together; what watchdogs and loggers use in the background is less."""
MOVING_RATE = 1 << 15
"""Bytes a second; heartbeats and logs are less."""
WANTED_SHARE = 0.5
"""Of the time, in which its threads together ran or waited for a CPU: on a loaded host what works gets next to none,
and what wakes up now and then waits for a moment each time."""
WRITEBACK_PAGES = 64
"""A second, by all writers of the host, while the rank waits in the kernel for its own (fsync)."""
SEARCHED_EVERY = 10
"""Looks for which processes count that have the other end of a wait: a server may hand it to a child."""


class _Counters(NamedTuple):
    """What the processes of a rank have done so far, and those that it waits for at a socket or a pipe."""

    processes: frozenset[int]
    cpu: float
    """Seconds on a CPU, of all threads, and seconds in which their main threads waited for one."""
    carried: int
    """Bytes of files, pipes and TCP connections."""
    switches: int
    """Voluntary switches of the rank's own main thread."""
    written: int
    """Pages that the host has written back; 0 where the rank does not wait in the kernel."""
    threads: dict[tuple[int, int], tuple[float, int]]
    """By process and thread: seconds in which it ran or waited for a CPU, and how often it got one."""


class Effort:
    """When one rank last got on, and by what that shows."""

    def __init__(self) -> None:
        self.kind = ""
        """``works``, ``moves data``, ``asks again and again``, ``sleeps``, ``waits for ...``; empty: it rests."""
        self._before: _Counters | None = None
        self._looked_at = self._alive_at = 0.0
        self._woken = False
        self._ends: set[str] = set()
        self._answering: list[int] = []
        self._awaited: set[str] = set()
        """The other ends of what another of its threads waits for."""
        self.lock_owners: list[int] = []
        """The processes that keep a file locked which the rank waits for, or has open and asks again and again."""
        self._looks_kept = 0

    def begin(self, clock: float) -> None:
        """The rank has gone on by itself: all is counted anew from here."""
        self.kind, self._before = "", None
        self._looked_at = self._alive_at = clock

    def forget_switches(self) -> None:
        """The rank was woken by a signal of ours: that switch is none of its own."""
        self._woken = True

    def rest(self, clock: float) -> float:
        """Seconds since it last got on."""
        return max(0.0, clock - self._alive_at)

    def look(self, pid: int, clock: float, age: float, *, loads: bool) -> None:
        """``age``: seconds since its last sign. ``loads``: it waits for its loader, which polls its workers."""
        if clock - self._looked_at < max(LOOK_SECONDS, LOOK_SHARE * age):
            return
        before, now = self._before, _counters(pid, self._others(pid))
        seconds, self._looked_at, self._before = clock - self._looked_at, clock, now
        if before is None:
            self._alive_at = clock  # what it did before is not known
            return
        woken, self._woken = self._woken, False
        kind = _progress(before, now, seconds)
        if not kind and not loads and not woken and now.switches > before.switches:
            kind = "asks again and again"
        if not kind and _wants_cpus(before, now, seconds):
            kind = "works"
        if not kind:
            kind = self._kind_of_wait(pid, now.processes, loads)
        asks = kind in ("asks again and again", "sleeps")
        self.lock_owners = lock_owners(pid) if asks else lock_holders(pid)  # type: ignore[no-untyped-call]
        if kind:
            self._alive_at, self.kind = clock, kind
        elif self.rest(clock) > LOOK_SECONDS:
            self.kind = ""

    def _kind_of_wait(self, pid: int, processes: Collection[int], loads: bool) -> str:
        """Of a rank that does nothing. Where all processes of this host that could answer it are held up, none will."""
        peer, process, links = awaited_peer(pid, processes)
        self._awaited = other_ends(process, links) if links else set()  # type: ignore[no-untyped-call]
        if peer and not (self._answering and all(map(is_held_up, self._answering))):
            return filled("waits for {0}", peer)
        return local_wait(pid, processes, loads=loads)

    def _others(self, pid: int) -> list[int]:
        """The processes that have the other end of its wait, among its own and all others of its user, or its lock."""
        ends: set[str] = other_ends(pid) or self._awaited  # type: ignore[no-untyped-call]
        self._looks_kept = (self._looks_kept + 1) % SEARCHED_EVERY
        if ends != self._ends or not self._looks_kept:
            found = holders(ends, lambda: files_of([*beside([pid]), *process_tree(pid)[1:]]))  # type: ignore[no-untyped-call]
            self._ends, self._answering, self._looks_kept = ends, found[:MOST_PROCESSES], 0
        return [*self._answering, *lock_holders(pid)]  # type: ignore[no-untyped-call]


def _progress(before: _Counters, now: _Counters, seconds: float) -> str:
    if now.processes != before.processes or now.cpu - before.cpu > BUSY_SHARE * seconds:
        return "works"
    if now.carried - before.carried > MOVING_RATE * seconds:
        return "moves data"
    if before.written and now.written - before.written > WRITEBACK_PAGES * seconds:
        return "moves data"
    return ""


def _wants_cpus(before: _Counters, now: _Counters, seconds: float) -> bool:
    """Whether its threads would have run for much of the time. A wait that lasts, the kernel has not counted yet."""
    wanted = 0.0
    for thread, (spent, turns) in now.threads.items():
        spent_before, turns_before = before.threads.get(thread, (spent, turns))
        if (
            turns == turns_before
            and read_text(f"/proc/{thread[0]}/task/{thread[1]}/stat", 512).rpartition(")")[2][1:2] == "R"
        ):
            wanted += seconds
        else:
            wanted += spent - spent_before
    return wanted > WANTED_SHARE * seconds


def _thread_times(processes: Iterable[int]) -> dict[tuple[int, int], tuple[float, int]]:
    """Of each thread: seconds that it ran or waited for a CPU, and turns."""
    times = {}
    for process in processes:
        for thread in threads_of(process):
            counted = thread_schedule(f"/proc/{process}/task/{thread}")
            if counted:
                times[process, thread] = (counted[0] + counted[1]) / 1e9, counted[2]
    return times


def _counters(pid: int, others: Collection[int] = ()) -> _Counters:
    processes = list(dict.fromkeys([*process_tree(pid), *others]))  # type: ignore[no-untyped-call]
    cpu, carried = 0.0, 0
    for process in processes:
        times = cpu_times(process, False)  # type: ignore[no-untyped-call]
        cpu += max(0.0, process_times(process)) + (times[1] if times else 0.0)  # type: ignore[no-untyped-call]
        carried += max(0, transferred(process))  # type: ignore[no-untyped-call]
    carried += sum(tcp_bytes(processes).values())  # type: ignore[no-untyped-call]
    status = process_status(pid)  # type: ignore[no-untyped-call]
    pages = re.search(r"^nr_written (\d+)", read_text("/proc/vmstat"), re.M) if status and status[0] == "D" else None
    written = int(pages[1]) if pages else 0
    switches = status_number(pid, "voluntary_ctxt_switches")  # type: ignore[no-untyped-call]
    return _Counters(frozenset(processes), cpu, carried, switches, written, _thread_times(processes))
