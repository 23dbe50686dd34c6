"""What the inspector says of a host and its ranks; untrusted, so typed and bounded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from doctor.analysis.file_waits import FileWait
from doctor.engine.decoding import prepare_decoding
from doctor.engine.sanitize import number_ranges, printable
from doctor.engine.texts import filled, joined
from doctor.watch.rehearsal.rank_view import HostPlace

MAX_RANKS = 1024
_MAX_TEXT, _MAX_ITEMS = 300, MAX_RANKS
"""Characters of a text, and entries of a list: a store has every rank for a client."""
_FEW_VALUES = 6
"""Of each register, of a thread that only looks at memory.

Seen: 2, in vLLM's reduction through shared memory; 3 to 5, in a loop of Python.
"""


Kind = Literal[
    "left", "stopped", "traced", "frozen", "debugger", "stdin", "sleep", "blocked", "file", "loader", "child",
    "compute", "collective", "device", "idle", "wait", "unknown",
]  # fmt: skip
"""What a process does."""


class Look(msgspec.Struct, frozen=True):
    """What /proc showed of a rank's main thread at one moment."""

    state: str
    """R, S, D, T, t, as in /proc/PID/stat."""
    wchan: str
    call: str
    """The system call that it is in: read, futex, poll, sleep, ..., ``running`` in none, ``?`` not readable."""
    file: str
    """What the call's file is."""
    ran: float
    """Seconds on a CPU since it began; -1: not known."""
    switches: int
    """Voluntary context switches since it began; -1: not known."""
    all_ran: float
    """Seconds of all threads."""
    bytes: int
    """Read and written since it began; -1: not readable."""
    awaited: int = -1
    """Bytes that the TCP connections which its call waits for have carried; -1: it waits for none, or not known."""
    holder: int = 0
    """The thread that holds the mutex which it waits for; 0: it waits for none, or not known."""
    deadlocked: bool = False
    """The holder is this thread itself, or waits so for itself, by way of other threads or none."""


Ids = Mapping[str, Sequence[str]]
"""By a variable that each process of a job may have: its values for this job."""
Frame = tuple[str, str, int]
"""Function, file, line."""


