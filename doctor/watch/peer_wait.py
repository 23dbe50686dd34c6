"""The peer over TCP that a rank waits for, if it does: a server of another job, a download, the job's store."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Iterator

from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.network import proc_address
from doctor.watch.attach.inspector.live_environment import memory_at
from doctor.watch.attach.inspector.rank_state import call_by_function, thread_call

POLL, SELECT, EPOLL = {7, 271, 73}, {23, 270, 72}, {232, 281, 22}
"""Numbers of the system calls, x86_64 and aarch64: their arguments differ. No number is in two of the sets' systems."""
SINGLE = frozenset({"read", "write", "recv", "send", "connect", "accept"})
"""Calls whose first argument is a file."""
MOST_FILES = 64
MOST_THREADS = 256
TABLE_BYTES = 4 << 20
ESTABLISHED, CONNECTING = "01", "02"
UNREADABLE = "a peer that cannot be read"


def awaited_peer(pid: int, processes: Collection[int]) -> str:
    """Whom a rank waits for over TCP, as ``10.0.0.7:443``; empty where neither it nor its children wait for one.

    Its main thread may wait for several connections at once. Another thread, and a child's, only counts where it waits
    for one alone: the libraries' own threads wait for all of theirs.
    """
    for process in processes:
        for thread in threads_of(process) if process == pid else (process,):
            files = list(awaited_files(process, thread))
            if files == [-1]:
                if thread == pid:
                    return UNREADABLE
            elif files and (thread == pid or len(files) == 1) and (peer := _tcp_peer(process, files)):
                return peer
    return ""


def threads_of(pid: int) -> list[int]:
    """A process's threads, its main thread first."""
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [pid, *[int(name) for name in names if name != str(pid)][:MOST_THREADS]]


def awaited_files(pid: int, thread: int) -> Iterator[int]:
    """Numbers of the files that a thread waits for; -1 where it waits for some that cannot be read."""
    kind, number, arguments = thread_call(pid, thread)  # type: ignore[no-untyped-call]
    if not kind and thread == pid and call_by_function(pid) in ("recv", "poll", "connect"):  # type: ignore[no-untyped-call]
        yield -1
    if len(arguments) < 2:
        return
    first, second = arguments[:2]
    if kind in SINGLE:
        yield first & 0xFFFFFFFF
    elif kind == "poll":
        yield from _polled(pid, number, first, second)


def _polled(pid: int, number: int, first: int, second: int) -> Iterator[int]:
    if number in EPOLL:
        info: str = read_text(f"/proc/{pid}/fdinfo/{first & 0xFFFFFFFF}")
        yield from [int(word) for word in re.findall(r"^tfd:\s*(\d{1,9})", info, re.M)[:MOST_FILES]]
        return
    place, size = (second, min((first + 7) // 8, MOST_FILES)) if number in SELECT else (0, 0)
    if number in POLL:
        place, size = first, 8 * min(second, MOST_FILES)
    if not place or not size:
        return
    data: bytes = memory_at(pid, place, size)  # type: ignore[no-untyped-call]
    if not data:
        yield -1
    elif number in SELECT:
        yield from [8 * index + bit for index, byte in enumerate(data) for bit in range(8) if byte >> bit & 1]
    else:
        yield from [entry[0] for entry in struct.iter_unpack("=iHH", data[: len(data) // 8 * 8])]


def _tcp_peer(pid: int, files: Collection[int]) -> str:
    inodes = set()
    for number in files:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    for name in ("tcp", "tcp6") if inodes else ():
        table: str = read_text(f"/proc/{pid}/net/{name}", TABLE_BYTES)
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] in inodes and fields[3] in (ESTABLISHED, CONNECTING):
                address, port = proc_address(fields[2])  # type: ignore[no-untyped-call]
                return f"{address}:{port}" if ":" not in address else f"[{address}]:{port}"
    return ""
