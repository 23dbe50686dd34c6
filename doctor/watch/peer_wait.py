"""The peer over TCP that a rank waits for, if it does: a server of another job, a download, the job's store."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from doctor.engine.texts import filled
from doctor.remote.runtime.reading import link_at, names_in
from doctor.smoke.programs.agent.network import CONNECTING, ESTABLISHED, LISTENS, tcp_table
from doctor.watch.attach.inspector.rank_state import awaited_files

MOST_THREADS = 256
UNREADABLE = "a peer that cannot be read"


class Awaited(NamedTuple):
    """A peer, and by which of its connections which process waits for it."""

    peer: str = ""
    process: int = 0
    links: frozenset[str] = frozenset()


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
