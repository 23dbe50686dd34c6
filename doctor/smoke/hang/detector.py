"""Names the rank that stopped a run, from outside its collectives. Pure: no clock, no input or output.

The supervisor feeds it what it has of every rank. The order of the rules matters, as an earlier one explains what a
later one would misread: gloo aborts innocent ranks over the wrong shape of another, and a rank that ended leaves all
others waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.smoke.hang.adaptive_limits import AdaptiveLimits
from doctor.smoke.hang.exits import ExitRule, StoppedRule
from doctor.smoke.hang.mismatch import DeadlockRule, MismatchRule
from doctor.smoke.hang.stalls import (
    Resend,
    TransferRule,
    absent_failure,
    apart_failure,
    idle_failure,
    left_failure,
    missed_failure,
    overdue_failure,
)
from doctor.smoke.hang.state import RunState
from doctor.smoke.hang.wait_graph import CollectiveId, Wait, blocked_collectives
from doctor.smoke.model import Collective, Failure, Snapshot

__all__ = ["Detector", "Resend", "joined_snapshots"]

UNWATCHED_STAGES = frozenset({"start", "rendezvous"})
"""Stages without groups; their deadlines are the supervisor's."""


def joined_snapshots(older: Snapshot | None, newer: Snapshot) -> Snapshot:
    """The newer snapshot with the calls of both, for an older one that was not fed yet."""
    if older is None or not older.calls:
        return newer
    return msgspec.structs.replace(newer, calls=older.calls + newer.calls)


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
    ) -> None:
        """`floor`, `network_floor`, `factor`: the least limits, and how many normal times make one.

        `network_floor` is what a pause within a call may take where nothing shows a broken link: a garbage collection,
        a write to a slow disk. `warmup`: the least for a first step. `grace`: seconds for a death's cause to come in.
        `hosts`: by rank, to name links.
        """
        self._state = RunState(world, AdaptiveLimits(floor, network_floor, factor, max(warmup, floor)))
        self._mismatch_rule, self._deadlock_rule = MismatchRule(), DeadlockRule()
        self._exit_rule, self._stopped_rule = ExitRule(grace), StoppedRule()
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
        return self._state.ledger.first_open(rank)

    def feed(
        self, snapshots: Mapping[int, Snapshot], now: float, late: float = 0.0, evidence: Sequence[Resend] = ()
    ) -> Failure | None:
        """Evaluates all ranks once. The calls of a Snapshot object are read once, however often it is passed."""
        state = self._state
        state.update(snapshots, now)
        if state.ledger.mismatch:
            return self._mismatch_rule.evaluate(state)
        if (exit_failure := self._exit_rule.evaluate(state)) or self._exit_rule.pending:
            return self._who_left() or exit_failure if exit_failure and exit_failure.kind == "network" else exit_failure
        return self._stopped_rule.evaluate(state, late) or self._hang_failure(late, evidence)

    def overdue(self, seconds: float) -> Failure | None:
        """Ranks at their own work that others have waited for longer than so many seconds of the clock.

        Of what was fed last. It is no verdict: a rank may work for hours, or wait for a CPU.
        """
        if self._state.ledger.mismatch or self._exit_rule.pending:
            return None
        return overdue_failure(self._state, self._waits(), seconds)

    def apart(self, seconds: float) -> Failure | None:
        """As `overdue`, of all living ranks, where none waits in a collective."""
        return apart_failure(self._state, seconds)

    def _waits(self) -> dict[CollectiveId, Wait]:
        """The collectives that quiet ranks wait in."""
        blocked = (s for s in self._state.quiet if s.state == "collective" and s.stage not in UNWATCHED_STAGES)
        return blocked_collectives(blocked, self._state.absent_members)

    def _who_left(self) -> Failure | None:
        """Ranks that were done, or stayed away, when others still waited for them, whose errors follow from it."""
        state = self._state
        ended = (snap for snap in state.snaps.values() if snap.dead and snap.state == "collective")
        waits = blocked_collectives(ended, state.absent_members)
        return left_failure(state, waits) or missed_failure(state, waits)

    def _hang_failure(self, late: float, evidence: Sequence[Resend]) -> Failure | None:
        state = self._state
        waits = self._waits()
        stuck = self.transfer_rule.evaluate(state, waits, late, evidence)
        if not waits:
            return idle_failure(state, late)
        return (
            self._deadlock_rule.evaluate(state, waits)
            or left_failure(state, waits)
            or absent_failure(state, waits, late)
            or stuck
        )
