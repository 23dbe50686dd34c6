"""The collectives stage: what each rank found in its buffers, and how long the calls took."""

from __future__ import annotations

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only

Element = float | int | bool | str | None


class Checked(Event, frozen=True, tag="checked"):
    """One collective gave what the closed form says, in all these dtypes."""

    gid: int
    op: str
    dtypes: tuple[str, ...]
    count: int
    """Calls that were compared."""


class Wrong(Event, frozen=True, tag="wrong"):
    """One collective left other values in this rank's buffer than the closed form says."""

    gid: int
    op: str
    dtype: str
    numel: int
    root: int
    """Global rank of the root or the peer; -1 for none."""
    index: int
    """The first element that differs."""
    expected: Element
    got: Element
    wrong: int
    """Elements that differ."""


class Unsupported(Event, frozen=True, tag="unsupported"):
    """The backend refused the dtype for this collective."""

    gid: int
    op: str
    dtype: str
    text: str = ""


class Speed(Event, frozen=True, tag="speed"):
    """The times of one collective at one size."""

    gid: int
    op: str
    bytes: int
    seconds: tuple[float, ...]


class SmokeCollectives(Fact, frozen=True):
    """What each rank of the host got from every collective, on each process group."""

    probe = smoke()

    checked: tuple[Checked, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    speed: tuple[Speed, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokeCollectives:
        told = hear(answer, Told[Checked | Wrong | Unsupported | Speed])
        return cls(
            checked=only(told.events, Checked),
            wrong=only(told.events, Wrong),
            unsupported=only(told.events, Unsupported),
            speed=only(told.events, Speed),
            unread=told.silent(),
        )
