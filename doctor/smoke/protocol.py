"""The wire format of a smoke run: what workers emit, what agents send, and what agents are ordered to do.

- `WorkerEvent`: a line of JSON that a worker writes for its agent, told apart by ``ev``. An event that a check reads is
  defined beside its fact in `doctor.facts.smoke`; those of the run itself are here.
- `AgentMessage`: a line of an agent. It carries an event, or an answer, under a key of its own.
- `AgentOrder`: a line to an agent, told apart by ``do``. `doctor.smoke.run.programs.agent_request` makes the first one.

Every line is checked before it is used: hosts are not trusted.
"""

from __future__ import annotations

from typing import Union

import msgspec

from doctor.analysis.file_waits import FileWait
from doctor.facts.interfaces import SendingDelay
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.events import RankEvent as RankEvent
from doctor.facts.smoke.events import StageFact
from doctor.facts.smoke.first_stages import SmokeBinding, SmokeStart
from doctor.facts.smoke.further_stages import (
    SmokeDevices,
    SmokeLearning,
    SmokeLoader,
    SmokeNative,
    SmokePace,
    SmokePairs,
)
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import CpuSpin, Snapshot
from doctor.smoke.programs.process_groups import Plan
from doctor.transport.program import decode_message

# -- workers


class GroupFormed(RankEvent, frozen=True, tag="group"):
    """The rank, the first member of a process group, is about to form it with the others."""

    gid: int
    name: str
    ranks: tuple[int, ...]
    """Global ranks."""


class StageFinished(RankEvent, frozen=True, tag="stage"):
    """The rank is through a stage."""

    stage: str
    seconds: float


class RankDone(RankEvent, frozen=True, tag="done"):
    """The rank has nothing more to do."""


STAGE_FACTS: tuple[type[StageFact], ...] = (
    *(SmokeBinding, SmokeCollectives, SmokeDevices, SmokeStart, SmokeLoader, SmokeNative, SmokePairs, SmokePace),
    *(SmokeLearning, SmokeTraining),
)
"""Every fact that is made of events: those of `doctor.facts.smoke`, each defined beside its events."""

RUN_EVENTS: tuple[type[RankEvent], ...] = (GroupFormed, StageFinished, RankDone)
"""What only the run itself reads."""

EVENT_TYPES: tuple[type[RankEvent], ...] = tuple(
    dict.fromkeys((*(kind for fact in STAGE_FACTS for kind in fact.event_types), *RUN_EVENTS))
)
"""All that a worker can emit."""

# -- agents


class AgentHello(msgspec.Struct, frozen=True):
    """An agent is there."""

    host: str
    pid: int
    python: str
    cpus: int
    addresses: dict[str, list[str]]
    """By interface."""
    delays: tuple[SendingDelay, ...] = ()
    """Of its interfaces that have an address: a host that is held back by much does not answer later."""
    speeds: dict[str, int] = {}
    """Mb/s by interface, of those that are up; 0 for not known."""
    port: int = 0
    """Where the ranks can meet; 0 on hosts that were not asked."""
    port_error: str = ""
    server: str = ""
    """The address that an SSH connection came in on."""
    devices: dict[str, list[int]] = {}
    """By kind: the accelerators that its environment lets a program use, in the order of their ordinals."""
    hidden: list[str] = []
    """The kinds that the host has, but its environment hides completely."""
    unallocated: list[str] = []
    """The same, where a scheduler has allocated none of them to the job."""
    npu_model: str = ""
    """PCI device id of its NPUs, such as ``d801``; empty where there is none."""
    uid: int = -1
    now: float = 0.0
    """Its clock."""
    variables: dict[str, str] = {}
    """Of its environment: those by which a job sets how its ranks communicate."""


class AgentBye(msgspec.Struct, frozen=True):
    """All that an agent started has ended, but for what is named."""

    left: list[tuple[int, str, str]] = []
    """Process id, state letter, command line."""
    cpu: float = 0.0
    """Seconds that the agent itself took."""


class HostPressure(msgspec.Struct, frozen=True):
    """What kept the ranks of a host from running, since they were first observed."""

    ranks: dict[int, tuple[int, int, float, float, float]] = {}
    """Periods of its CPU quota, those in which it was used up, seconds that this held the rank back; seconds that its
    main thread ran, and that it waited for a CPU."""
    steal: float = 0.0
    """Share of the CPU time that the hypervisor took."""
    stalls: dict[str, float] = {}
    """By resource: percent of the last 10 s in which some task waited for it (PSI)."""
    idle: dict[int, float] = {}
    """By rank: share of the host's CPU time without work, while the rank waited for a CPU."""
    spins: dict[int, tuple[CpuSpin, ...]] = {}
    neighbours: tuple[int, int] = (0, 0)
    """Entries that the kernel's table of neighbours (ARP) may have; those that it had no room for."""


class StartingInterpreter(msgspec.Struct, frozen=True, array_like=True):
    """An interpreter that is to become a rank, or all ranks of its host."""

    rank: int
    """-1 for the process that all ranks of the host come from."""
    state: str
    """The letter of /proc; ``F`` where a control group is frozen."""
    idle: float
    """Seconds for which neither it nor a process of it ran, could run, or read anything."""
    waits_for: str = ""
    """The function of the kernel that it sleeps in."""
    cpu: float = 0.0
    """Seconds that it and its processes ran."""


