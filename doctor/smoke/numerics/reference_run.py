"""The reference run: the same training in one process, which every rank runs and every layout must equal. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.facts.smoke.training import ReferenceRepeated, ReferenceRun, SmokeTraining

LOSS_TOLERANCE = 1e-4
"""Relative. Healthy runs differ by up to 2e-7 in fp32, the mildest wrong program that was tried by 1e-3."""
MAX_TOLERANCE = 1e-2
"""Relative. What is allowed where devices multiply float32 with fewer bits."""


class MajorityReference(msgspec.Struct, frozen=True):
    """The reference run of the majority of ranks."""

    losses: tuple[float | None, ...]
    grads: tuple[float | None, ...]
    init: int
    """Of rank 0, if it reported one: another code path has other bits."""
    params: int
    ids: dict[int, tuple[int, ...]]
    """Digests of the tokens, block by block, by step."""
    masks: dict[int, tuple[int, ...]]
    update: dict[str, float | None]
    """Squared norm of what became of each tensor."""
    sound: bool
    """Rank 0, which told of the data, made the same of it as most ranks."""
    tolerance: float = LOSS_TOLERANCE
    """How far a layout may be off, as a share."""

    def data(self, step: int, blocks: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Digests of tokens and masks of these blocks, or None where they were not told."""
        blocks = tuple(blocks)
        if step not in self.ids or any(block >= len(self.ids[step]) for block in blocks):
            return None
        return tuple(self.ids[step][index] for index in blocks), tuple(self.masks[step][index] for index in blocks)

    @property
    def blocks(self) -> int:
        """Blocks of data in a step; 0 when it was not told."""
        return len(next(iter(self.ids.values()), ()))


def reference_events(training: Mapping[str, SmokeTraining]) -> dict[int, ReferenceRun]:
    """The reference run of each rank that reported one, with what it came to when the rank computed it again."""
    again = {event.rank: event for fact in training.values() for event in fact.reference_repeated}
    events = {event.rank: event for fact in training.values() for event in fact.reference}
    return {rank: _repeated(event, again[rank]) if rank in again else event for rank, event in events.items()}


def _repeated(event: ReferenceRun, again: ReferenceRepeated) -> ReferenceRun:
    """The larger distance of each kind; behind the layouts, a program may have changed the order of adding by now."""
    shares = {name: getattr(again, name) for name in ("repeated", "layout", "formula")}
    worse = {name: share for name, share in shares.items() if share > max(getattr(event, name), LOSS_TOLERANCE)}
    return msgspec.structs.replace(event, **worse)


def majority_reference(training: Mapping[str, SmokeTraining]) -> MajorityReference | None:
    """The reference run as most ranks computed it; None when no rank reported one."""
    events = reference_events(training)
    if not events:
        return None
    ours = events[median_rank({rank: event.losses for rank, event in events.items()})]
    alike = [rank for rank, event in events.items() if largest_difference(event.losses, ours.losses) <= LOSS_TOLERANCE]
    data = [event for fact in training.values() for event in fact.reference_blocks]
    steps = {event.step for event in data}
    changed = [event.update for fact in training.values() for event in fact.reference_update]
    precision = max(LOSS_TOLERANCE, *(10 * (event.precision or 0.0) for event in events.values()))
    return MajorityReference(
        losses=ours.losses,
        grads=ours.grads,
        init=events.get(0, ours).init,
        params=ours.params,
        # A long list of blocks comes in several events.
        ids={step: tuple(digest for event in data if event.step == step for digest in event.ids) for step in steps},
        masks={step: tuple(digest for event in data if event.step == step for digest in event.masks) for step in steps},
        update=changed[0] if changed else {},
        sound=0 in alike and len(alike) * 2 > len(events),
        tolerance=min(MAX_TOLERANCE, precision),
    )


def median_rank(curves: Mapping[int, Sequence[float | None]]) -> int:
    """The rank whose curve is nearest to the median of all."""
    length = min(len(curve) for curve in curves.values())
    medians = []
    for step in range(length):
        column = [loss for curve in curves.values() if (loss := curve[step]) is not None]
        medians.append(statistics.median_low(column) if column else None)
    return min(sorted(curves), key=lambda rank: largest_difference(curves[rank], medians))


def largest_difference(curve: Sequence[float | None], other: Sequence[float | None]) -> float:
    """The largest relative difference; infinite where one of them is not finite."""
    return max(
        (relative_error(value, other_value) for value, other_value in zip(curve, other, strict=False)), default=0.0
    )


def relative_error(value: float | None, expected: float | None) -> float:
    """How far a value is from what it should be, as a share of that."""
    if value is None or expected is None:
        return 0.0 if value is expected else float("inf")
    return abs(value - expected) / abs(expected) if expected else abs(value)
