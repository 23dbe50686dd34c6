"""What a rank that rests waits for on its own host: the end of its sleep, a process that it has started, a thread.

Such a wait ends by itself, so it is no hang before the limit of the process group. What counts as alive on its own is
narrow: a sleep of at most `LONGEST_WAIT`. A child that waits for the rank, or for a lock, is held up itself.

A sleep's end is in the arguments of its system call (Linux, man 2 clock_nanosleep, futex, poll, select, epoll_wait).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.remote.runtime.reading import link_at, names_in, read_text
from doctor.smoke.programs.agent.network import CONNECTING, ESTABLISHED, LISTENS, tcp_table
from doctor.smoke.programs.agent.procfs import open_files, process_status
from doctor.smoke.programs.agent.system_calls import PAGE, thread_call
from doctor.watch.attach.inspector.rank_state import HAVE_LIMITS, awaited_files, call_by_function, seconds_left
from doctor.watch.attach.rank_activity import LONGEST_WAIT

SHARED_FILES = ("pipe:", "socket:")
FUTEX_PRIVATE = 128
RESTARTED = frozenset(
    {"", "running", PAGE, "read", "write", "open", "recv", "send", "accept", "wait", "lock", "sync", "stat"}
)
"""Calls that the kernel takes up again after a signal with SA_RESTART, and what is no call. Source: signal(7)."""
MOST_THREADS = 256
UNREADABLE = "a peer that cannot be read"


class Awaited(NamedTuple):
    """A peer, and by which of its connections which process waits for it."""

    peer: str = ""
    process: int = 0
    links: frozenset[str] = frozenset()


class _Call(NamedTuple):
    """The system call that a thread is in."""

    kind: str
    number: int = -1
    arguments: tuple[int, ...] = ()

    @property
    def is_private_futex(self) -> bool:
        return self.kind == "futex" and len(self.arguments) > 1 and bool(self.arguments[1] & FUTEX_PRIVATE)


def local_wait(pid: int, processes: Collection[int], *, loads: bool = False) -> str:
    """By what the rank's wait will end, as `Effort.kind`; empty where nothing shows that it will.

    ``processes``: the rank's, with those that it has started. ``loads``: it waits for its loader, which looks every few
    seconds whether its workers live: these limits say nothing of their work.
    """
    call = _call(pid, pid)
    if not loads and call.kind in HAVE_LIMITS and _seconds_left(pid, call) <= LONGEST_WAIT:
        return "sleeps"
    started = {process for process in processes if process != pid}
    sleepers = [process for process in started if _sleeps(process, process)]
    if sleepers and _waits_for_processes(pid, call, started):
        return filled("waits for process {0}", _name(sleepers[0]))
    if call.is_private_futex and any(_sleeps(pid, thread) for thread in threads_of(pid)[1:]):
        return "waits for a thread that sleeps"
    return ""


def undisturbed_thread(pid: int) -> int:
    """A thread that a signal does not take out of a call: pause, nanosleep, poll and their like would end early.

    One that waits for a lock without a limit, the main one first; else the main one. 0 where it is in such a call.
    """
    for thread in threads_of(pid):
        call = _call(pid, thread)
        if call.kind == "futex" and _seconds_left(pid, call) == math.inf:
            return thread
    return pid if _call(pid, pid).kind in RESTARTED else 0


def is_held_up(pid: int) -> bool:
    """Whether a process is stopped, or each of its threads waits for a lock, or for long: then it answers nothing."""
    if (process_status(pid) or "X")[0] in "Tt":  # type: ignore[no-untyped-call]
        return True
    calls = [_call(pid, thread) for thread in threads_of(pid)]
    return bool(calls) and all(
        call.kind in ("sleep", "futex", "pause") and call.number >= 0 and _seconds_left(pid, call) > LONGEST_WAIT
        for call in calls
    )


def _name(pid: int) -> str:
    command = printable(read_text(f"/proc/{pid}/comm", 64).strip())
    return filled("{0} ({1})", pid, command) if command else str(pid)


def _call(pid: int, thread: int) -> _Call:
    call = _Call(*thread_call(pid, thread))  # type: ignore[no-untyped-call]
    if call.kind or thread != pid or not process_status(pid):  # type: ignore[no-untyped-call]
        return call
    return _Call(call_by_function(pid))  # type: ignore[no-untyped-call]


def _sleeps(pid: int, thread: int) -> bool:
    """Whether a thread sleeps, and not for long; also where the sleep's length cannot be read."""
    if (process_status(pid) or "X")[0] in "ZX":  # type: ignore[no-untyped-call]
        return False
    call = _call(pid, thread)
    return call.kind == "sleep" and (call.number < 0 or _seconds_left(pid, call) <= LONGEST_WAIT)


