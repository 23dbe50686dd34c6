"""Names the rank that stopped a run, from outside its collectives. Pure: no clock, no input or output.

The supervisor feeds it what it has of every rank. The order of the rules matters, as an earlier one explains what a
later one would misread: gloo aborts innocent ranks over the wrong shape of another, and a rank that ended leaves all
others waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.analysis.majority import split
from doctor.engine.texts import filled
from doctor.smoke.hang.describe import current_collective
from doctor.smoke.hang.exits import ExitRule, StoppedRule
from doctor.smoke.hang.stalls import (
    CollectiveId,
    Resend,
    TransferRule,
    Wait,
    absent_failure,
    blocked_collectives,
    find_deadlock,
    idle_failure,
    is_apart,
    left_failure,
    missed_failure,
    stuck_failure,
)
from doctor.smoke.hang.state import AdaptiveLimits, RunState
from doctor.smoke.hang.traces import STEPPED, forms
from doctor.smoke.model import MOST_CALLS, Collective, Failure, FailureKind, RankPause, Snapshot

__all__ = ["Detector", "Resend", "joined_snapshots"]

UNWATCHED_STAGES = frozenset({"start", "rendezvous"})
"""Stages without groups; their deadlines are the supervisor's."""


ANSWER, ARRIVAL = 0.3, 3.0
"""Seconds that the others of a group get to show their side of a mismatch, and those on their way, at most."""
STANDING = 0.5
"""Effective seconds that a circle must have stood still when one of its ranks may get out by itself."""
HABIT = "Rank {0} departs from its own previous step; the others do as before."
MAJORITY = "The others of the group agree."
AHEAD = "It has gone on to another layout or stage while the others are still in this one."
PEERS = "The other side calls the same as ranks of other groups."
AMBIGUOUS = "Ambiguous: either side may be the wrong one."


class MismatchRule:
    """Two ranks called different things in the same place of a group's sequence."""

    def __init__(self) -> None:
        self._since: float | None = None

    def evaluate(self, state: RunState) -> Failure | None:
        if state.ledger.mismatch is None:
            return None
        group, seq = state.ledger.mismatch
        calls = state.ledger.calls(group, seq)
        self._since = state.now if self._since is None else self._since
        deviating = state.deviating_ranks(calls)
        if not _strays(state, deviating) and self._may_learn_more(state, state.now - self._since):
            return None
        culprits, why = blame(state, calls, deviating)
        others = sorted(calls.keys() - set(culprits))
        kind: FailureKind = "left" if sorted(culprits) == state.ranks_ahead(calls) else "mismatch"
        sides = {rank: state.describe_call(call) for rank, call in sorted(calls.items())}
        return state.build_failure(kind, culprits, about=calls[(others or culprits)[0]], sides=sides, evidence=(why,))

    def _may_learn_more(self, state: RunState, waited: float) -> bool:
        """Whether the call of another member may still arrive and decide which rank is wrong."""
        assert state.ledger.mismatch
        if not state.members(state.ledger.mismatch[0]):
            return waited < ANSWER
        return _may_come(state, state.absent_members(*state.ledger.mismatch), waited)


def _may_come(state: RunState, absent: Sequence[int], waited: float) -> bool:
    """Whether ranks may still show their side: those that are on their way have more time."""
    snaps = [state.snaps[rank] for rank in absent if rank in state.snaps]
    # They seem to work, or to wait for a CPU.
    coming = any(snap.state in ("input", "compute") and not snap.dead and snap.effective < ANSWER for snap in snaps)
    return bool(absent) and waited < (ARRIVAL if coming else ANSWER)


def blame(state: RunState, calls: Mapping[int, Collective], deviating: Sequence[int]) -> tuple[Sequence[int], str]:
    """Who made the wrong call, and how that is known."""
    if _strays(state, deviating):
        return deviating, filled(HABIT, deviating[0])
    by_rank = forms(calls)
    parts = split(calls, by_rank.__getitem__)
    if parts and parts.majority:
        return sorted(parts.differing), MAJORITY
    return blame_without_majority(state, list(calls))


def _strays(state: RunState, deviating: Sequence[int]) -> bool:
    """Whether one rank alone departs from its habit, and that says that it is wrong.

    In a program whose steps may differ, a call that a rank never made before may be one that the others left out.
    """
    if len(deviating) != 1:
        return False
    trace = state.traces[deviating[0]]
    return trace.last is not None and (trace.last.stage in STEPPED or trace.last_is_usual)


def blame_without_majority(state: RunState, ranks: Sequence[int]) -> tuple[Sequence[int], str]:
    """The culprit ranks where neither the earlier calls nor a majority decide."""
    if ahead := state.ranks_ahead(ranks):
        return ahead, AHEAD
    if isolated := state.isolated_ranks(ranks):
        return isolated, PEERS
    return ranks, AMBIGUOUS


