"""What agents say, line by line, checked before anything is made of it: hosts are not trusted."""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.smoke.model import Snapshot


class AgentHello(msgspec.Struct, frozen=True):
    """An agent is there."""

    host: str
    pid: int
    python: str
    cpus: int
    addresses: dict[str, list[str]]
    """By interface."""
    port: int = 0
    """Where the ranks can meet; 0 on hosts that were not asked."""
    port_error: str = ""
    server: str = ""
    """The address that an SSH connection came in on."""
    devices: dict[str, list[int]] = {}
    uid: int = -1
    now: float = 0.0
    """Its clock."""


class AgentBye(msgspec.Struct, frozen=True):
    """All that an agent started is gone, but for what is named."""

    left: list[tuple[int, str, str]] = []
    """Process id, state letter, command line."""
    cpu: float = 0.0
    """Seconds that the agent itself took."""


class AgentMessage(msgspec.Struct, frozen=True):
    """One of these; the time is in ``late``."""

    hello: AgentHello | None = None
    event: msgspec.Raw = msgspec.Raw()
    snaps: tuple[Snapshot, ...] | None = None
    late: float = 0.0
    """Seconds that the agent waited for a CPU."""
    evidence: tuple[tuple[int, str, int, int, int], ...] = ()
    """Rank, its peer's address and port, unacknowledged bytes, retransmits."""
    stacks: dict[int, str] | None = None
    sockets: tuple[tuple[int, str, int, int, int], ...] | None = None
    listening: tuple[tuple[int, str, int], ...] = ()
    probes: tuple[tuple[str, int, str, float], ...] | None = None
    fault: str = ""
    bye: AgentBye | None = None


class WorkerEvent(msgspec.Struct, frozen=True):
    """The parts of a rank's events that the run itself needs; the rest is for the facts."""

    ev: str
    rank: int
    stage: str = ""
    status: int = 0
    gid: int = 0
    name: str = ""
    ranks: tuple[int, ...] = ()
    layout: int = -1
    kind: str = ""
    text: str = ""
    problem: str = ""
    tail: str = ""
    log: str = ""


class Imported(msgspec.Struct, frozen=True):
    seconds: float


_MESSAGE_DECODER = msgspec.json.Decoder(AgentMessage)
_EVENT_DECODER = msgspec.json.Decoder(WorkerEvent)


class InvalidMessage(Exception):
    """A line that no agent of ours would say; the text says why."""


def parse_message(data: bytes) -> AgentMessage:
    """Raises: InvalidMessage."""
    try:
        return _MESSAGE_DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidMessage(str(error)) from None


def parse_event(raw: msgspec.Raw) -> tuple[WorkerEvent, dict[str, Any]]:
    """The event's known part, and all of it. Raises: InvalidMessage."""
    try:
        return _EVENT_DECODER.decode(raw), msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidMessage(str(error)) from None
