"""Rules about ranks that wait for one that does not come, or for bytes that do not: over a wait-for graph.

Its nodes are places (group, number); a rank that is blocked in a place leads to the places in which the ranks are
blocked that have not entered it. So 500 ranks that wait for one are one node, not 500.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.analysis.collectives.waits import ONE_WAY, find_circle, must_wait
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.smoke.hang.describe import current_collective
from doctor.smoke.hang.exits import PAUSED, pause
from doctor.smoke.hang.network_evidence import MIN_RETRANSMITS
from doctor.smoke.hang.standstill import occupations
from doctor.smoke.hang.state import RunState
from doctor.smoke.hang.traces import STEPPED
from doctor.smoke.model import Failure, FailureKind, Snapshot
from doctor.smoke.programs.secondary_errors import gave_up_waiting, timed_out_number

LEFT_SECONDS = 0.3
"""Seconds after a rank's end within which its last calls may still arrive."""
EVIDENT = 0.5
"""Seconds after which a stuck transfer counts when a socket of it sends again and again."""
LOCKED, LOCKED_SECONDS = 2.0, 60.0
"""Floors, and least seconds, where all ranks wait for locks of files."""
_IN_LOCK = re.compile(r"(?:locks|flock|posix)_lock_inode_wait|fcntl_setlk")
"""Functions of the kernel in which a process does so."""
OTHER_GROUPS = "The ranks form different groups at one place: every rank calls new_group for all groups, in one order."
CollectiveId = tuple[int, int]
"""Group and number."""


class Wait(NamedTuple):
    """One place that ranks are blocked in."""

    blocked_ranks: list[int]
    absent_ranks: list[int]
    """Members that have not entered it."""


class Resend(NamedTuple):
    """A connection of a rank on which the kernel sends again what was not acknowledged."""

    rank: int
    peer: str
    """The other host's name, or the address where it is not known."""
    unacked: int
    retransmits: int


def left_failure(state: RunState, waits: Mapping[CollectiveId, Wait]) -> Failure | None:
    """Ranks that are done while others wait for them; or, if most are done, those whose call no other rank makes."""
    for wait in waits.values():
        absent = [state.snaps[rank] for rank in wait.absent_ranks if rank in state.snaps]
        left_ranks = [snap.rank for snap in absent if snap.state == "done" and (snap.dead or snap.age > LEFT_SECONDS)]
        if not left_ranks:
            continue
        about = current_collective(state.snaps[wait.blocked_ranks[0]])
        traces = {rank: state.traces[rank] for rank in state.deviating_ranks(wait.blocked_ranks)}
        # Their last call is one too many; that is unknown in a user's program, whose steps differ.
        surplus = [
            each for each in traces.values() if each.last and each.last.stage in STEPPED and not each.last_is_usual
        ]
        if len(left_ranks) > len(wait.blocked_ranks) or (surplus and len(left_ranks) == len(wait.blocked_ranks)):
            why = "The other ranks of the group are done: no other rank makes this call."
            return state.build_failure("mismatch", wait.blocked_ranks, about=about, evidence=(why,))
        return state.build_failure("left", left_ranks, about=about, text="left the loop or ended normally")
    return None


def missed_failure(state: RunState, waits: Mapping[CollectiveId, Wait]) -> Failure | None:
    """Ranks outside of any collective that others waited for until they gave up.

    What ended them comes after it: a launcher ends those that are left. Where a broken connection ended the others, a
    rank that has not come yet may only be on its way, and no rank is named; nor is one that could not run for most of
    that time, as where all hosts are short of CPUs: to be late is no fault.
    """
    missed, starved = set[int](), set[int]()
    evidence: list[str] = []
    for wait in waits.values():
        waiting = [state.snaps[rank] for rank in wait.blocked_ranks]
        gave_up = [
            filled("Rank {0} gave up waiting: {1}", snap.rank, snap.error)
            for snap in waiting
            if gave_up_waiting(snap.error)
        ]
        absent = [state.snaps[rank] for rank in wait.absent_ranks if rank in state.snaps]
        # At their own work, and not ended but by others.
        working = [snap for snap in absent if snap.state in ("input", "compute")]
        late = [snap.rank for snap in working if not snap.dead or (snap.secondary and not snap.error)]
        given_up = max(timed_out_number(snap.error) for snap in waiting)
        if given_up:  # the process ends a while after that, and may have come to a later call meanwhile
            late = [rank for rank in late if state.entered(rank, waiting[0].group) < given_up]
        if gave_up and late:
            starved.update(rank for rank in late if state.snaps[rank].effective < state.snaps[rank].age / 2)
            missed.update(late)
            evidence += gave_up
    missed -= starved
    if not missed:
        return _out_of_time(state, starved, evidence) if starved else None
    worst = max((state.snaps[rank] for rank in missed), key=lambda snap: snap.effective)
    return state.build_failure(
        _kind_of_stall(worst),
        missed,
        about=state.awaited_collective(missed),
        certainty="evidence",
        text="the others gave up waiting for it",
        evidence=tuple(evidence[:1]),
    )


