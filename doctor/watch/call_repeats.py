"""How far the ranks of a training came, by their steps and by the collectives that they repeat. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doctor.engine.texts import filled
from doctor.smoke.model import Collective

ROUNDS = 3
"""Times that a rank must have made the same call for it to be past its first step, where no optimizer steps."""
MOST_DIFFERENT = 4096
"""Different calls of a rank that are counted, at most."""


class CallRepeats:
    """How often each rank made each of its calls."""

    def __init__(self) -> None:
        self._by_rank: dict[int, dict[tuple[object, ...], int]] = {}

    def add(self, rank: int, calls: Iterable[Collective]) -> None:
        """Counts calls that are new."""
        repeats = self._by_rank.setdefault(rank, {})
        for call in calls:
            same = call.group, call.op, call.dtype, call.common_size, call.root
            if same in repeats or len(repeats) < MOST_DIFFERENT:
                repeats[same] = repeats.get(same, 0) + 1

    def goes_round(self, rank: int) -> bool:
        """Whether it repeats a collective, as a program without an optimizer does."""
        return max(self._by_rank.get(rank, {}).values(), default=0) >= ROUNDS

    def reached(self, steps: Mapping[int, int]) -> str:
        """Where the last of the ranks is. ``steps``: of each."""
        if step := min(steps.values(), default=0):
            return filled("training step {0}", step)
        return filled("collective {0}", min((sum(repeats.values()) for repeats in self._by_rank.values()), default=0))
