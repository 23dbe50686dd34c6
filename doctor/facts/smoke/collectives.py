"""The collectives stage: what each rank found in its buffers, and how long the calls took."""

from __future__ import annotations

from typing import Literal

from doctor.facts.smoke.events import RankEvent, StageFact

Element = float | int | bool | str | None


class CollectiveChecked(RankEvent, frozen=True, tag="checked"):
    """One collective gave the values of the closed form, in all these dtypes."""

    gid: int
    op: str
    dtypes: tuple[str, ...]
    count: int
    """Calls that were compared."""


class CollectiveWrong(RankEvent, frozen=True, tag="wrong"):
    """One collective left values in this rank's buffer that differ from the closed form."""

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
    offset: int = 0
    """Added to the place of an element in the formula of what each rank sends: fresh data in the soak stage."""
    giver: int = -1
    """Of a sum: the member whose part is so many times as large in it, in all elements that differ."""
    reread: Literal["", "input", "result"] = ""
    """Two readings of this rank's own memory differ: of what it gave, before and behind the call; of what came."""


class SoakCounts(RankEvent, frozen=True, tag="soaked"):
    """How often each collective ran in the soak stage on one rank, and how often its result was wrong there."""

    counts: dict[str, int]
    wrong: dict[str, int]
    seconds: float
    sources: dict[int, int] = {}
    """Wrong results by the rank whose elements should have been there, where that is one rank."""


class SoakInterval(RankEvent, frozen=True, tag="interval"):
    """One interval of the soak stage on one rank: a minute, less in a short soak, more in a long one."""

    number: int
    start: float
    """Seconds after the stage began at which it should begin."""
    seconds: float
    calls: int
    """Results of collectives that were compared, and of them those that were wrong."""
    wrong: int
    compute: tuple[float, ...] = ()
    """Seconds of some pieces of the same work, less the time that the rank waited for a CPU."""
    reduce: tuple[float, ...] = ()
    """Seconds of some calls of all_reduce over all ranks."""
    bytes: int = 0
    """Of such a call."""
    temperatures: dict[str, float] = {}
    """By sensor of the host, in degrees Celsius; the first rank of a host tells."""
    errors: dict[str, int] = {}
    """By link and counter, what the host's links added to it in the interval."""


class SecondRound(RankEvent, frozen=True, tag="isolated"):
    """Collectives in halves of the world, and halves of what was wrong, after wrong results; ranks in every field."""

    recurred: bool
    """False: nothing was wrong in the second round."""
    calls: int
    """Of the whole world, to see it again."""
    wrong: int
    """Of these calls, results of the rank that had most."""
    groups: int
    """Tests that were made."""
    total: int
    """Calls of all groups."""
    seconds: float
    culprits: tuple[tuple[int, ...], ...] = ()
    """Each a rank, or all ranks of a host: every group was wrong that they were in."""
    outward: tuple[tuple[int, ...], ...] = ()
    """Ranks of hosts that are right alone, and make every group wrong that they are in with others."""
    links: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """Wrong together, right with all others."""
    unclear: tuple[int, ...] = ()


class DtypeUnsupported(RankEvent, frozen=True, tag="unsupported"):
    """The backend refused the dtype for this collective."""

    gid: int
    op: str
    dtype: str
    text: str = ""


class CollectiveTimes(RankEvent, frozen=True, tag="speed"):
    """The times of one collective at one size."""

    gid: int
    op: str
    bytes: int
    seconds: tuple[float, ...]


class SmokeCollectives(StageFact, frozen=True):
    """What each rank of the host got from every collective, on each process group."""

    stage = "collectives"
    every_rank = True
    event_types = (
        CollectiveChecked,
        CollectiveWrong,
        DtypeUnsupported,
        CollectiveTimes,
        SoakCounts,
        SoakInterval,
        SecondRound,
    )

    checked: tuple[CollectiveChecked, ...] = ()
    wrong: tuple[CollectiveWrong, ...] = ()
    unsupported: tuple[DtypeUnsupported, ...] = ()
    speed: tuple[CollectiveTimes, ...] = ()
    soaked: tuple[SoakCounts, ...] = ()
    intervals: tuple[SoakInterval, ...] = ()
    second_rounds: tuple[SecondRound, ...] = ()
