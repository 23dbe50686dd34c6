"""Rules for ranks that ended or were stopped, from the kernel's state of their processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled, joined
from doctor.smoke.hang.describe import current_collective
from doctor.smoke.hang.state import RunState
from doctor.smoke.model import Failure, FailureKind, Snapshot
from doctor.smoke.programs.secondary_errors import gave_up_waiting, timed_out_number

MAX_UNOBSERVED = 0.12
"""Seconds for which a rank may have been stopped before the first snapshot that shows it."""
NO_CAUSE_SECONDS = 1.0
"""Seconds that ranks may be dead of another's end without that other one being known."""
LONGEST_ERROR = 200
PAUSED = {"T": "stopped by a signal", "t": "held by a debugger", "F": "frozen by its cgroup"}
"""By the letters of processes that do not run until another one lets them: what is done to them."""
ENDED_WELL = "exit status 0"
ABORTED = "signal 6"
SENT = "Memory did not run out on the host of rank {0}, by the kernel's count: another process sent it signal 9."


class ExitRule:
    """The first to end is not always the cause; the ones that a broken connection ended never are."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.finished: tuple[int, ...] = ()
        """Members of the collective in which a rank aborted that are out of it."""
        self._since: float | None = None

    def evaluate(self, state: RunState) -> Failure | None:
        dead = {rank: snap for rank, snap in state.snaps.items() if snap.dead and too_early(snap)}
        if not dead:
            return None
        self._since = state.now if self._since is None else self._since
        waited = state.now - self._since
        if waited < self.grace:
            return None
        causes = _causes(state, {rank: snap for rank, snap in dead.items() if not snap.secondary}, dead)
        if not causes:
            return _broken_connection(state, dead) if waited >= NO_CAUSE_SECONDS else None
        first = next((snap for _, snap in sorted(causes.items()) if snap.dead != ENDED_WELL), None)
        about = state.awaited_collective(causes)
        if first is not None and first.dead == ABORTED and first.state == "collective":
            if waited < NO_CAUSE_SECONDS:
                return None  # a call of another rank that does not fit may be known only with its next snapshot
            # One that has gone on already may wait for it in a later collective; where it aborted tells more.
            self.finished = state.finished_members(first.group, first.seq)
            complete = not state.absent_members(first.group, first.seq)
            about = current_collective(first) if self.finished or (complete and about is None) else about
        if first is None:
            kind = _kind(next(iter(causes.values())))
            kind = "left" if kind == "dead" else kind
            return state.build_failure(kind, causes, about=about, text="ended with exit status 0 before the others")
        text = filled("{0}: {1}", first.dead, first.error) if first.error else first.dead
        evidence = tuple(
            filled("Rank {0} was killed for memory." if snap.oom else SENT, rank)
            for rank, snap in sorted(causes.items())
            if snap.oom is not None
        )
        return state.build_failure(_kind(first), causes, about=about, text=text, evidence=evidence)

    @property
    def pending(self) -> bool:
        """A rank has ended, and the culprit is not decided yet."""
        return self._since is not None


def too_early(snap: Snapshot) -> bool:
    """Whether this end is news. Connections that break in the teardown are those of ranks that had finished."""
    if snap.dead == ENDED_WELL:
        return snap.state != "done"
    return not (snap.secondary and snap.stage == "teardown")


def _kind(snap: Snapshot) -> FailureKind:
    if not snap.dead.startswith("signal"):
        if snap.stage == "start":
            return "not-started"
        if snap.stage == "rendezvous":
            return "never-joined"
    return "dead"


def _causes(state: RunState, primary: Mapping[int, Snapshot], dead: Mapping[int, Snapshot]) -> dict[int, Snapshot]:
    """Without those that waited for a dead one when they ended, and without aborts where something else is known."""
    waited = {
        rank
        for rank, snap in primary.items()
        if snap.state == "collective" and any(other in dead for other in state.absent_members(snap.group, snap.seq))
    }
    free = {rank: snap for rank, snap in primary.items() if rank not in waited} or dict(primary)
    return {rank: snap for rank, snap in free.items() if snap.dead != ABORTED} or free


def _broken_connection(state: RunState, dead: Mapping[int, Snapshot]) -> Failure:
    text = next((snap.error for _, snap in sorted(dead.items()) if snap.error), "")
    if all(snap.stage in ("start", "rendezvous") for snap in dead.values()):
        # They waited for a rank that is late, which is no fault: the ranks that gave up name no culprit.
        return state.build_failure(
            "never-joined", (), certainty="timeout", text=filled("others gave up waiting: {0}", text)
        )
    gave_up = next((snap.error for snap in dead.values() if gave_up_waiting(snap.error)), "")
    if gave_up and all(snap.state != "collective" for snap in dead.values()):
        return _unseen_collective(state, gave_up)
    why = "Every error is of the kind that follows from another rank's end, and no such rank is known."
    return state.build_failure("network", (), certainty="evidence", text=text, evidence=(why,))


def _unseen_collective(state: RunState, error: str) -> Failure:
    """Ranks gave up waiting, and the collective was within a compiled graph: who did not come is not known."""
    failed = [rank for rank, snap in sorted(state.snaps.items()) if snap.dead and snap.error]
    others = [rank for rank in sorted(state.snaps) if rank not in failed]
    evidence = [filled("Without an error of their own: {0}", rank_names(others))] if others else []
    if timed_out_number(error):
        evidence.append("A kernel that does not end on the device of one rank looks the same.")
    evidence.append(error[:LONGEST_ERROR])
    text = filled("{0} gave up waiting for another rank", rank_names(failed))
    return state.build_failure("network", (), certainty="evidence", text=text, evidence=tuple(evidence))


def pause(letters: Collection[str]) -> tuple[FailureKind, str]:
    """The failure of processes in these states, and in words what is done to them."""
    text = joined("; ", (PAUSED[letter] for letter in sorted(letters)))
    return "frozen" if set(letters) == {"F"} else "stopped", text


class StoppedRule:
    """SIGSTOP, a debugger, the cgroup freezer: who is stopped is late, and may go on."""

    def __init__(self, limit: float) -> None:
        """``limit``: seconds that a process may be stopped."""
        self._limit = limit
        self._last: dict[int, Snapshot] = {}
        self._since: dict[int, float] = {}
        """Of each stopped rank: the age at which it was awake for all that we know."""
        self.stops: dict[int, float] = {}
        """By rank that is stopped: for how many seconds."""

    def evaluate(self, state: RunState, late: float = 0.0, *, gave_up: bool = False) -> Failure | None:
        """``late``: seconds that agents waited for a CPU, and so did who would let the process go on. ``gave_up``:
        others have given up waiting: it was stopped for most of that time.
        """
        self.stops = {}
        for snap in state.quiet:
            if snap.process in PAUSED:
                last = self._last.get(snap.rank)
                if last is None or last.stamp != snap.stamp:
                    self._since[snap.rank] = max(0.0, snap.age - MAX_UNOBSERVED)
                elif last.process not in PAUSED:
                    self._since[snap.rank] = max(last.age, snap.age - MAX_UNOBSERVED)
                self.stops[snap.rank] = snap.age - self._since[snap.rank]
            self._last[snap.rank] = snap
        limit = self._limit / 2 if gave_up else self._limit + late
        stops = {rank: seconds for rank, seconds in self.stops.items() if seconds > limit}
        if not stops:
            return None
        kind, text = pause({state.snaps[rank].process for rank in stops})
        failure = state.build_failure(kind, stops, about=state.awaited_collective(stops), text=text)
        return msgspec.structs.replace(failure, seconds=round(max(stops.values()), 3))  # not since its last sign