class AgentMessage(msgspec.Struct, frozen=True):
    """One of these; the time is in ``late``."""

    hello: AgentHello | None = None
    event: msgspec.Raw = msgspec.Raw()
    """A worker's line as it is: see `parse_event`."""
    snaps: tuple[Snapshot, ...] | None = None
    late: float = 0.0
    """Seconds that the agent waited for a CPU."""
    starting: tuple[StartingInterpreter, ...] = ()
    """With ``snaps``: interpreters that have not imported everything yet and do nothing at the moment."""
    evidence: tuple[tuple[int, str, int, int, int], ...] = ()
    """Rank, its peer's address and port, unacknowledged bytes, retransmits."""
    stacks: dict[int, str] | None = None
    """By rank."""
    due: bool = False
    """With ``stacks``: some of the host's ranks could run and have got no CPU yet to write theirs."""
    limits: tuple[str, ...] = ()
    """With ``stacks``: sentences about limits that the host's ranks have reached."""
    files: dict[int, FileWait] = {}
    """With ``stacks``: by rank, -1 for the process that all of the host come from, the file that it is held up by."""
    sockets: tuple[tuple[int, str, int, int, int], ...] | None = None
    """Established connections, like ``evidence``."""
    listening: tuple[tuple[int, str, int], ...] = ()
    """Rank, address, port."""
    halted: tuple[tuple[str, bool], ...] = ()
    """With ``sockets``: of connections that keep all their bytes back, the peer's address, and whether it has room."""
    unread: tuple[str, ...] = ()
    """With ``sockets``: addresses of peers whose bytes a rank has not read."""
    addresses: tuple[str, ...] = ()
    """With ``sockets``: those that the host has at the moment."""
    delays: tuple[SendingDelay, ...] = ()
    """With ``sockets``: of its interfaces that have an address."""
    probes: tuple[tuple[str, int, str, float], ...] | None = None
    """Address, port, result, seconds."""
    pressure: HostPressure | None = None
    fault: str = ""
    bye: AgentBye | None = None

    @property
    def claimed_ranks(self) -> set[int]:
        """The ranks that it speaks of beside an event and ``pressure``; -1 stands for all ranks of its host."""
        ranks = {
            *(snap.rank for snap in self.snaps or ()),
            *(row[0] for row in self.evidence),
            *(self.stacks or ()),
            *self.files,
        }
        return ranks | {row.rank for row in self.starting}


# -- orders


class AgentOrder(msgspec.Struct, frozen=True, tag_field="do"):
    """A line to an agent. Its fields are the parameters of the agent's method."""


class Prepare(AgentOrder, frozen=True, tag="prepare"):
    """Bind the port that the ranks meet at; answered by ``hello``."""

    listen: bool
    port: int


class Start(AgentOrder, frozen=True, tag="start"):
    """Start these ranks."""

    plan: Plan
    mine: tuple[int, ...]
    worker: str
    """The worker's text; empty where the agent has its own."""
    master: tuple[str, int]
    python: str
    hosts_store: bool
    start: str
    """``fork``: one interpreter becomes all ranks; ``exec``: one for each."""
    seconds: float
    """The agent's time limit."""
    peer: str = ""
    """The address of another host, where a launcher has started the ranks."""


class Stay(AgentOrder, frozen=True, tag="stay"):
    """The controller is still there."""


class DumpStacks(AgentOrder, frozen=True, tag="stacks"):
    """Answered by ``stacks``."""


class ListSockets(AgentOrder, frozen=True, tag="sockets"):
    """Answered by ``sockets`` and ``listening``."""


class Probe(AgentOrder, frozen=True, tag="probe"):
    """Connect to these addresses and ports; answered by ``probes``."""

    targets: list[tuple[str, int]]
    seconds: float


class ReportPressure(AgentOrder, frozen=True, tag="pressure"):
    """Answered by ``pressure``."""


class End(AgentOrder, frozen=True, tag="end"):
    """End all ranks and yourself; answered by ``bye``."""


# -- reading and writing

_MESSAGE_DECODER = msgspec.json.Decoder(AgentMessage)
_EVENT_DECODER: msgspec.json.Decoder[RankEvent] = msgspec.json.Decoder(Union[EVENT_TYPES])  # noqa: UP007


def parse_message(data: bytes) -> AgentMessage:
    """Raises: InvalidMessage."""
    return decode_message(_MESSAGE_DECODER, data)


def parse_event(raw: msgspec.Raw | bytes) -> RankEvent:
    """The event, as one of `EVENT_TYPES`. Raises: InvalidMessage."""
    return decode_message(_EVENT_DECODER, raw)


def encode_order(order: AgentOrder) -> bytes:
    """The line, without its end.

    >>> encode_order(Probe([("10.0.0.1", 22)], 0.6))
    b'{"do":"probe","targets":[["10.0.0.1",22]],"seconds":0.6}'
    """
    return msgspec.json.encode(order)
