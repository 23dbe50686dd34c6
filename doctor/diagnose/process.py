"""One process of a job, as its logs show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.diagnose.events import Event, Recording
from doctor.diagnose.signature import ERROR_ROLES, Signature
from doctor.engine.texts import filled


class Process(msgspec.Struct):
    """One process of the job, as its logs show it; None and empty are not known."""

    rank: int | None = None
    local_rank: int | None = None
    folder: str = ""
    """The folder of one launcher's output, where its file names show local ranks."""
    device: int | None = None
    host: str = ""
    pid: str = ""
    address: str = ""
    """Of its device, or of its socket."""
    log: str = ""
    """The name of one of its files."""
    files: set[int] = set()
    events: list[Event] = []
    """By time where all have one, else by file and line."""
    outlived: list[Event] = []
    """Its faults behind which it shows progress; they are not among its events."""
    group_ranks: dict[str, int] = {}
    """The rank in each communicator."""
    group_sizes: dict[str, int] = {}
    listeners: dict[str, int] = {}
    """Addresses on which devices of its host listen, with the device."""
    last_time: float | None = None
    """The last time that any of its files shows."""
    origin: str = ""
    """The host on which its log was read; empty where that is not known."""
    named_rank: int | None = None
    """The rank in its log's name."""
    recording: Recording | None = None
    recording_file: int = 0


def name_of_local_rank(number: int) -> str:
    """The name of a process that is known only by its number on its host."""
    return filled("local rank {0}", number)


def corrected(events: Sequence[Event], signatures: Mapping[str, Signature]) -> list[Event]:
    """Without what a library reports wrongly: HCCL's port "in use" while the network port is down (hcclRet 19), or an
    engine that died behind the signal that ended the server.
    """
    first: dict[str, Event] = {}
    for event in events:
        first.setdefault(event.signature, event)

    def is_right(event: Event) -> bool:
        row = signatures[event.signature]
        beside = (first[name] for name in row.wrong_beside if name in first)
        return not any(row.role != "wrapper" or other.line < event.line for other in beside)

    return [event for event in events if is_right(event)]


def holds_two_processes(events: Sequence[Event], signatures: Mapping[str, Signature]) -> bool:
    """Whether the only rank that lines of a file show merely waited, before or behind a fault of an unknown process.

    A process that a fault ends does not report for a collective, minutes later, that it timed out.
    """
    ranked = [event for event in events if event.rank is not None and signatures[event.signature].role in ERROR_ROLES]
    faults = [event for event in events if event.rank is None and not event.pid]
    waited = bool(ranked) and all(signatures[event.signature].role == "victim" for event in ranked)
    return waited and any(signatures[event.signature].role == "root" for event in faults)
