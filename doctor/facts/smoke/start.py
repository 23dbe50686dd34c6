"""The first two stages: the interpreter, the import of torch, the rendezvous."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only

Problem = Literal["name", "refused", "dropped", "no-route", "other"]


class Imported(Event, frozen=True, tag="imported"):
    """torch has been loaded."""

    seconds: float
    torch: str
    python: str
    numpy: str | None = None
    backend_ok: bool = True
    """The backend can be used on this host."""
    text: str = ""
    """Why it cannot."""


class Tried(Event, frozen=True, tag="try"):
    """An attempt to reach the master failed, in another way than the one before."""

    problem: Problem
    text: str = ""
    address: str = ""


class Device(msgspec.Struct, frozen=True):
    """What a rank computes on."""

    index: int = -1
    """-1 for a CPU."""
    name: str = ""
    id: str | int = ""
    """UUID, PCI address or logical number: what tells two devices of a host apart; empty for a CPU."""


class Joined(Event, frozen=True, tag="joined"):
    """The rank is through `init_process_group`."""

    seconds: float
    host: str
    """What the host calls itself."""
    world: int
    device: Device = Device()
    torch: str = ""
    numpy: str | None = None


class Failed(Event, frozen=True, tag="error"):
    """The rank is about to end, and says why."""

    kind: str
    text: str
    secondary: bool = False
    """It is of the kind that follows from another rank's end."""
    stage: str = ""
    trace: tuple[str, ...] = ()
    """``file:line function``, innermost first."""


class Exited(Event, frozen=True, tag="exit"):
    """The rank has ended."""

    status: int
    """As `os.waitpid` gave it."""


class SmokeStart(Fact, frozen=True):
    """How each rank of the host came up, who joined, and how each ended."""

    probe = smoke()

    imported: tuple[Imported, ...] = ()
    tried: tuple[Tried, ...] = ()
    joined: tuple[Joined, ...] = ()
    failed: tuple[Failed, ...] = ()
    exited: tuple[Exited, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokeStart:
        told = hear(answer, Told[Imported | Tried | Joined | Failed | Exited])
        return cls(
            imported=only(told.events, Imported),
            tried=only(told.events, Tried),
            joined=only(told.events, Joined),
            failed=only(told.events, Failed),
            exited=only(told.events, Exited),
            unread=told.silent(),
        )
