"""The serial twin: the same training in one process, which every rank runs and every layout must equal. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.facts.smoke import SmokeTraining, Twin

LOSS = 1e-4
"""Relative. Healthy runs differ by up to 2e-7 in fp32, the mildest wrong program that was tried by 1e-3."""
ROUGHEST = 1e-2
"""Relative. What is allowed where devices multiply float32 with fewer bits."""


class Twins(msgspec.Struct, frozen=True):
    """What most ranks made of the serial run."""

    losses: tuple[float | None, ...]
    grads: tuple[float | None, ...]
    init: int
    params: int
    ids: dict[int, tuple[int, ...]]
    """Digests of the tokens, block by block, by step."""
    masks: dict[int, tuple[int, ...]]
    update: dict[str, float | None]
    """Squared norm of what became of each tensor."""
    sound: bool
    """Rank 0, which told of the data, made the same of it as most ranks."""
    tolerance: float = LOSS
    """How far a layout may be off, as a share."""

    def data(self, step: int, blocks: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Digests of tokens and masks of these blocks, or None where they were not told."""
        blocks = tuple(blocks)
        if step not in self.ids or any(block >= len(self.ids[step]) for block in blocks):
            return None
        return tuple(self.ids[step][one] for one in blocks), tuple(self.masks[step][one] for one in blocks)

    @property
    def blocks(self) -> int:
        """Blocks of data in a step; 0 when it was not told."""
        return len(next(iter(self.ids.values()), ()))


def by_rank(training: Mapping[str, SmokeTraining]) -> dict[int, Twin]:
    return {event.rank: event for fact in training.values() for event in fact.twin}


def twins(training: Mapping[str, SmokeTraining]) -> Twins | None:
    """The serial run as most ranks computed it; None when no rank told of one."""
    told = by_rank(training)
    if not told:
        return None
    ours = told[middle({rank: event.losses for rank, event in told.items()})]
    alike = [rank for rank, event in told.items() if apart(event.losses, ours.losses) <= LOSS]
    data = [event for fact in training.values() for event in fact.twin_blocks]
    steps = {event.step for event in data}
    changed = [event.update for fact in training.values() for event in fact.twin_update]
    return Twins(
        losses=ours.losses,
        grads=ours.grads,
        init=ours.init,
        params=ours.params,
        # A long list of blocks comes in several events.
        ids={step: tuple(one for event in data if event.step == step for one in event.ids) for step in steps},
        masks={step: tuple(one for event in data if event.step == step for one in event.masks) for step in steps},
        update=changed[0] if changed else {},
        sound=0 in alike and len(alike) * 2 > len(told),
        tolerance=min(ROUGHEST, max(LOSS, *(10 * (event.precision or 0.0) for event in told.values()))),
    )


def middle(curves: Mapping[int, Sequence[float | None]]) -> int:
    """The rank whose curve is nearest to the median of all."""
    length = min(len(curve) for curve in curves.values())
    medians = []
    for step in range(length):
        column = [loss for curve in curves.values() if (loss := curve[step]) is not None]
        medians.append(statistics.median_low(column) if column else None)
    return min(sorted(curves), key=lambda rank: apart(curves[rank], medians))


def apart(curve: Sequence[float | None], other: Sequence[float | None]) -> float:
    """The largest relative difference; infinite where one of them is not finite."""
    return max((relative(one, two) for one, two in zip(curve, other, strict=False)), default=0.0)


def relative(value: float | None, want: float | None) -> float:
    """How far a value is from what it should be, as a share of that."""
    if value is None or want is None:
        return 0.0 if value is want else float("inf")
    return abs(value - want) / abs(want) if want else abs(value)