def _out_of_time(state: RunState, starved: set[int], evidence: Sequence[str]) -> Failure:
    """Ranks gave up waiting for others that could not run: nothing went wrong but that the time was not enough."""
    worst = max((state.snaps[rank] for rank in starved), key=lambda snap: snap.age)
    text = filled(
        "others gave up waiting for {0}, which could run for {1} of {2} s",
        rank_names(starved),
        f"{worst.effective:.0f}",
        f"{worst.age:.0f}",
    )
    about = state.awaited_collective(starved)
    return state.build_failure("budget", (), about=about, certainty="evidence", text=text, evidence=tuple(evidence[:1]))


def is_apart(snap: Snapshot) -> bool:
    """Whether a living rank is outside of any collective."""
    return snap.state in ("input", "compute") and not snap.dead


def absent_failure(state: RunState, waits: Mapping[CollectiveId, Wait], late: float) -> Failure | None:
    """Ranks outside of any collective that others wait for, beyond what is normal."""
    needed: dict[int, float] = {}
    for wait in waits.values():
        took = max((state.limits.longest_phase.get(rank, 0.0) for rank in wait.blocked_ranks), default=0.0)
        needed.update((rank, max(took, needed.get(rank, 0.0))) for rank in wait.absent_ranks)
    limits = {}
    for rank, took in needed.items():
        snap = state.snaps.get(rank)
        if snap is not None and is_apart(snap):
            limit = state.limits.absence_limit(snap, took) + late
            if snap.effective > limit:
                limits[rank] = limit
    return stuck_failure(state, limits) if limits else None


def idle_failure(state: RunState, late: float) -> Failure | None:
    """Ranks that keep no other waiting in a collective: the last that is not done, or all in loaders, or in locks."""
    active = [snap for snap in state.snaps.values() if snap.state != "done" and not snap.dead]
    last = len(active) == 1 < state.world == len(state.snaps)
    loading = bool(active) and all(snap.state == "input" for snap in active)
    locked = locked_out(active) and len(state.snaps) == state.world
    if not loading and not locked and not (last and active[0].state == "compute"):
        return None
    least = max(LOCKED * state.limits.floor, LOCKED_SECONDS) if locked else state.limits.floor
    limits = {snap.rank: max(least, state.limits.absence_limit(snap, 0.0)) + late for snap in active}
    if all(snap.effective > limits[snap.rank] for snap in active):
        return stuck_failure(state, limits)
    return None


def locked_out(snaps: Sequence[Snapshot]) -> bool:
    """Whether all of some ranks wait in the kernel for locks of files, outside of collectives."""
    return bool(snaps) and all(snap.state == "compute" and _IN_LOCK.match(snap.waits_for) for snap in snaps)


def stuck_failure(state: RunState, limits: Mapping[int, float]) -> Failure:
    """A stall of these ranks, each with the limit that it has passed, by the one that could run for longest."""
    worst = max((state.snaps[rank] for rank in limits), key=lambda snap: snap.effective)
    limit = round(limits[worst.rank], 3)
    kind, text = pause({worst.process}) if worst.process in PAUSED else (_kind_of_stall(worst), "")
    about = state.awaited_collective(limits)
    return state.build_failure(kind, limits, about=about, certainty="timeout", limit=limit, text=text)


def _kind_of_stall(snap: Snapshot) -> FailureKind:
    if snap.state == "input":
        return "input"
    return "busy" if snap.cpu > 0.5 * snap.effective else "blocked"


