"""The losses of one rank, step after step, in memory that does not grow: what the verdicts are made from.

Values come one at a time. Kept are the first and the last of them, a curve of at most 256 means, and what a finding
needs: where it began, and the figures on both sides.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice
from statistics import median

import msgspec

from doctor.watch.loss.loss_lines import LossLine

BLOCK = 8
"""Values whose median is compared with what was before them."""
REFERENCE = 64
"""Values before a block; also those that a divergence must last."""
FIRST = 50
"""Values at the start, from which a fall is measured."""
SPIKE_SIGMAS, SPIKE_SHARE = 6.0, 0.35
"""A block's median is a spike when it lies so many deviations, and this share of the level, above the reference."""
DIVERGED_SIGMAS, DIVERGED_SHARE = 4.0, 0.5
RISING_SIGMAS, RISING_TIMES = 8.0, 3.0
"""The same of a loss that still rises: its own deviation grows with it, so that of the best level is taken."""
NOT_FINITE_RUN, SKIPPED_RUN = 3, 64
"""Values in a row that are not finite: without and with the loss scaler's own word that it left the steps out."""
CONSTANT_RUN = 50
CONSTANT_DIGITS = 3
STALL_COUNT = 300
STALL_SHARE = 0.05
STALL_DEVIATIONS = 3.0
MEETING = 4
"""Steps by which lines of several ranks in one stream may stand before each other."""
START_STEP = 20
"""A first step above so many lines' worth of steps is that of a run that goes on from a checkpoint."""
MAX_CURVE = 256
NEGATIVE_SHARE = 0.02


class Rise(msgspec.Struct, frozen=True):
    """Where the loss left its level."""

    step: int
    """The first step of the block that was higher."""
    before: float
    after: float


def not_finite_text(value: float) -> str:
    """``NaN`` or ``Inf``."""
    return "NaN" if math.isnan(value) else "Inf"