class ProcessReport(msgspec.Struct, frozen=True):
    """One process."""

    pid: int
    rank: int | None
    world: int
    """Ranks of the job; 0: not known."""
    job: dict[str, str]
    variables: dict[str, str]
    user: str
    devices: list[str]
    tracer: int
    frozen: bool
    children: list[tuple[int, str, str, str]]
    looks: list[Look | None]
    """At the start, the middle and the end of the interval; None: it had ended."""
    tcp: list[int]
    """Bytes that its TCP connections had carried at each look; -1: it has none, or they are not known."""
    stacks: list[list[Frame]]
    """Of the main thread, at the start and at the end, innermost first; empty where none was shown."""
    problem: str
    """Why there is no stack."""
    group: int = 0
    """The first pid of those of its host that it is connected with, itself included; 0: it is connected with none."""
    links: list[str] = []
    """Its TCP connections to other hosts: own end, ``>``, the other end."""
    stores: list[tuple[int, list[int], list[int]]] = []
    """Of each store of torch that it serves: port, pids of its host connected to it, and with the process otherwise."""
    samples: list[tuple[str, int]] = []
    """Files of code, and how often its main thread was found in them while it used a CPU; empty: not known."""
    beside: list[list[tuple[str, int]]] = []
    """The same of its other threads that used a CPU."""
    register_values: int = 0
    """The most values that one register had among samples of a thread that used a CPU; 0: not known."""
    shared: list[int] = []
    """A sum over the memory that it shares with other processes at each look; -1: messages may reach it otherwise."""
    children_ran: list[float] = []
    """Seconds that the processes below it had run, or waited for a CPU, at the first and at the last look, where it
    waited for something; at the last also what the busiest process ran meanwhile that is at the other end of what it
    waits for, or, where it sleeps, that is of its user and no rank, and shares something with it. It sinks where one
    has ended, whose wait for a CPU no longer counts."""
    native: list[str] = []
    """Library of communication that its thread waits in, and function; two empty texts: the interpreter waits."""
    file_wait: FileWait | None = None
    """At the last look; None: its main thread was in no call about a file."""
    far_end: tuple[str, float] | None = None
    """The TCP connection that its main thread waits for, as in ``links``, and the seconds since that last ran (-1: not
    known); None: it waits for none, or for several of its own host."""
    argument: int | None = None
    """Its rank, where nothing but an argument of the program's function names it."""
    awaits: list[int] = []
    """Those of the processes looked at on its host that have the other end of what its main thread waits for."""
    answering: list[tuple[str, bool]] = []
    """Processes of its host, no ranks of its job, at the other end of what its main thread waits for, as ``pid 7
    (redis-server)``, and whether they are stopped."""
    ends_in: float = -1.0
    """Seconds until the call of the thread that was looked at ends by its own limit; -1: it has none."""
    sleeps_for: float = -1.0
    """Seconds until the first sleep ends of a process or thread that it may wait for; -1: none sleeps so."""
    lock_owners: list[tuple[int, str]] = []
    """Processes of its host that keep a file locked for themselves which it has open, with their names."""
    requests: list[tuple[str, float]] = []
    """Who asked it something over a connection that it does not attend to, from before the first look to the last, and
    the seconds since (-1: not known); the process of its host as ``pid 7 (nginx)``, an address, or empty."""
    takes_requests: bool = False
    """Whether it still waits for connections, so that only one of its threads holds up what it was asked."""
    awaits_request: bool = False
    """Whether its main thread waits where it accepts connections, and no answer is due over one of them."""
    gets_results: bool = False
    """Its main thread waits for another of its threads, and has run within the interval, or that one has ended."""
    thread: int = 0
    """The thread that was looked at: the main one, whose number is ``pid``, or another that works for it."""
    off_cpu: float = -1.0
    """Seconds since the thread that was looked at last ran; -1: not known."""
    polled: tuple[str, list[str], bool] | None = None
    """The condition of the loop that its main thread sleeps in, values that this names, and whether only processes of
    its host bring what it looks for; None: not known."""
    task: str = ""
    """The call of another process that it works for, by its title, as ``Worker.fit`` of Ray; empty: none."""
    dumps: list[str] = []
    """Paths of dumps of its flight recorder, written since its start."""
    heartbeat_logs: list[str] = []
    """Paths of its logs in which HCCL's heartbeat says something."""
    place: list[str] = []
    """Lists of the CPUs on which it may run, those that its control group permits, and of its memory's NUMA nodes."""

    @property
    def label(self) -> str:
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"

    @property
    def is_connected(self) -> bool:
        """Something shows that it takes part in a job: a connection, memory that it shares, or a device."""
        return bool(self.group or self.links or self.devices) or max(self.tcp, default=-1) >= 0

    @property
    def awaited_end(self) -> str:
        """The other end of the TCP connection that its main thread waits for; empty: none."""
        return self.far_end[0].partition(">")[2] if self.far_end else ""

    @property
    def took_messages(self) -> bool:
        """Bytes reached it or left it over TCP, from the first look to the last."""
        return min(self.tcp, default=-1) >= 0 and self.tcp[-1] > self.tcp[0]

    @property
    def took_no_message(self) -> bool:
        """It is certain that no message reached it or left it, from the first look to the last."""
        return len(set(zip(self.shared, self.tcp, strict=False))) == 1 and self.shared[0] >= 0

    @property
    def finds_the_same(self) -> bool:
        """All its running threads look at the same again and again, and no device is to change that."""
        return 0 < self.register_values <= _FEW_VALUES and not self.devices

    @property
    def frames(self) -> list[Frame]:
        """The last stack that was shown."""
        return next((stack for stack in reversed(self.stacks) if stack), [])

    @property
    def alive(self) -> bool:
        return bool(self.looks) and all(look is not None for look in self.looks)


