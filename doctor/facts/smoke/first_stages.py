"""The first two stages: the interpreter, the import of torch, the rendezvous.

With them comes on which CPUs each rank may run, as it begins.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type

Problem = Literal["name", "refused", "dropped", "no-route", "own", "other"]


class TorchImported(RankEvent, frozen=True, tag="imported"):
    """torch has been loaded."""

    seconds: float
    torch: str
    python: str
    numpy: str | None = None
    text: str = ""
    """Why the backend cannot be used on this host; empty where it can."""
    variables: dict[str, str] = {}
    """By which its environment sets how ranks communicate."""
    managed: bool = False
    """As in `PythonEnv.is_managed`."""


class ConnectFailed(RankEvent, frozen=True, tag="try"):
    """An attempt to reach the master failed, for another reason than the one before."""

    problem: Problem
    text: str = ""
    address: str = ""


class RankDevice(msgspec.Struct, frozen=True):
    """What a rank computes on."""

    index: int = -1
    """-1 for a CPU."""
    name: str = ""
    id: str | int = ""
    """UUID, PCI address or logical number: what tells two devices of a host apart; empty for a CPU."""


class RankJoined(RankEvent, frozen=True, tag="joined"):
    """The rank is through `init_process_group`."""

    seconds: float
    host: str
    """What the host calls itself."""
    world: int
    device: RankDevice = RankDevice()
    torch: str = ""
    numpy: str | None = None


class RankFailed(RankEvent, frozen=True, tag="error"):
    """The rank is about to end, with its reason."""

    kind: str
    text: str
    secondary: bool = False
    """It is of the kind that follows from another rank's end."""
    stage: str = ""
    trace: tuple[str, ...] = ()
    """``file:line function``, innermost first."""


class RankExited(RankEvent, frozen=True, tag="exit"):
    """The rank has ended."""

    status: int
    """As `os.waitpid` gave it."""
    oom: bool = False
    """The kernel killed it for memory."""
    log: str = ""
    """The kernel's line about that."""
    tail: str = ""
    """The end of what it printed; empty where it ended well."""
    limits: str = ""
    """Its limits as /proc/PID/limits showed them before it was reaped."""
    schedstat: str = ""
    """What it ran and waited, as /proc/PID/schedstat showed it then."""


class SmokeStart(StageFact, frozen=True):
    """How each rank of the host came up, who joined, and how each ended."""

    stage = "start"
    event_types = (TorchImported, ConnectFailed, RankJoined, RankFailed, RankExited)

    imported: tuple[TorchImported, ...] = ()
    connect_failed: tuple[ConnectFailed, ...] = ()
    joined: tuple[RankJoined, ...] = ()
    failed: tuple[RankFailed, ...] = ()
    exited: tuple[RankExited, ...] = ()


class RankBound(RankEvent, frozen=True, tag="bound"):
    """The CPUs of one rank, as lists such as ``0-3,8``. An empty list was not to be had."""

    cpus: str
    """On which the main thread may run, once the libraries are loaded and before the run moves it."""
    permitted: str
    """On which its control group would let it run."""


class CpuBinding(msgspec.Struct, frozen=True):
    """The CPUs of one rank, by number."""

    cpus: frozenset[int]
    permitted: frozenset[int]


class SmokeBinding(StageFact, frozen=True):
    """The CPUs on which the ranks of the host may run.

    Raw output, one line of a rank::

        {"cpus":"0-1","permitted":"0-63","ev":"bound","rank":0}
    """

    stage = "start"
    event_types = (RankBound,)
    every_rank = True

    by_rank: dict[int, CpuBinding] = {}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokeBinding:
        report = cls.read_report(answer)
        by_rank, unread = {}, report.unread_ranks(cls.stage)
        for event in events_of_type(report.events, RankBound):
            cpus, permitted = cpu_numbers(event.cpus), cpu_numbers(event.permitted)
            if cpus and permitted:
                by_rank[event.rank] = CpuBinding(cpus, permitted)
            else:
                unread[f"rank {event.rank}"] = "the CPUs on which it may run are not known"
        return cls(by_rank=by_rank, unread=unread)


def cpu_numbers(text: str) -> frozenset[int]:
    """The CPUs of a list in ascending order; empty for a text that is none.

    >>> sorted(cpu_numbers("0-1,4")), sorted(cpu_numbers("4,0-1"))
    ([0, 1, 4], [])
    """
    numbers: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part, re.ASCII)
        if not ends or (numbers and int(ends[1]) <= numbers[-1]):
            return frozenset()
        numbers += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return frozenset(numbers)
