"""Describes what a rank was doing, for the failure that it is part of. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from doctor.analysis.collectives.waits import FROM_ROOT, PAIRED, ROOTED
from doctor.engine.texts import filled, joined
from doctor.smoke.hang.traces import STEPPED, Trace
from doctor.smoke.model import Collective, Failure, FailureKind, RankPause, SmokePlan, Snapshot
from doctor.smoke.programs.recorder_page import P2P_GROUP_BASE, ends_of

PAUSE, MOST_PAUSES = 2.0, 8
"""Seconds that others wait for a rank, from which on a complete run says so; and of so many ranks at most."""
PROCESS_STATES = {"T": ", stopped", "t": ", stopped", "F": ", frozen"}


def describe_call(call: Collective, group: str) -> str:
    """Such as ``all_reduce #7 (128 x float32, group dp2 [0,2]; step 3)``."""
    details = [f"{call.elements} x {call.dtype}"] if call.dtype else []
    if call.op in PAIRED:
        details.append(f"{('to' if call.op == 'send' else 'from')} rank {call.root}")
        details += [f"tag {tag}"] if (tag := group.partition(" tag ")[2]) else []
    else:
        details += [f"{('from' if call.op in FROM_ROOT else 'to')} rank {call.root}"] if call.op in ROOTED else []
        details.append(filled("group {0}", format_group(group)))
    step = filled("; step {0}", call.step) if call.stage in STEPPED else ""
    return filled("{0} #{1} ({2}{3})", call.op, call.seq, ", ".join(details), step)


def format_group(name: str) -> str:
    """The name of a group with its ranks in brackets: ``tp2 2,3`` becomes ``tp2 [2,3]``."""
    return re.sub(r" (\d+(?:,\d+)*)\Z", r" [\1]", name)


def current_collective(snap: Snapshot) -> Collective:
    """The collective that a rank is in."""
    return Collective(snap.group, snap.seq, snap.op, snap.dtype, snap.numel, snap.root, snap.step, snap.stage)


def describe_state(snap: Snapshot) -> str:
    """The state of a rank, such as ``outside of collectives for 1.20 s, sleeping in nfs_wait``."""
    if snap.dead:
        return filled("ended with {0}", snap.dead)
    place = snap.op if snap.state == "collective" else snap.state
    age = f"{snap.age:.2f}"
    if place == "done":
        text = filled("done for {0} s", age)
    elif place == "compute":  # it may sleep there: what the kernel says of it follows
        text = filled("outside of collectives for {0} s", age)
    else:
        text = filled("in {0} for {1} s", place, age)
    text = joined("", (text, *filter(None, (PROCESS_STATES.get(snap.process),))))
    return text if snap.waits_for in ("", "0") else filled("{0}, sleeping in {1}", text, snap.waits_for)


def pause_sentences(pauses: Mapping[int, RankPause], plan: SmokePlan) -> list[str]:
    """By rank, the longest time that others waited for it: as sentences, in a complete run."""
    text = "The others waited {0} s for rank {1} on {2}, which then went on."
    rows = [(f"{pause.seconds:.0f}", rank, plan.host_of(rank)) for rank, pause in sorted(pauses.items())]
    return [filled(text, *row) for row in rows[:MOST_PAUSES]]


class FailureBuilder:
    """Ranks whose failures have the same fields for every kind."""

    def __init__(self, groups: dict[int, tuple[str, tuple[int, ...]]], world: int) -> None:
        self.groups, self.world = groups, world
        self.snaps: dict[int, Snapshot] = {}
        self.traces: dict[int, Trace] = {}

    def group_name(self, group: int) -> str:
        if group >= P2P_GROUP_BASE:
            source, target, tag = ends_of(group, self.world)
            return f"p2p {source}>{target}" + (f" tag {tag}" if tag else "")
        return self.groups[group][0] if group in self.groups else filled("group {0}", group)

    def describe_call(self, call: Collective) -> str:
        return describe_call(call, self.group_name(call.group))

    def describe_activity(self, rank: int) -> str:
        """One rank's side, for a rank outside of collectives with the last one that it was in."""
        snap, trace = self.snaps[rank], self.traces.get(rank)
        if snap.state == "collective":
            return self.describe_call(current_collective(snap))
        if not trace or not trace.last:
            return "no collective, before its first"
        return filled("no collective, after {0}", self.describe_call(trace.last))

    def build_failure(
        self,
        kind: FailureKind,
        culprits: Iterable[int],
        about: Collective | None = None,
        sides: Mapping[int, str] | None = None,
        **more: Any,
    ) -> Failure:
        """`about`: the collective that failed; `sides`: what snapshots do not show."""
        blamed, snaps = tuple(sorted(culprits)), self.snaps
        waiting = [rank for rank, snap in sorted(snaps.items()) if snap.state == "collective" or snap.secondary]
        first = snaps[blamed[0]] if blamed else next(iter(snaps.values()))
        concerned = sorted({*blamed, *waiting, *(sides or {})})
        activities = {rank: self.describe_activity(rank) for rank in concerned}
        collective = about or current_collective(first)
        # A rank that left is elsewhere by now: the collective that waits for it counts.
        position = collective if kind == "left" and collective.op else first
        return Failure(
            kind=kind,
            culprit_ranks=blamed,
            waiting_ranks=tuple(sorted({*waiting}.difference(blamed))),
            stage=position.stage,
            step=position.step,
            group=self.group_name(collective.group) if collective.op else "",
            seq=collective.seq,
            op=collective.op,
            numel=collective.elements,
            dtype=collective.dtype,
            calls={**activities, **(sides or {})},
            states={rank: describe_state(snaps[rank]) for rank in concerned},
            seconds=round(max((snaps[rank].age for rank in blamed), default=0.0), 3),
            ages={rank: round(snaps[rank].age, 3) for rank in concerned},
            **more,
        )
