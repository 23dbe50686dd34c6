"""What ranks have learned, by their replicas and by the same training done serially. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from doctor.facts.smoke import LearnedParameters

CLEAR = 5.0
"""Times the error of the rank that is nearest to the serial training, from which on a replica is the wrong one."""
AMPLIFIED = 100.0
"""Times the tolerance of one step: Adam makes much of the sign of a gradient that is hardly more than rounding."""


class LearnedWrong(msgspec.Struct, frozen=True):
    """Ranks that hold other parameters than they should."""

    ranks: tuple[int, ...]
    compared: tuple[int, ...]
    """All ranks that were compared; ``ranks`` are all of them where nothing tells which are wrong."""
    error: float | None
    """The largest, from the serial training."""
    replicas: bool = True
    """They differ from each other; False: they are alike, and far from the serial training."""


def wrong_learners(events: Iterable[LearnedParameters], tolerance: float) -> Iterator[LearnedWrong]:
    """Data-parallel groups that disagree; or else the ranks that are far from the serial training.

    Bits are compared among ranks of one code path. ``tolerance``: of one step.
    """
    groups: dict[tuple[int, int], list[LearnedParameters]] = {}
    for event in events:
        groups.setdefault((event.pp, event.tp), []).append(event)
    apart = [group for group in groups.values() if len(_bits(group)) > len({event.code_path for event in group})]
    yield from map(_differing, apart)
    errors = {rank: error for group in groups.values() for rank, error in _errors(group).items()}
    far = tuple(sorted(rank for rank, error in errors.items() if error > AMPLIFIED * tolerance))
    if far and not apart:
        yield LearnedWrong(far, tuple(sorted(errors)), max(errors.values()), replicas=False)


def _bits(group: Sequence[LearnedParameters]) -> set[tuple[str, int, int]]:
    return {(event.code_path, event.params, event.gradient) for event in group}


def _errors(group: Sequence[LearnedParameters]) -> dict[int, float]:
    """The error of each rank; one that has computed none has that of a rank which holds the same bits."""
    by_bits = {event.params: event.error for event in group if event.error is not None}
    errors = {event.rank: event.error if event.error is not None else by_bits.get(event.params) for event in group}
    return {rank: error for rank, error in errors.items() if error is not None}


def _differing(group: Sequence[LearnedParameters]) -> LearnedWrong:
    """All ranks of the group are wrong for what is known where none is clearly nearer to the serial training."""
    everyone = tuple(sorted(event.rank for event in group))
    errors = {event.rank: event.error for event in group if event.error is not None}
    nearest = min(errors.values(), default=0.0)
    wrong = tuple(sorted(rank for rank, error in errors.items() if error > CLEAR * nearest))
    known = len(errors) == len(group) > len(wrong) > 0
    return LearnedWrong(wrong if known else everyone, everyone, max(errors.values(), default=None))
