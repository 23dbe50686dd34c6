"""How long each rank works between two meetings with the others, step by step. Pure.

A collective over all ranks begins when the last of them comes. From there each rank's own work lasts until it enters
the next one; a step's work is the sum. What it waits for the others inside of collectives is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

KEPT_STEPS = 200
"""Of each rank: the newest."""
MOST_CALLS = 256
"""Of a step."""
WARM_STEPS = 2
"""Steps that count for nothing: kernels compile, caches fill."""
_WRAP = 1 << 32


class Entry(NamedTuple):
    """When a rank entered a collective, by the host's monotonic clock, in microseconds modulo 2**32."""

    group: int
    seq: int
    step: int
    microseconds: int

    def shifted(self, seconds: float) -> Entry:
        """The same call by a clock that is ``seconds`` ahead."""
        return self._replace(microseconds=(self.microseconds + round(seconds * 1e6)) % _WRAP)


class StepPace:
    """Gathers when ranks enter collectives of all ranks; `work` makes seconds of it."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, dict[tuple[int, int], int]]] = {}

    def add(self, rank: int, entries: Iterable[Entry]) -> None:
        """New calls of a rank in groups over all ranks, oldest first."""
        steps = self._entries.setdefault(rank, {})
        for entry in entries:
            if entry.step not in steps:
                steps[entry.step] = {}
                while len(steps) > KEPT_STEPS:
                    del steps[next(iter(steps))]
            if len(steps[entry.step]) < MOST_CALLS:
                steps[entry.step][entry.group, entry.seq] = entry.microseconds

    def work(self) -> dict[int, list[float]]:
        """By rank: seconds of its own work in each step that all ranks have gone through."""
        ranks = sorted(self._entries)
        if len(ranks) < 2:
            return {}
        common = set.intersection(*(set(self._entries[rank]) for rank in ranks))
        work: dict[int, list[float]] = {rank: [] for rank in ranks}
        for step in sorted(step for step in common if step - 1 in common and step > WARM_STEPS):
            before, now = self._common_calls(ranks, step - 1), self._common_calls(ranks, step)
            if not before or not now:
                continue
            spent = dict.fromkeys(ranks, 0)
            for meeting, entered in pairwise([before[-1], *now]):
                latest = _latest(meeting)
                for rank, microseconds in zip(ranks, entered, strict=True):
                    spent[rank] += max(_since(microseconds, latest), 0)
            for rank in ranks:
                work[rank].append(spent[rank] / 1e6)
        return work

    def _common_calls(self, ranks: Sequence[int], step: int) -> list[list[int]]:
        """The calls of a step that all ranks have made, in order: when each rank made it."""
        calls = [self._entries[rank][step] for rank in ranks]
        return [[call[key] for call in calls] for key in calls[0] if all(key in call for call in calls)]


def _since(later: int, earlier: int) -> int:
    """Microseconds between two times that wrap around; negative where the later is the earlier."""
    return (later - earlier + _WRAP // 2) % _WRAP - _WRAP // 2


def _latest(times: Sequence[int]) -> int:
    return times[0] + max(_since(time, times[0]) for time in times)
