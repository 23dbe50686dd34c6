"""What the ranks called, side by side: whether they agree, and which of them strays from its own habit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from doctor.analysis.collectives.waits import PAIRED
from doctor.smoke.model import STAGES, Collective

STEPPED = frozenset({"training", "learning"})
"""Stages in which all ranks count the same steps, so that a call of another step is another call."""

OPENING = frozenset({"barrier", "broadcast"})
"""What a layout begins with, before its first step."""

Form = tuple[str, str, int, int, int]


def form(call: Collective, has_size: bool = True) -> Form:
    """What must be the same on all ranks in one place of a group's sequence. ``has_size``: its size, too."""
    step = call.step if call.stage in STEPPED and call.op not in OPENING else -1
    size = call.common_size if has_size else 0
    if call.op in PAIRED:
        return ("send", call.dtype, size, -1, step)
    return (call.op, call.dtype, size, call.root, step)


def forms(calls: Mapping[int, Collective]) -> dict[int, Form]:
    """By rank. Where one of the calls takes any size, as `all_gather` into a list does, no size is compared."""
    have_size = not any(call.takes_any_size for call in calls.values())
    return {rank: form(call, have_size) for rank, call in calls.items()}


class CallLedger:
    """All places that not every member has entered yet. The others agreed, and are forgotten."""

    def __init__(self, members: Callable[[int], Sequence[int]]) -> None:
        self.members = members
        self.open: dict[int, dict[int, dict[int, Collective]]] = {}
        """By group and number: the calls by rank."""
        self.mismatch: tuple[int, int] | None = None
        """The first position at which two different calls were observed."""

    def add(self, rank: int, call: Collective) -> None:
        by_seq = self.open.setdefault(call.group, {})
        calls = by_seq.setdefault(call.seq, {})
        first = next(iter(calls), rank)
        calls[rank] = call
        if self.mismatch is None and first != rank:
            both = forms({first: calls[first], rank: call})
            if both[first] != both[rank]:
                self.mismatch = (call.group, call.seq)
        if len(calls) == len(self.members(call.group)) and self.mismatch is None:
            self._close(by_seq, call.seq)

    def _close(self, by_seq: dict[int, dict[int, Collective]], seq: int) -> None:
        """A rank that entered this position has entered all earlier ones, even where no event reported it."""
        del by_seq[seq]
        while by_seq and (oldest := next(iter(by_seq))) < seq:
            del by_seq[oldest]

    def close_complete(self, group: int) -> None:
        """Forgets what turns out to be complete once the group's members are known."""
        places, size = self.open.get(group, {}), len(self.members(group))
        for seq in [seq for seq, calls in places.items() if len(calls) == size]:
            if self.mismatch is None and seq in places:
                self._close(places, seq)

    def open_calls(self, rank: int) -> list[Collective]:
        """The calls of this rank, of any group's, in places that lack a member's call; oldest first."""
        calls = [calls[rank] for by_seq in self.open.values() for calls in by_seq.values() if rank in calls]
        return sorted(calls, key=lambda call: (call.step, call.seq))

    def calls(self, group: int, seq: int) -> dict[int, Collective]:
        """The calls of a place that is still open; empty for one that all ranks have entered, or none."""
        return self.open.get(group, {}).get(seq, {})


class StepMark:
    """The calls of one rank in one step, in order."""

    __slots__ = ("calls", "opening", "opens", "run", "stage", "step")
    MAX_CALLS = 256

    def __init__(self, stage: str, run: int, step: int, opens: bool) -> None:
        self.stage, self.run, self.step = stage, run, step
        self.calls: list[tuple[int, str, str, int, int]] = []
        self.opening = 0
        """How many of the calls belong to the layout's beginning, which no other step has."""
        self.opens = opens and stage in STEPPED

    def add(self, call: Collective) -> None:
        self.opens = self.opens and call.op in OPENING
        if len(self.calls) < self.MAX_CALLS:
            self.opening += self.opens
            self.calls.append((call.group, call.op, call.dtype, call.common_size, call.root))

    @property
    def regular_calls(self) -> list[tuple[int, str, str, int, int]]:
        """What every step of the run should have."""
        return self.calls[self.opening :]


