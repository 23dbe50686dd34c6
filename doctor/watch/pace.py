"""How long each rank works between two meetings with the others, and what its steps consist of. Pure.

A collective over all ranks begins when the last of them comes. From there each rank's own work lasts until it enters
the next one; a step's work is the sum. What it waits for the others inside of collectives is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import msgspec

from doctor.analysis.outliers.peers import OwnWork
from doctor.engine.watch_summary import PathPace, RankPace, RunPace

KEPT_STEPS = 200
"""Of each rank: the newest."""
MOST_CALLS = 256
"""Of a step."""
MOST_BLOCKS, PIECES = 64, 10
MOST_WAITING = 4096
"""Steps of a rank that others have not ended yet."""
WARM_STEPS = 2
"""Steps that count for nothing: kernels compile, caches fill."""
_WRAP = 1 << 32


class Entry(NamedTuple):
    """When a rank entered a collective, by the host's monotonic clock, in microseconds modulo 2**32."""

    group: int
    seq: int
    step: int
    microseconds: int
    is_enqueued: bool = False
    """Started in C++, which goes on meanwhile."""

    def shifted(self, seconds: float) -> Entry:
        """The same call by a clock that is ``seconds`` ahead."""
        return self._replace(microseconds=(self.microseconds + round(seconds * 1e6)) % _WRAP)


class StepTimes(NamedTuple):
    """What one step of a rank took, in microseconds, as its page has it."""

    step: int
    compute: int
    collective: int
    input: int
    backward: int
    """Of backward passes, from the first collective that they start."""
    unsplit: int
    calls: int = 0
    """Collectives and messages; not microseconds."""
    interpreter: int = 0
    """Tens of microseconds until the main thread had the interpreter again."""


