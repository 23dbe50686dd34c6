"""The first two stages: the interpreter, the import of torch, the rendezvous."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.facts.smoke.events import RankEvent, StageFact

Problem = Literal["name", "refused", "dropped", "no-route", "own", "other"]


class TorchImported(RankEvent, frozen=True, tag="imported"):
    """torch has been loaded."""

    seconds: float
    torch: str
    python: str
    numpy: str | None = None
    backend_ok: bool = True
    """The backend can be used on this host."""
    text: str = ""
    """Why it cannot."""
    detail: bool = False
    """TORCH_DISTRIBUTED_DEBUG is DETAIL: every group gets a second one, in which all its ranks have to take part."""


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