class DeadlockRule:
    """Ranks that wait for each other in different collectives."""

    def __init__(self) -> None:
        self._last_cycle: dict[int, Snapshot] = {}
        self._since: float | None = None

    def evaluate(self, state: RunState, waits: Mapping[CollectiveId, Wait]) -> Failure | None:
        cycle = find_deadlock(waits, state.snaps, sure=True) or self._standing_cycle(state, waits)
        if not cycle:
            self._since = None
            return None
        culprits, why = _blame_of_cycle(state, waits, cycle)
        self._since = state.now if self._since is None else self._since
        if why == AMBIGUOUS and _may_be_decided(state, waits, cycle, state.now - self._since):
            return None
        others = [rank for rank in cycle if rank not in culprits]
        kind: FailureKind = "left" if sorted(culprits) == state.ranks_ahead(cycle) else "order"
        about = current_collective(state.snaps[(others or culprits)[0]])
        return state.build_failure(kind, culprits, about=about, evidence=(why,))

    def _standing_cycle(self, state: RunState, waits: Mapping[CollectiveId, Wait]) -> list[int]:
        """A cycle that a rank could leave counts only after two snapshots in which no rank left it."""
        cycle = find_deadlock(waits, state.snaps, sure=False)
        snaps = {rank: state.snaps[rank] for rank in cycle}
        held = {rank: snap for rank, snap in self._last_cycle.items() if rank in snaps}
        self._last_cycle = snaps | {rank: snap for rank, snap in held.items() if snap.stamp == snaps[rank].stamp}
        again = all(
            rank in held and held[rank].stamp == s.stamp and held[rank].age < s.age for rank, s in snaps.items()
        )
        return cycle if again and all(snap.effective > STANDING for snap in snaps.values()) else []


def _may_be_decided(state: RunState, waits: Mapping[CollectiveId, Wait], cycle: Sequence[int], waited: float) -> bool:
    """Whether other members of these groups may still enter one of the collectives, and so be a majority."""
    sides = {where: wait for where, wait in waits.items() if not set(cycle).isdisjoint(wait.blocked_ranks)}
    blocked = {rank for wait in sides.values() for rank in wait.blocked_ranks}
    members = {rank for group, _ in sides for rank in state.members(group)}
    absent = [rank for rank in members - blocked if rank in state.snaps and not state.snaps[rank].dead]
    return _may_come(state, absent, waited)


def _blame_of_cycle(
    state: RunState, waits: Mapping[CollectiveId, Wait], cycle: Sequence[int]
) -> tuple[Sequence[int], str]:
    """Who entered another collective than he should have, and how that is known.

    Ranks beside those of the cycle, that wait in the same collectives, say what the usual way on is: for what most
    members of a group newly do together no single one of them is to blame; and between groups of the same members the
    majority decides, as it does within one.
    """
    sides = {
        where: wait.blocked_ranks for where, wait in waits.items() if not set(cycle).isdisjoint(wait.blocked_ranks)
    }
    deviating = state.deviating_ranks(rank for ranks in sides.values() for rank in ranks)
    if _strays(state, deviating) and deviating[0] in cycle:
        return deviating, filled(HABIT, deviating[0])
    members = {group: sorted(state.members(group)) for group, _ in sides}
    alike = len(set(map(tuple, members.values()))) == 1
    for (group, _), ranks in sides.items():
        together = len(deviating) > 1 and set(deviating) <= set(ranks)
        if (together or alike) and 2 * len(ranks) > len(members[group]):
            return sorted(set(cycle) - set(ranks)), MAJORITY
    return blame_without_majority(state, cycle)


def joined_snapshots(older: Snapshot | None, newer: Snapshot, unread: bool) -> Snapshot:
    """The newer one with what it lacks as it did not change; ``unread``: the older one's calls were not fed yet."""
    if older is None:
        return newer
    calls = (older.calls + newer.calls)[-2 * MOST_CALLS :] if unread and older.calls else newer.calls
    return msgspec.structs.replace(newer, calls=calls, entered={**older.entered, **newer.entered})


