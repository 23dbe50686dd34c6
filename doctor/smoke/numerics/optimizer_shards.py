"""Who made the first wrong number of a sharded optimizer's step (ZeRO-1), where all hold what one has made. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.analysis.values.splits import majority_split
from doctor.engine.texts import joined
from doctor.facts.smoke.training import CallParts, ShardedStep
from doctor.smoke.numerics.collective_values import is_receivers, senders_to
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace

Place = Literal["given", "reduced", "sent", "received"]
Steps = Mapping[int, Mapping[int, ShardedStep]]
GRADIENT, LOSS, PARAMETERS = "smoke-gradient-not-synchronised", "smoke-loss-differs", "smoke-parameters-diverge"
CHECKS: Mapping[Place, str] = {"given": GRADIENT, "reduced": GRADIENT, "sent": LOSS, "received": PARAMETERS}
"""By where the first number of the step is wrong: the check that reports it."""
TEXTS: Mapping[Place, str] = {
    "given": "the gradient of {who} changed in memory by {share} of its norm in step {step}, before it was added to"
    " the others'",
    "reduced": "the shard of the mean gradient that {who} got in step {step} is off by {share} of its norm; what the"
    " ranks added to it was right",
    "sent": "the shard that other ranks got from {who} behind step {step} is not what the update had made",
    "received": "behind step {step} {who} holds another shard of the parameters than the other ranks were sent",
}
"""How it is put."""


class ShardFault(msgspec.Struct, frozen=True):
    """The first wrong number, and the ranks that can have made it."""

    place: Place
    step: int
    ranks: tuple[int, ...]
    share: float
    """How far it is off."""
    tie: bool = False
    """It is one of them."""

    @property
    def check(self) -> str:
        return CHECKS[self.place]

    @property
    def was_sent(self) -> bool:
        """Other ranks had it in hand: where their collectives are wrong by themselves, it follows from that."""
        return self.tie or self.place in CAME_BY

    @property
    def template(self) -> str:
        text = TEXTS[self.place]
        return joined("", (text, "; it is one of them, and which one is not known")) if self.tie else text


CAME_BY: Mapping[Place, str] = {"reduced": "reduce_scatter", "received": "all_gather"}
"""Places where a number is another rank's, by the operation that brought it."""


def first_fault(
    steps: Steps,
    groups: Sequence[Sequence[int]],
    hosts: Mapping[int, str],
    backend: str = "gloo",
    parts: Collection[CallParts] = (),
) -> ShardFault | None:
    """What the first step with a wrong number says, and of what came to a rank from others, who can have sent it so."""
    fault = _first_wrong(steps, groups, hosts)
    if fault is None or fault.tie or fault.place not in CAME_BY:
        return fault
    op, among, events = CAME_BY[fault.place], set(fault.ranks), steps[fault.step]
    alone = [{rank for rank, event in step.items() if event.summed} for step in steps.values()]
    times = alone.count(among) if all(ranks <= among for ranks in alone) else 0
    own_sum = op == "reduce_scatter" and is_receivers(min(map(len, groups)), times)
    # Its own shard, which no other rank sends it, came back from the exchange as another one.
    if own_sum or (op == "all_gather" and any(not events[rank].kept for rank in among)):
        return fault
    sent = {rank for group in groups if among & set(group) for rank in senders_to(among, op, group, backend, parts)}
    return msgspec.structs.replace(fault, ranks=tuple(sorted(among | sent)), tie=bool(sent))


def _first_wrong(steps: Steps, groups: Sequence[Sequence[int]], hosts: Mapping[int, str]) -> ShardFault | None:
    """What the first step with a wrong number says; None where none is wrong, or all ranks have it wrong alike.

    By what each rank reads in its own memory again, and by what ranks must have alike. ``steps``: by number, what each
    rank said. ``groups``: the data-parallel ones, each in the order of its shards.
    """
    for step, events in sorted(steps.items()):
        for place, errors in _errors(events, groups, hosts).items():
            wrong = {rank: error for rank, error in errors.items() if error}
            if place == "given" and 2 * len(wrong) >= len(events):
                continue  # a library that adds in the buffer which it was given
            if wrong and len(wrong) == len(events) and (place, len(wrong)) != ("received", 2):
                return None  # the program
            if wrong:
                return _fault(place, step, wrong, events, hosts)
    return None


def _fault(
    place: Place, step: int, wrong: Mapping[int, float], events: Collection[int], hosts: Mapping[int, str]
) -> ShardFault:
    """Of sums that are wrong on several hosts, and of what several got wrong, any rank can be the sender."""
    is_wide = len({hosts.get(rank) for rank in wrong}) > 1 or len(wrong) == len(events)
    is_open = place in ("reduced", "received") and is_wide
    return ShardFault(place, step, tuple(events) if is_open else tuple(wrong), max(wrong.values()), is_open)


def _errors(
    events: Mapping[int, ShardedStep], groups: Sequence[Sequence[int]], hosts: Mapping[int, str]
) -> dict[Place, dict[int, float]]:
    """By place, how far each rank's numbers are off, or 1 for what others have otherwise."""
    received: dict[int, float] = {}
    for group in groups:
        if any(rank not in events for rank in group):
            continue
        parts = majority_split({rank: events[rank].held for rank in group}, hosts=hosts)
        received |= dict.fromkeys(parts.differing if parts else (), 1.0)
    return {
        "given": {rank: event.altered for rank, event in sorted(events.items())},
        "reduced": {rank: event.summed for rank, event in sorted(events.items())},
        "received": received,
        "sent": {rank: 1.0 for rank, event in sorted(events.items()) if not event.kept and rank not in received},
    }


def sharded_defects(trace: LayoutTrace) -> list[Defect]:
    """The fault of this layout, if its optimizer is sharded and its ranks told of their steps."""
    groups, backend = trace.replicas if trace.layout.zero else (), trace.plan.backend
    fault = first_fault(trace.sharded, groups, trace.hosts, backend, trace.parts) if groups else None
    if fault is None:
        return []
    values = {"share": float(f"{fault.share:.2g}"), "likely": "the device or the memory of that rank"}
    return [
        Defect(
            fault.check, fault.place, fault.step, fault.ranks, fault.template, values,
            tie=fault.tie, of_group=fault.was_sent, trace=trace,
        )
    ]  # fmt: skip