class StepPace:
    """Gathers when ranks enter collectives of all ranks; `work` makes seconds of it, `parts` has those of steps."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, dict[tuple[int, int], int]]] = {}
        self._started: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """By rank and step: the collectives that C++ has started, the first and the last."""
        self._times: dict[int, dict[int, StepTimes]] = {}
        self._inputs: dict[int, dict[int, int]] = {}
        """By rank and step, by the number that its calls have: microseconds that it waited for its input."""
        self._cpu_waits: dict[int, float] = {}
        self._next = WARM_STEPS + 1
        self.parts = RunParts()

    def add_times(self, rank: int, times: Iterable[StepTimes], cpu_wait: float) -> None:
        """Steps that a rank has ended, after the calls in them. ``cpu_wait``: seconds for a CPU, in all so far."""
        self._cpu_waits[rank] = cpu_wait
        steps, inputs = self._times.setdefault(rank, {}), self._inputs.setdefault(rank, {})
        for step in times:
            inputs[step.step - 1] = step.input
            if step.step >= self._next:
                steps[step.step] = step
        while len(steps) > MOST_WAITING:
            del steps[next(iter(steps))]
        while len(inputs) > KEPT_STEPS:
            del inputs[next(iter(inputs))]

    def split_steps(self) -> None:
        """Takes the steps that all ranks have ended into `parts`."""
        ranks = sorted(self._times)
        last = min((max(steps, default=0) for steps in self._times.values()), default=0)
        while self._next <= last:
            by_rank = [self._times[rank].pop(self._next, None) for rank in ranks]
            if None not in by_rank:
                for rank, parts in self._parts(ranks, [times for times in by_rank if times is not None]):
                    self.parts.add(rank, (*parts, self._cpu_waits.get(rank, 0.0)))
                self.parts.end_step()
            self._next += 1

    def _parts(self, ranks: Sequence[int], by_rank: Sequence[StepTimes]) -> Iterable[tuple[int, Sequence[float]]]:
        """Seconds of input, compute, wait, network, and what is not split; calls; seconds for the interpreter."""
        step = by_rank[0].step - 1  # the number that its calls have
        has_calls = all(step in self._entries.get(rank, {}) for rank in ranks)
        meetings = self._meetings(ranks, step) if has_calls and len(ranks) > 1 else {}
        latest = {key: _latest(entered) for key, entered in meetings.items()}
        for number, (rank, times) in enumerate(zip(ranks, by_rank, strict=True)):
            started = self._started.get(rank, {}).get(step, ())
            calls = self._entries.get(rank, {}).get(step, {})
            wait = sum(max(0, _since(latest[key], meetings[key][number])) for key in meetings if key not in started)
            wait = min(wait, times.collective)
            overlapped = late = 0
            if started:
                overlapped = min(max(0, _since(calls[started[-1]], calls[started[0]])), times.backward)
                late = _since(latest[started[-1]], calls[started[-1]]) if started[-1] in latest else 0
                late = min(max(0, late), times.backward - overlapped)
            network = times.collective - wait + times.backward - overlapped - late
            parts = (times.input, times.compute + overlapped, wait + late, network, times.unsplit)
            yield rank, [*(part / 1e6 for part in parts), times.calls, times.interpreter / 1e5]

    def add(self, rank: int, entries: Iterable[Entry]) -> None:
        """New calls of a rank in groups over all ranks, oldest first."""
        steps = self._entries.setdefault(rank, {})
        for entry in entries:
            if entry.step not in steps:
                steps[entry.step] = {}
                while len(steps) > KEPT_STEPS:
                    oldest = next(iter(steps))
                    del steps[oldest]
                    self._started.get(rank, {}).pop(oldest, None)
            if len(steps[entry.step]) < MOST_CALLS:
                steps[entry.step][entry.group, entry.seq] = entry.microseconds
                if entry.is_enqueued:
                    started = self._started.setdefault(rank, {}).setdefault(entry.step, [])
                    started[1:] = [(entry.group, entry.seq)]

    def work(self, on_device: bool = False) -> dict[int, OwnWork]:
        """By rank: its own work in each step that all ranks have gone through.

        ``on_device``: a rank may wait for its device, and so for the others, anywhere; its wait for input is its own,
        beside the whole step of all ranks (seen on an H200: a healthy rank that reads its loss enters its calls later).
        """
        ranks = sorted(self._entries)
        if len(ranks) < 2:
            return {}
        common = set.intersection(*(set(self._entries[rank]) for rank in ranks))
        work: dict[int, list[tuple[float, float]]] = {rank: [] for rank in ranks}
        for step in sorted(step for step in common if step - 1 in common and step > WARM_STEPS):
            before, now = self._common_calls(ranks, step - 1), self._common_calls(ranks, step)
            if not before or not now:
                continue
            spent = dict.fromkeys(ranks, 0)
            for meeting, entered in pairwise([before[-1], *now]):
                latest = _latest(meeting)
                for rank, microseconds in zip(ranks, entered, strict=True):
                    spent[rank] += max(_since(microseconds, latest), 0)
            if on_device:
                elapsed = max(_since(_latest(now[-1]), _latest(before[-1])), 0)
                spent = {rank: elapsed + self._inputs.get(rank, {}).get(step, 0) for rank in ranks}
            for rank in ranks:
                waited = min(self._inputs.get(rank, {}).get(step, 0), spent[rank])
                work[rank].append((waited / 1e6, (spent[rank] - waited) / 1e6))
        usual = self.parts.usual({}).ranks
        return {
            rank: OwnWork(
                tuple(waited for waited, _ in rows),
                tuple(computed for _, computed in rows),
                usual[rank].cpu_wait if rank in usual else 0.0,
            )
            for rank, rows in work.items()
        }

    def _common_calls(self, ranks: Sequence[int], step: int) -> list[list[int]]:
        """The calls of a step that all ranks have made, in order: when each rank made it."""
        return [*self._meetings(ranks, step).values()]

    def _meetings(self, ranks: Sequence[int], step: int) -> dict[tuple[int, int], list[int]]:
        calls = [self._entries[rank][step] for rank in ranks]
        return {key: [call[key] for call in calls] for key in calls[0] if all(key in call for call in calls)}


class RunParts:
    """Seconds of the parts of all steps of a run, in blocks of steps that become longer as the run does."""

    def __init__(self) -> None:
        self.steps = 0
        self._size = 1
        self._open: dict[int, list[float]] = {}
        self._blocks: list[dict[int, list[float]]] = []
        """By rank: how many steps, sums of what `StepPace` splits, and seconds for a CPU, in all until their end."""

    def add(self, rank: int, seconds: Sequence[float]) -> None:
        """One step of a rank, as `StepPace` splits it; and the total for a CPU until now."""
        *parts, cpu = seconds
        count, *before, _ = self._open.get(rank, [0.0] * (len(parts) + 2))
        self._open[rank] = [count + 1, *(total + part for total, part in zip(before, parts, strict=True)), cpu]

    def end_step(self) -> None:
        """All ranks of a step were added."""
        self.steps += 1
        if self.steps % self._size:
            return
        self._blocks.append(self._open)
        self._open = {}
        if len(self._blocks) >= MOST_BLOCKS:
            self._size *= 2
            self._blocks = [_joined(first, second) for first, second in pairwise(self._blocks)][::2]

    def usual(self, hosts: Mapping[int, str], paths: Sequence[PathPace] = (), newest: int = 0) -> RunPace:
        """Of the middle ones of up to `PIECES` pieces of the run. ``newest``: only of so many of its last steps."""
        kept = self._blocks[-1:]
        for block in self._blocks[-2::-1]:  # a host may be seen some steps later than the others
            if not kept[0].keys() <= block.keys():
                break
            kept.insert(0, block)
        start, blocks = (kept[0], kept[1:]) if len(kept) > 1 else ({}, [])
        if newest and len(blocks) > newest // self._size + 1:
            cut = len(blocks) - newest // self._size - 1
            start, blocks = blocks[cut - 1] if cut else start, blocks[cut:]
        edges = sorted({len(blocks) * number // PIECES for number in range(PIECES + 1)})
        pieces = [blocks[first:last] for first, last in pairwise(edges)]
        ranks = {}
        for rank in sorted(blocks[-1] if blocks else ()):
            means, before = [], start[rank][-1]
            for piece in pieces:
                count = sum(block[rank][0] for block in piece)
                total = piece[-1][rank][-1]
                sums = (sum(column) for column in list(zip(*(block[rank] for block in piece), strict=True))[1:-1])
                means.append([value / count for value in (*sums, total - before)])
                before = total
            *parts, cpu_wait = (median(values) for values in zip(*means, strict=True))
            pace = RankPace(rank, hosts.get(rank, ""), *parts)
            ranks[rank] = msgspec.structs.replace(pace, cpu_wait=min(max(cpu_wait, 0.0), pace.step))
        steps = int(sum(next(iter(block.values()))[0] for block in blocks)) if ranks else 0
        return RunPace(steps, ranks, tuple(paths))


def _joined(first: Mapping[int, list[float]], second: Mapping[int, list[float]]) -> dict[int, list[float]]:
    return {
        rank: [*(a + b for a, b in zip(first[rank][:-1], sums[:-1], strict=True)), sums[-1]]
        for rank, sums in second.items()
        if rank in first
    }


def _since(later: int, earlier: int) -> int:
    """Microseconds between two times that wrap around; negative where the later is the earlier."""
    return (later - earlier + _WRAP // 2) % _WRAP - _WRAP // 2


def _latest(times: Sequence[int]) -> int:
    return times[0] + max(_since(time, times[0]) for time in times)