class LossSeries:
    """Reads losses in order; the attributes tell what has been seen so far."""

    def __init__(self) -> None:
        self.count = 0
        """Finite values."""
        self.lines = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.last: LossLine | None = None
        self.resumed_at: int | None = None
        """The last step to which the run went back."""
        self.begins_late = False
        """Its first step shows that earlier ones are not in the log."""
        self.first: list[float] = []
        self.recent: deque[float] = deque(maxlen=REFERENCE + BLOCK)
        self.best = math.inf
        """The lowest median of `REFERENCE` values."""
        self.best_deviation = 0.0
        self.best_step = 0
        self.spikes: list[Rise] = []
        """The first four of them."""
        self.spike_count = 0
        self.diverged: Rise | None = None
        """Holds now; None again once the loss is back."""
        self.not_finite_step: int | None = None
        """The first step of a run that is not finite and was long enough."""
        self.not_finite_text = ""
        self.not_finite_count = 0
        self.constant_step: int | None = None
        self.negative = 0
        self.curve: list[float] = []
        self._per_point, self._part_sum, self._part_count = 1, 0.0, 0
        self._run: list[int] = []
        self._run_length = self._run_skipped = 0
        self._equal, self._equal_step, self._level_before = 0, 0, 0.0
        self._block_step = 0
        self._sum = self._squares = 0.0
        self._in_spike = False

    def add(self, line: LossLine, ordinal: int) -> None:
        """One more line. ``ordinal``: the step, where the line tells none."""
        step = ordinal if line.step is None else line.step
        if self.last is not None and line == self.last:
            return None  # a progress bar that is drawn again
        self._place(step, line)
        self.last = line
        self.lines += 1
        self.last_step = step
        value = line.value
        self._draw(value)
        if not math.isfinite(value):
            return self._not_finite(step, line)
        self._run_length = self._run_skipped = 0
        self.count += 1
        self._constant(step, line)
        if value < 0:
            self.negative += 1
        if len(self.first) < FIRST:
            self.first.append(value)
        else:
            self._sum += value
            self._squares += value * value
        if self.count % BLOCK == 1:
            self._block_step = step
        self.recent.append(value)
        if self.count % BLOCK == 0 and len(self.recent) == REFERENCE + BLOCK:
            self._compare(step)
        return None

    def _place(self, step: int, line: LossLine) -> None:
        if self.first_step is None:
            self.first_step = step
        elif self.lines == 1 and self.first_step > START_STEP * max(1, step - self.first_step):
            self.begins_late = True
        last, epoch = self.last_step, self.last.epoch if self.last else None
        if last is None or step >= last or (line.epoch is not None and epoch is not None and line.epoch > epoch):
            return
        if last - step <= MEETING:
            return  # ranks that print into one stream, and are not in step
        # The run has begun anew from a checkpoint: what was recent is no reference for what follows.
        self.resumed_at = step
        self.recent.clear()

    def _not_finite(self, step: int, line: LossLine) -> None:
        if not self._run_length:
            self._run = [step]
        self._run_length += 1
        self._run_skipped += line.skipped
        self.not_finite_count += 1
        needed = SKIPPED_RUN if self._is_skipped_run else NOT_FINITE_RUN
        if self._run_length >= needed and self.not_finite_step is None:
            self.not_finite_step, self.not_finite_text = self._run[0], not_finite_text(line.value)

    def _constant(self, step: int, line: LossLine) -> None:
        before = self.recent[-1] if self.recent else None
        if before != line.value:
            self._equal, self._equal_step = 1, step
            self._level_before = before or 0.0
            return
        self._equal += 1
        # A loss that has sunk to 0 by the digits that are printed is constant, and well.
        resolved = line.digits >= CONSTANT_DIGITS or (line.value == 0 and self._level_before >= 0.1)
        if self._equal >= CONSTANT_RUN and resolved and self.constant_step is None:
            self.constant_step = self._equal_step

    def _compare(self, step: int) -> None:
        """The last block against the values before it."""
        before = list(islice(self.recent, REFERENCE))
        level, block = median(before), median(islice(self.recent, REFERENCE, None))
        deviation = 1.4826 * median(abs(value - level) for value in before)
        if level <= 0:
            return
        jump = block - level
        high = jump > SPIKE_SIGMAS * deviation and jump > SPIKE_SHARE * level
        if high and not self._in_spike:
            self.spike_count += 1
            if len(self.spikes) < 4:
                self.spikes.append(Rise(self._block_step, level, block))
        self._in_spike = high
        self._compare_with_best(step, level, deviation)

    def _compare_with_best(self, step: int, level: float, deviation: float) -> None:
        if level < self.best:
            self.best, self.best_deviation, self.best_step = level, deviation, step
        margin = max(DIVERGED_SHARE * self.best, DIVERGED_SIGMAS * deviation)
        # All of the reference is high, not its middle alone: a spike that has passed is no divergence.
        quarter = sorted(islice(self.recent, REFERENCE))[REFERENCE // 8]
        rising = max(RISING_TIMES * self.best, self.best + RISING_SIGMAS * self.best_deviation)
        if quarter > min(self.best + margin, rising):
            self.diverged = self.diverged or Rise(self.best_step, self.best, level)
        elif level < self.best + margin / 2:
            self.diverged = None

    def _draw(self, value: float) -> None:
        self._part_sum += value
        self._part_count += 1
        if self._part_count < self._per_point:
            return
        self.curve.append(self._part_sum / self._part_count)
        self._part_sum, self._part_count = 0.0, 0
        if len(self.curve) > MAX_CURVE:
            self.curve = [
                (earlier + later) / 2 for earlier, later in zip(self.curve[::2], self.curve[1::2], strict=False)
            ]
            self._per_point *= 2

    @property
    def _is_skipped_run(self) -> bool:
        """Of the values in a row that are not finite: the lines say that a loss scaler left half of the steps out."""
        return self._run_skipped * 2 >= self._run_length

    @property
    def ends_not_finite(self) -> bool:
        """The last value is not finite, and no line says that its step was left out."""
        return self._run_length > 0 and not self._is_skipped_run

    @property
    def drawn(self) -> Sequence[float]:
        """The curve, its last part included."""
        return [*self.curve, self._part_sum / self._part_count] if self._part_count else self.curve

    @property
    def takes_negative_values(self) -> bool:
        """It is no loss of the kind that falls from a positive level: of the rules, only some hold for it."""
        return self.negative > NEGATIVE_SHARE * max(self.count, 1)

    def fall(self) -> tuple[float, float] | None:
        """How far the loss has fallen since its first values, as a share of them, and the most that it can have fallen
        in view of its noise; None while there are too few values, or where the first ones are not in the log.
        """
        rest = self.count - len(self.first)
        if self.count < STALL_COUNT or self.begins_late or self.resumed_at is not None or self.takes_negative_values:
            return None
        start, now = sum(self.first) / len(self.first), self._sum / rest
        if start <= 0:
            return None
        noise = sum((value - start) ** 2 for value in self.first) / (len(self.first) - 1)
        later = max(self._squares / rest - now * now, 0.0)
        error = math.sqrt(noise / len(self.first) + later / rest)
        return (start - now) / start, (start - now + STALL_DEVIATIONS * error) / start

    @property
    def stalled(self) -> bool:
        """It has certainly fallen by less than `STALL_SHARE` since it began, and has not risen by as much."""
        fallen = self.fall()
        return fallen is not None and fallen[1] < STALL_SHARE and fallen[0] > -STALL_SHARE