class HostReport(msgspec.Struct, frozen=True):
    """What one host says."""

    host: str
    seconds: float
    py_spy: bool
    local: bool
    """All TCP connections of its ranks end on this host."""
    ranks: list[ProcessReport]
    root: bool
    not_found: list[int]
    """Processes that were asked for, and are not there."""
    ras: str = ""
    """Two answers of NCCL's RAS, one behind the other; empty without one."""
    hidden: dict[str, int] = {}
    """By user: Python processes whose environment may not be read, so that it is not known whether they are ranks."""
    ptrace_scope: int = -1
    """Yama's limit on looking into processes: 0 to 3; -1: none."""
    place: HostPlace | None = None
    beside: list[int] = []
    """Ranks that run beside the processes that were asked for."""
    beside_dumps: list[str] = []
    """Dumps of the flight recorder that those may have written."""


def read_report(data: bytes) -> HostReport:
    """A host's answer. Raises: msgspec.DecodeError, msgspec.ValidationError, for what is none."""
    report = msgspec.json.decode(data, type=HostReport)
    ranks = [
        msgspec.structs.replace(
            _bounded(rank), place=rank.place, dumps=_paths(rank.dumps), heartbeat_logs=_paths(rank.heartbeat_logs)
        )
        for rank in report.ranks[:MAX_RANKS]
    ]
    return msgspec.structs.replace(report, host=_bounded(report.host), ranks=ranks, hidden=_bounded(report.hidden))


def without_others(report: HostReport, ids: Ids) -> HostReport:
    """Without the processes that name another job than the one that is meant: they run beside it."""
    others = [rank for rank in report.ranks if any(rank.job.get(name) not in (None, *ids[name]) for name in ids)]
    return msgspec.structs.replace(
        report,
        ranks=[rank for rank in report.ranks if rank not in others],
        beside=[*report.beside, *(rank.pid for rank in others)],
        beside_dumps=[*report.beside_dumps, *(path for rank in others for path in (*rank.dumps, *rank.heartbeat_logs))],
    )


def labels_joined(labels: Sequence[str]) -> str:
    """Labels of processes, with the numbers of ranks as ranges.

    >>> labels_joined(["rank 0", "rank 1", "pid 7"])
    'ranks 0-1, pid 7'
    """
    numbers = [int(label[5:]) for label in labels if label.startswith("rank ")]
    template = "ranks {0}" if len(numbers) > 1 else "rank {0}"
    named = [filled(template, number_ranges(numbers))] if numbers else []
    return joined(", ", [*named, *(label for label in labels if not label.startswith("rank "))])


def unseen_notes(reports: Mapping[str, HostReport]) -> list[str]:
    """What could not be looked at on these hosts, even where ranks were seen."""
    notes = []
    for host, report in reports.items():
        for user, count in report.hidden.items():
            hidden = filled("{0} Python processes of {1} may not be read, and may be ranks", count, user)
            if count == 1:
                hidden = filled("1 Python process of {0} may not be read, and may be a rank", user)
            notes.append(filled("{0}: {1}: expected root (--sudo), or that user", host, hidden))
        limited = report.ptrace_scope > (2 if report.root else 0)
        if limited and report.ranks:
            text = (
                "{0}: kernel.yama.ptrace_scope is {1}: stacks and system calls may not be read, kernel "
                "functions were{2}"
            )
            more = "" if report.root else "; root (--sudo) may read more"
            notes.append(filled(text, host, report.ptrace_scope, more))
    return notes


def _bounded(value: Any) -> Any:
    """The value with each text within it printable, and cut, and so many of each list and mapping."""
    if isinstance(value, str):
        return printable(value, _MAX_TEXT)
    if isinstance(value, list | tuple):
        return type(value)(map(_bounded, value[:_MAX_ITEMS]))
    if isinstance(value, dict):
        return {printable(key, _MAX_TEXT): _bounded(entry) for key, entry in list(value.items())[:_MAX_ITEMS]}
    if isinstance(value, msgspec.Struct):
        fields = {name: _bounded(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


def _paths(texts: list[str]) -> list[str]:
    return [path for path in texts[:4] if path.startswith("/") and path.isprintable() and len(path) < 1100]


prepare_decoding(HostReport)