class TransferRule:
    """Collectives that all ranks have entered and no rank leaves."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.finished: tuple[int, ...] = ()
        """Members of the collective that stands still which are out of it all the same."""
        self.occupied: dict[int, str] = {}
        """By rank that is in it: what its main thread does, as `occupations` has it."""
        self._standing, self._excused = set[CollectiveId](), dict[CollectiveId, float]()

    def wait_on(self, seconds: float) -> bool:
        """The collectives that stand still have so much time. Whether they did not have it yet."""
        fresh = [where for where in self._standing if self._excused.get(where, 0.0) < seconds]
        self._excused.update(dict.fromkeys(fresh, seconds))
        return bool(fresh)

    def evaluate(
        self, state: RunState, waits: Mapping[CollectiveId, Wait], late: float, evidence: Sequence[Resend]
    ) -> Failure | None:
        complete = [where for where, wait in waits.items() if not wait.absent_ranks and state.members(where[0])]
        state.complete_since = {where: self._complete_since(state, where, waits[where]) for where in complete}
        standing = {where: self._stalled_seconds(state, where, waits[where]) for where in complete}
        for where, age in sorted(standing.items(), key=lambda item: -item[1]):
            snap = state.snaps[waits[where].blocked_ranks[0]]
            resends = [
                e
                for e in evidence
                if e.rank in state.members(where[0]) and e.retransmits >= MIN_RETRANSMITS and e.unacked
            ]
            patience = self._excused.get(where, 0.0)
            limit = (EVIDENT if resends else max(state.limits.transfer_limit(snap), patience)) + late
            if age > limit:
                self._standing = set(standing)
                return self._build_failure(state, waits[where], snap, resends, limit)
        return None

    @staticmethod
    def _complete_since(state: RunState, where: CollectiveId, wait: Wait) -> float:
        """When the last rank entered, or when that was first observed if some ranks have left already."""
        since = state.complete_since.get(where, state.now)
        if len(wait.blocked_ranks) < len(state.members(where[0])):
            return since
        return min(since, state.now - min(state.snaps[rank].effective for rank in wait.blocked_ranks))

    @staticmethod
    def _stalled_seconds(state: RunState, where: CollectiveId, wait: Wait) -> float:
        """Effective seconds since the last one came in, or since any of their connections last carried a byte."""
        snaps = [state.snaps[rank] for rank in wait.blocked_ranks]
        idle = [snap.idle for snap in snaps if snap.idle >= 0]
        return min(state.now - state.complete_since[where], *(snap.effective for snap in snaps), *idle)

    def _build_failure(
        self, state: RunState, wait: Wait, snap: Snapshot, resends: Sequence[Resend], limit: float
    ) -> Failure:
        hosts = {(self.hosts[e.rank], e.peer) for e in resends if e.rank < len(self.hosts)}
        self.finished = tuple(
            rank for rank in state.members(snap.group) if rank not in wait.blocked_ranks and not state.snaps[rank].dead
        )
        if snap.op in ONE_WAY and self.finished != (snap.root,):
            self.finished = ()  # it comes to a rank without those that come after it
        self.occupied = occupations([state.snaps[rank] for rank in wait.blocked_ranks])
        forming = {rank: group for group in _rival_groups(state, snap.group) for rank in state.members(group)}
        if forming:
            call = current_collective(snap)
            calls = {rank: msgspec.structs.replace(call, group=group) for rank, group in sorted(forming.items())}
            sides = {rank: state.describe_call(each) for rank, each in calls.items()}
            return state.build_failure("mismatch", forming, about=call, sides=sides, evidence=(OTHER_GROUPS,))
        text = "Rank {0} has {1} bytes on the way to {2} that were sent {3} times."
        evidence = tuple(filled(text, e.rank, e.unacked, e.peer, e.retransmits + 1) for e in sorted(set(resends)))
        return state.build_failure(
            "network",
            {e.rank for e in resends} or wait.blocked_ranks,
            about=current_collective(snap),
            links=tuple(sorted(hosts)),
            certainty="evidence" if resends else "timeout",
            limit=round(limit, 3),
            evidence=evidence,
        )


def _rival_groups(state: RunState, group: int) -> list[int]:
    """The numbers of groups of different ranks, where each is the Nth that its ranks form; empty: there is one Nth."""
    number = state.groups.get(group, ("", ()))[0].partition(" of")[0]
    if not number.startswith("no. "):
        return []
    same = [gid for gid, (name, _) in state.groups.items() if name.partition(" of")[0] == number]
    return same if len(same) > 1 else []


def blocked_collectives(
    blocked: Iterable[Snapshot], find_absent: Callable[[int, int], list[int]]
) -> dict[CollectiveId, Wait]:
    """Every place that one of these ranks is blocked in."""
    waits: dict[CollectiveId, Wait] = {}
    for snap in blocked:
        collective_id = (snap.group, snap.seq)
        if collective_id not in waits:
            waits[collective_id] = Wait([], find_absent(*collective_id))
        waits[collective_id].blocked_ranks.append(snap.rank)
    return waits


def find_deadlock(waits: Mapping[CollectiveId, Wait], snaps: Mapping[int, Snapshot], sure: bool) -> list[int]:
    """Ranks that wait for each other in a circle, in its order; with `sure` only over waits that have no way out."""
    at = {rank: where for where, wait in waits.items() for rank in wait.blocked_ranks}
    edges: dict[CollectiveId, dict[CollectiveId, int]] = {}
    for where, wait in waits.items():
        steps = edges[where] = {}
        for other in wait.absent_ranks:
            if other not in at or at[other] in steps:  # one edge is enough: thousands may be absent
                continue
            blocked = (snaps[rank] for rank in wait.blocked_ranks)
            if sure and not all(must_wait(snap.op, snap.rank, snap.root, other) for snap in blocked):
                continue
            steps[at[other]] = other
    circle = find_circle(edges)
    return [edges[place][following] for place, following in zip(circle, [*circle[1:], *circle[:1]], strict=True)]
