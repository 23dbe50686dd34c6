"""What the stages beside start, collectives and training report: loader, native, pairs, pace."""

from __future__ import annotations

from doctor.facts.smoke.events import RankEvent, StageFact


class LoaderResult(RankEvent, frozen=True, tag="loader"):
    """What one rank's loader workers drew, and how long it took."""

    workers: int
    digests: dict[str, int | None]
    """What the workers drew from python, numpy and torch."""
    seeds: tuple[int, ...] = ()
    """Of the workers, in their order."""
    seconds: float = 0.0
    text: str = ""
    """The error that it ended with."""
    layout: int = 0
    """Number of the layout that says which ranks read the same data."""
    dp: int = 0
    """The rank's data-parallel index in it, which its loader was seeded by."""


class SmokeLoader(StageFact, frozen=True):
    """The data loaders of the host's ranks."""

    stage = "loader"
    event_types = (LoaderResult,)
    every_rank = True

    loaded: tuple[LoaderResult, ...] = ()


class NativeResult(RankEvent, frozen=True, tag="native"):
    """The losses of one layout under one of torch's wrappers."""

    layout: int
    api: str
    """Such as DDP, fully_shard, parallelize_module."""
    losses: tuple[float | None, ...] = ()
    """Over all rows, the same on every rank."""
    text: str = ""
    """Why it could not run."""
    reference: tuple[float | None, ...] = ()
    """The losses of the same module in one process, without a wrapper."""


class SmokeNative(StageFact, frozen=True):
    """What DDP, FSDP2, DTensor and pipelining made of the same model and data."""

    stage = "native"
    event_types = (NativeResult,)

    native: tuple[NativeResult, ...] = ()


class PairTimes(RankEvent, frozen=True, tag="pair"):
    """The times of one rank's exchanges with one peer in one round."""

    peer: int
    round: int
    bytes: int
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""
    control: bool = False
    """A pair that is not suspected, measured by turns with those that are."""
    attempt: int = 0
    """Number of the confirmation, from 1 on: what is slow is measured again at several times."""


class SmokePairs(StageFact, frozen=True):
    """How long exchanges with single peers took."""

    stage = "pairs"
    event_types = (PairTimes,)

    pairs: tuple[PairTimes, ...] = ()


class PaceTimes(RankEvent, frozen=True, tag="pace"):
    """Seconds of each piece of work; in a run of doctor's own less the time that the rank waited for a CPU."""

    input: tuple[float, ...] = ()
    compute: tuple[float, ...] = ()
    attempt: int = 0
    """From 1 on: measured again, at another time, since a rank looked slow."""
    starved: float = 0.0
    """Of a watched training, seconds that a usual step waits for a CPU: they are in those above, or in its waits."""


class SmokePace(StageFact, frozen=True):
    """How quickly the host's ranks do a fixed piece of work."""

    stage = "pace"
    event_types = (PaceTimes,)
    every_rank = True

    paced: tuple[PaceTimes, ...] = ()