class Detector:
    """Give it the groups with `learn_group`, and the ranks' newest snapshots with `feed`, until a trouble comes out."""

    def __init__(
        self,
        world: int,
        floor: float = 1.0,
        factor: float = 10.0,
        network_floor: float = 3.0,
        grace: float = 0.35,
        *,
        warmup: float = 0.0,
        hosts: Sequence[str] = (),
        stopped: float = 0.0,
    ) -> None:
        """`floor`, `network_floor`, `factor`: the least limits, and how many normal times make one.

        `network_floor` is what a pause within a call may take where nothing shows a broken link: a garbage collection,
        a write to a slow disk. `warmup`: the least for a first step. `grace`: seconds for a death's cause to come in.
        `hosts`: by rank, to name links. `stopped`: what a rank may be stopped for; 0: as the least limit.
        """
        self._state = RunState(world, AdaptiveLimits(floor, network_floor, factor, warmup))
        self._mismatch_rule, self._deadlock_rule = MismatchRule(), DeadlockRule()
        self._exit_rule, self._stopped_rule = ExitRule(grace), StoppedRule(stopped or floor)
        self.transfer_rule = TransferRule(hosts)

    @property
    def groups(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        return self._state.groups

    def members(self, group: int) -> Sequence[int]:
        """The ranks of a process group, or the two of a message; empty for a group that is not known."""
        return self._state.members(group)

    @property
    def finished(self) -> tuple[int, ...]:
        """Ranks that are out of the collective which a failure is about that others are in: stuck, or aborted."""
        return self.transfer_rule.finished or self._exit_rule.finished

    def learn_group(self, gid: int, name: str, ranks: Iterable[int]) -> None:
        self.groups[gid] = (name, tuple(ranks))
        self._state.ledger.close_complete(gid)

    def open_call(self, rank: int) -> Collective | None:
        """The first collective that this rank has entered and another of its members has not, of those fed so far."""
        absent = self._state.absent_members
        return next((call for call in self._state.ledger.open_calls(rank) if absent(call.group, call.seq)), None)

    def feed(
        self, snapshots: Mapping[int, Snapshot], now: float, late: float = 0.0, evidence: Sequence[Resend] = ()
    ) -> Failure | None:
        """Evaluates all ranks once. The calls of a Snapshot object are read once, however often it is passed."""
        state = self._state
        state.update(snapshots, now)
        if state.ledger.mismatch:
            return self._mismatch_rule.evaluate(state)
        if (exit_failure := self._exit_rule.evaluate(state)) or self._exit_rule.pending:
            is_known = exit_failure is None or exit_failure.culprit_ranks
            return exit_failure if is_known else self._who_left() or exit_failure
        return self._stopped_rule.evaluate(state, late) or self._hang_failure(late, evidence)

    def wait_on(self, failure: Failure) -> bool:
        """Whether what stands still has the limit of all that is late, and had it not: only time speaks for it."""
        is_alive = not any(snap.dead for snap in self._state.snaps.values())
        return is_alive and failure.may_pass and self.transfer_rule.wait_on(self._state.limits.floor)

    def overdue(self, seconds: float) -> Failure | None:
        """Ranks at their own work that others have waited for longer than so many seconds of the clock.

        Of what was fed last. It is no verdict: a rank may work for hours, or wait for a CPU.
        """
        if self._state.ledger.mismatch or self._exit_rule.pending:
            return None
        snaps = self._state.snaps
        late = {
            rank: seconds
            for wait in self._waits().values()
            if max(snaps[rank].age for rank in wait.blocked_ranks) > seconds
            for rank in wait.absent_ranks
            if rank in snaps and is_apart(snaps[rank]) and snaps[rank].age > seconds
        }
        return stuck_failure(self._state, late) if late else None

    def pauses(self, seconds: float) -> dict[int, RankPause]:
        """By rank that others have waited for, or that is stopped, for longer than this: what is known of it."""
        late, snaps = self.overdue(seconds), self._state.snaps
        waited = {rank: RankPause(snaps[rank].effective) for rank in late.culprit_ranks} if late else {}
        stops = self._stopped_rule.stops.items()
        return waited | {rank: RankPause(stopped, snaps[rank].process) for rank, stopped in stops if stopped > seconds}

    def apart(self, seconds: float) -> Failure | None:
        """As `overdue`, of all living ranks, where none waits in a collective."""
        active = [snap for snap in self._state.snaps.values() if snap.state != "done" and not snap.dead]
        if not active or not all(is_apart(snap) and snap.age > seconds for snap in active):
            return None
        return stuck_failure(self._state, {snap.rank: seconds for snap in active})

    def _waits(self) -> dict[CollectiveId, Wait]:
        blocked = (s for s in self._state.quiet if s.state == "collective" and s.stage not in UNWATCHED_STAGES)
        return blocked_collectives(blocked, self._state.absent_members)

    def _who_left(self) -> Failure | None:
        """Ranks that were done, stopped or elsewhere when others still waited for them, whose errors follow from it."""
        state = self._state
        stopped = self._stopped_rule.evaluate(state, gave_up=True)
        ended = (snap for snap in state.snaps.values() if snap.dead and snap.state == "collective")
        waits = blocked_collectives(ended, state.absent_members)
        return left_failure(state, waits) or stopped or missed_failure(state, waits)

    def _hang_failure(self, late: float, evidence: Sequence[Resend]) -> Failure | None:
        state = self._state
        waits = self._waits()
        # Whoever is stopped may be within a collective.
        stuck = None if self._stopped_rule.stops else self.transfer_rule.evaluate(state, waits, late, evidence)
        if not waits:
            return idle_failure(state, late)
        return (
            self._deadlock_rule.evaluate(state, waits)
            or left_failure(state, waits)
            or absent_failure(state, waits, late)
            or stuck
        )
