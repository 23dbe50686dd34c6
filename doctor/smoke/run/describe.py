"""Puts into words what a rank was doing, for the trouble that it is part of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from doctor.smoke.hang.traces import STEPPED, Trace
from doctor.smoke.model import Call, Snapshot, Trouble, TroubleKind

CHANNELS = 1_000_000
"""The group number of the channel src>dst is this + src * world + dst."""

ROOTED = {"broadcast": "from", "scatter": "from", "reduce": "to", "gather": "to"}
PROCESS = {"T": "stopped", "t": "stopped", "F": "frozen"}


def words(call: Call, group: str) -> str:
    """Such as ``all_reduce of 128 float32 in dp2, number 7, step 3``."""
    what = call.op if not call.dtype else f"{call.op} of {call.numel} {call.dtype}"
    if call.op in ("send", "recv"):
        where = f"{'to' if call.op == 'send' else 'from'} rank {call.root}"
    elif call.op in ROOTED:
        where = f"{ROOTED[call.op]} rank {call.root} in {group}"
    else:
        where = f"in {group}"
    step = f", step {call.step}" if call.stage in STEPPED else ""
    return f"{what} {where}, number {call.seq}{step}"


def current(snap: Snapshot) -> Call:
    """The collective that a rank is in."""
    return Call(snap.group, snap.seq, snap.op, snap.dtype, snap.numel, snap.root, snap.step, snap.stage)


def state(snap: Snapshot) -> str:
    """What an onlooker sees of the rank."""
    if snap.dead:
        return f"ended with {snap.dead}"
    shown = PROCESS.get(snap.process, "")
    doing = {"collective": f"in {snap.op}", "done": "done"}.get(snap.state, f"in {snap.state}")
    sleeps = f", sleeps in {snap.waits_for}" if snap.waits_for not in ("", "0") else ""
    return f"{f'{shown}, ' * bool(shown)}{doing} for {snap.age:.2f} s{sleeps}"


class Teller:
    """Builds troubles: the same fields for every kind."""

    def __init__(self, groups: Mapping[int, tuple[str, tuple[int, ...]]], world: int) -> None:
        self.groups, self.world = groups, world

    def name(self, group: int) -> str:
        if group >= CHANNELS:
            return "p2p {}>{}".format(*divmod(group - CHANNELS, self.world))
        return self.groups[group][0] if group in self.groups else f"group {group}"

    def words(self, call: Call) -> str:
        return words(call, self.name(call.group))

    def doing(self, snap: Snapshot, trace: Trace | None) -> str:
        """One rank's side, for a rank outside of collectives with the last one that it was in."""
        if snap.state == "collective":
            return self.words(current(snap))
        last = f"after {self.words(trace.last)}" if trace and trace.last else "before its first collective"
        return f"none; {last}"

    def tell(
        self,
        kind: TroubleKind,
        guilty: Iterable[int],
        snaps: Mapping[int, Snapshot],
        traces: Mapping[int, Trace],
        about: Call | None = None,
        sides: Mapping[int, str] | None = None,
        **more: Any,
    ) -> Trouble:
        """`about`: the collective that it is all about; `sides`: what snapshots do not show."""
        blamed = tuple(sorted(guilty))
        waiting = [rank for rank, snap in sorted(snaps.items()) if snap.state == "collective" or snap.secondary]
        first = snaps[blamed[0]] if blamed else next(iter(snaps.values()))
        concerned = sorted({*blamed, *waiting, *(sides or {})})
        shown = {rank: self.doing(snaps[rank], traces.get(rank)) for rank in concerned}
        seen = about or current(first)
        # Who left is somewhere else by now: where it is missed is what counts.
        at = seen if kind == "left" and seen.op else first
        return Trouble(
            kind=kind,
            guilty=blamed,
            victims=tuple(rank for rank in waiting if rank not in blamed),
            stage=at.stage,
            step=at.step,
            group=self.name(seen.group) if seen.op else "",
            seq=seen.seq,
            op=seen.op,
            numel=seen.numel,
            dtype=seen.dtype,
            calls={**shown, **(sides or {})},
            states={rank: state(snaps[rank]) for rank in concerned},
            seconds=round(max((snaps[rank].age for rank in blamed), default=0.0), 3),
            **more,
        )
