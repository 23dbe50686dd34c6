"""How long each rank works between two meetings with the others, step by step. Pure.

A collective over all ranks begins when the last of them comes. From there each rank's own work lasts until it enters
the first collective of its next step. What it waits for the others inside of collectives is not counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from doctor.watch.rank_process import Entry

KEPT_STEPS = 200
"""Of each rank: the newest."""
WARM_STEPS = 2
"""Steps that count for nothing: kernels compile, caches fill."""
_WRAP = 1 << 32


class StepPace:
    """Gathers when ranks enter collectives; `work` makes seconds of it."""

    def __init__(self) -> None:
        self._first: dict[int, dict[int, int]] = {}
        self._last: dict[int, dict[int, int]] = {}
        self._order: dict[int, deque[int]] = {}

    def add(self, rank: int, entries: Iterable[Entry]) -> None:
        """New calls of a rank, oldest first."""
        first, last = self._first.setdefault(rank, {}), self._last.setdefault(rank, {})
        order = self._order.setdefault(rank, deque())
        for entry in entries:
            if entry.step not in first:
                first[entry.step] = entry.microseconds
                order.append(entry.step)
                if len(order) > KEPT_STEPS:
                    oldest = order.popleft()
                    first.pop(oldest, None)
                    last.pop(oldest, None)
            last[entry.step] = entry.microseconds

    def work(self) -> dict[int, list[float]]:
        """By rank: seconds of its own work in each step that all ranks have gone through."""
        ranks = sorted(self._first)
        if len(ranks) < 2:
            return {}
        common = set.intersection(*(set(self._first[rank]) for rank in ranks))
        steps = [step for step in sorted(common) if step - 1 in common and step > WARM_STEPS]
        work: dict[int, list[float]] = {rank: [] for rank in ranks}
        for step in steps:
            meeting_time = _latest([self._last[rank][step - 1] for rank in ranks])
            for rank in ranks:
                work[rank].append(max(_since(self._first[rank][step], meeting_time), 0) / 1e6)
        return work


def _since(later: int, earlier: int) -> int:
    """Microseconds between two times that wrap around; negative where the later is the earlier."""
    return (later - earlier + _WRAP // 2) % _WRAP - _WRAP // 2


def _latest(times: Sequence[int]) -> int:
    return times[0] + max(_since(time, times[0]) for time in times)
