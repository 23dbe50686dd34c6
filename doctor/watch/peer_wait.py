"""The peer over TCP that a rank waits for, if it does: a server of another job, a download, the job's store."""

from __future__ import annotations

import os
from collections.abc import Collection

from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.network import proc_address
from doctor.watch.attach.inspector.rank_state import awaited_files

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
            files = awaited_files(process, thread)  # type: ignore[no-untyped-call]
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