class Trace:
    """The last few steps of one rank. Steps that count upwards in one stage are one run: one layout."""

    __slots__ = ("deviated", "last", "steps")
    KEPT_STEPS = 4

    def __init__(self) -> None:
        self.steps: list[StepMark] = []
        self.last: Collective | None = None
        self.deviated = False
        """Whether a run that is over had a step unlike its others: what it left out may be missed only later."""

    def add(self, call: Collective) -> None:
        self.last = call
        now = self.steps[-1] if self.steps else None
        if now is None or now.step != call.step or now.stage != call.stage:
            now = self._begin(now, call)
        now.add(call)

    def _begin(self, before: StepMark | None, call: Collective) -> StepMark:
        if before is None or before.stage != call.stage:
            step = StepMark(call.stage, 0, call.step, opens=True)
        else:
            anew = call.step < before.step
            step = StepMark(call.stage, before.run + anew, call.step, opens=anew)
        if before is not None and (before.stage, before.run) != (step.stage, step.run):
            self.deviated |= before.stage in STEPPED and _steps_differ(self._last_run())
        self.steps = [*self.steps[1 - self.KEPT_STEPS :], step]
        return step

    def _last_run(self) -> list[StepMark]:
        """The steps of the run that the last one belongs to."""
        return [step for step in self.steps if (step.stage, step.run) == (self.steps[-1].stage, self.steps[-1].run)]

    @property
    def progress(self) -> tuple[int, int, bool]:
        """Stage, run, and whether the rank is through with the loop over its steps."""
        if not self.last:
            return (0, 0, False)
        return (
            STAGES.index(self.last.stage),
            self.steps[-1].run,
            self.last.stage in STEPPED and self.last.op == "barrier",
        )

    @property
    def last_is_usual(self) -> bool:
        """Whether the last call is one that each of the last steps of the run had, wherever in it."""
        if self.last is None:
            return False
        call = self.steps[-1].calls[-1:]
        earlier = self._last_run()[:-1]
        return bool(earlier) and all(call[0] in step.calls for step in earlier if call)

    def deviates(self) -> bool:
        """Whether one of the last steps, or one of a run before, departs from the rank's own others of the same run."""
        same = self._last_run() if self.steps else []
        if self.deviated or len(same) < 2:
            return self.deviated
        if same[-1].step != same[-2].step + 1 or _steps_differ(same[:-1]):
            return True
        habit, now = same[0].regular_calls, same[-1].regular_calls
        over = self.last is not None and self.last.op == "barrier" and now[:-1] == habit  # the end of the stage
        return not over and not _starts_with(habit, now)


def _steps_differ(steps: Sequence[StepMark]) -> bool:
    """Whether steps of one run, all of them over, differ in their calls, or one is missing between them."""
    if any(after.step != before.step + 1 for before, after in pairwise(steps)):
        return True
    calls = [step.regular_calls for step in steps]
    if len(calls) > 1 and calls[-1] and calls[-1][-1][1] == "barrier":  # the end of the stage
        calls[-1] = calls[-1][:-1]
    return any(others != calls[0] for others in calls[1:])


def _starts_with(sequence: Sequence[object], part: Sequence[object]) -> bool:
    return len(part) <= len(sequence) and list(sequence[: len(part)]) == list(part)


def same_call(trace: Trace, other: Trace, members: Callable[[int], Sequence[int]]) -> bool:
    """Whether two ranks made the same calls so far in the steps that both remember, each in groups of its own."""
    theirs = {(step.stage, step.run, step.step): step for step in other.steps}
    pairs = [(step, theirs[key]) for step in trace.steps if (key := (step.stage, step.run, step.step)) in theirs]
    return bool(pairs) and all(
        _is_consistent(
            _parts(mine, members), mine is not trace.steps[-1], _parts(its, members), its is not other.steps[-1]
        )
        for mine, its in pairs
    )


def goes_beyond(trace: Trace, other: Trace, members: Callable[[int], Sequence[int]]) -> bool:
    """Whether another rank has made the same calls as this one, each in groups of its own, and at least one more."""
    last = trace.steps[-1]
    its = next(
        (step for step in other.steps if (step.stage, step.run, step.step) == (last.stage, last.run, last.step)), last
    )
    return (
        its is not last
        and same_call(trace, other, members)
        and (its is not other.steps[-1] or len(its.calls) > len(last.calls))
    )


def _parts(step: StepMark, members: Callable[[int], Sequence[int]]) -> list[tuple[object, ...]]:
    """The calls without the groups' numbers: with their sizes, and the root's place in them."""
    parts: list[tuple[object, ...]] = []
    for group, op, dtype, numel, root in step.calls:
        ranks = members(group)
        place = ranks.index(root) if root in ranks and op not in PAIRED else -1
        parts.append((len(ranks), op, dtype, numel, place))
    return parts


def _is_consistent(mine: Sequence[object], mine_over: bool, theirs: Sequence[object], theirs_over: bool) -> bool:
    """Of two steps that are over, none may be longer; one that is not over may still grow."""
    may_grow = (_starts_with(mine, theirs) and not theirs_over) or (_starts_with(theirs, mine) and not mine_over)
    return mine == theirs or may_grow