def _seconds_left(pid: int, call: _Call) -> float:
    return float(seconds_left(pid, call.number, call.arguments))  # type: ignore[no-untyped-call]


def _waits_for_processes(pid: int, call: _Call, started: Collection[int]) -> bool:
    """Whether the rank's main thread waits for the end or the word of one of these, itself or by another thread."""
    if call.kind in ("wait", "open", "lock") or (call.kind == "futex" and not call.is_private_futex):
        return True
    threads = threads_of(pid) if call.is_private_futex or call.kind == "poll" else [pid]
    if any(_call(pid, thread).kind == "wait" for thread in threads[1:]):
        return True
    awaited = {_target(pid, number) for thread in threads for number in awaited_files(pid, thread)} - {""}  # type: ignore[no-untyped-call]
    if "anon_inode:[pidfd]" in awaited:
        return True
    shared = {target for target in awaited if target.startswith(SHARED_FILES)}
    return bool(shared) and any(shared.intersection(open_files(process, 1024)) for process in started)  # type: ignore[no-untyped-call]


def _target(pid: int, number: int) -> str:
    return str(link_at(f"/proc/{pid}/fd/{number}")) if number >= 0 else ""


def awaited_peer(pid: int, processes: Collection[int]) -> Awaited:
    """Whom a rank waits for over TCP, as ``10.0.0.7:443``; empty where neither it nor its children wait for one.

    A rank whose main thread accepts connections is a server, which rests until it is asked.

    Its main thread may wait for several connections at once. Another thread, and a child's, only counts where it waits
    for one alone: the libraries' own threads wait for all of theirs.
    """
    for process in processes:
        for thread in threads_of(process) if process == pid else (process,):
            files = awaited_files(process, thread)  # type: ignore[no-untyped-call]
            if files == [-1]:
                if thread == pid:
                    return Awaited(UNREADABLE)
            elif files and (thread == pid or len(files) == 1):
                links = frozenset(str(link_at(f"/proc/{process}/fd/{number}")) for number in files)
                if peer := _tcp_peer(process, links, listens=thread == pid):
                    return Awaited(peer, process, links)
    return Awaited()


def threads_of(pid: int) -> list[int]:
    """A process's threads, its main thread first."""
    names: list[str] = names_in(f"/proc/{pid}/task")
    return [pid, *[int(name) for name in names if name != str(pid)][:MOST_THREADS]] if names else []


def _tcp_peer(pid: int, targets: Collection[str], *, listens: bool) -> str:
    if not any(target.startswith("socket:[") for target in targets):
        return ""
    states = (ESTABLISHED, CONNECTING, *((LISTENS,) if listens else ()))
    for inode, state, local, peer, _ in tcp_table(pid, states):  # type: ignore[no-untyped-call]
        if f"socket:[{inode}]" in targets:
            address, port = local if state == LISTENS else peer
            place = f"{address}:{port}" if ":" not in address else f"[{address}]:{port}"
            return filled("a request at {0}", place) if state == LISTENS else place
    return ""
