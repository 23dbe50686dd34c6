"""Who made the first wrong number of a sharded optimizer's step (ZeRO-1), where all hold what one has made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.analysis.values.splits import majority_split
from doctor.engine.texts import joined
from doctor.facts.smoke.training import ShardedStep
from doctor.smoke.numerics.collective_values import is_receivers, senders_to
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace

Place = Literal["computed", "given", "reduced", "updated", "sent", "received"]
Steps = Mapping[int, Mapping[int, ShardedStep]]
GRADIENT, LOSS, PARAMETERS = "smoke-gradient-not-synchronised", "smoke-loss-differs", "smoke-parameters-diverge"
CHECKS: Mapping[Place, str] = {
    "computed": GRADIENT,
    "given": GRADIENT,
    "reduced": GRADIENT,
    "updated": LOSS,
    "sent": LOSS,
    "received": PARAMETERS,
}
"""By where the first number of the step is wrong: the check that reports it."""
TEXTS: Mapping[Place, str] = {
    "computed": "the gradient that {who} computed in step {step} is off by {share} of its norm from a second one, of"
    " the same rows",
    "given": "the gradient of {who} changed in memory by {share} of its norm in step {step}, before it was added to"
    " the others'",
    "reduced": "the shard of the mean gradient that {who} got in step {step} is off by {share} of its norm; what the"
    " ranks added to it was right",
    "updated": "the update of a shard that {who} made in step {step} is off by {share} of the parameters' norm; the"
    " gradient for it was right",
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


EXACT = 1e-5
"""From what the rank itself computes again, as a share: from there on it is another number."""

CAME_BY: Mapping[Place, str] = {"reduced": "reduce_scatter", "received": "all_gather"}
"""Places where a number is another rank's, by the operation that brought it."""


def first_fault(
    steps: Steps,
    groups: Sequence[Sequence[int]],
    tolerance: float,
    hosts: Mapping[int, str],
    drift: float = 1.0,
    backend: str = "gloo",
) -> ShardFault | None:
    """What the first step with a wrong number says, and of what came to a rank from others, who can have sent it so."""
    fault = _first_wrong(steps, groups, tolerance, hosts, drift)
    if fault is None or fault.tie or fault.place not in CAME_BY:
        return fault
    op, among, events = CAME_BY[fault.place], set(fault.ranks), steps[fault.step]
    alone = [{rank for rank, event in step.items() if event.summed} for step in steps.values()]
    times = alone.count(among) if all(ranks <= among for ranks in alone) else 0
    own_sum = op == "reduce_scatter" and is_receivers(min(map(len, groups)), times)
    shards = [(events[rank], group.index(rank)) for rank in among for group in groups if rank in group]
    # Its own shard, which no other rank sends it, came back from the exchange as another one.
    if own_sum or (op == "all_gather" and any(not event.kept or place in event.gathered for event, place in shards)):
        return fault
    sent = {rank for group in groups if among & set(group) for rank in senders_to(among, op, group, backend)}
    return msgspec.structs.replace(fault, ranks=tuple(sorted(among | sent)), tie=bool(sent))


def _first_wrong(
    steps: Steps, groups: Sequence[Sequence[int]], tolerance: float, hosts: Mapping[int, str], drift: float
) -> ShardFault | None:
    """What the first step with a wrong number says; None where none is wrong, or all ranks have it wrong alike.

    First by what each rank computes again from what it had, and by what ranks must have alike, as no error of an
    earlier step or of another rank shows there. Else by the distance from the reference run, ``drift`` times the
    ``tolerance`` of one step. ``steps``: by number, what each rank said. ``groups``: the data-parallel ones, each in
    the order of its shards.
    """
    exact = max(EXACT, tolerance / 10)
    for step, events in sorted(steps.items()):
        for place, errors in _repeated_errors(events, groups, hosts).items():
            wrong = {rank: error for rank, error in errors.items() if error}
            if place == "computed":
                wrong = {rank: error for rank, error in errors.items() if error > exact}
            if place == "given" and 2 * len(wrong) >= len(events):
                continue  # a library that adds in the buffer which it was given
            if wrong and len(wrong) == len(events):
                return None  # the program
            if wrong:
                return _fault(place, step, wrong, events, hosts)
    for step, events in sorted(steps.items()):
        by_place: tuple[Place, ...] = ("reduced", "updated")
        for place in by_place:
            errors = {rank: float(getattr(event, place)) for rank, event in sorted(events.items())}
            wrong = {rank: error for rank, error in errors.items() if error > drift * tolerance}
            if wrong:
                return None if len(wrong) == len(events) else _fault(place, step, wrong, events, hosts)
        for group in groups:
            if fault := _wrong_exchange(step, events, group, drift * tolerance, hosts):
                return fault
    return None


def _fault(
    place: Place, step: int, wrong: Mapping[int, float], events: Iterable[int], hosts: Mapping[int, str]
) -> ShardFault:
    """Of sums that are wrong on several hosts, and of what several got wrong, any rank can be the sender."""
    is_open = place in ("reduced", "received") and len({hosts.get(rank) for rank in wrong}) > 1
    return ShardFault(place, step, tuple(events) if is_open else tuple(wrong), max(wrong.values()), is_open)


def _repeated_errors(
    events: Mapping[int, ShardedStep], groups: Sequence[Sequence[int]], hosts: Mapping[int, str]
) -> dict[Place, dict[int, float]]:
    """By place, how far each rank's numbers are from what it computes again, or 1 for what others have otherwise."""
    received: dict[int, float] = {}
    for group in groups:
        if any(rank not in events for rank in group):
            continue
        parts = majority_split({rank: events[rank].held for rank in group}, hosts=hosts)
        received |= dict.fromkeys(parts.differing if parts else (), 1.0)
    return {
        "computed": {rank: event.computed for rank, event in sorted(events.items())},
        "given": {rank: event.altered for rank, event in sorted(events.items())},
        "reduced": {rank: event.summed for rank, event in sorted(events.items())},
        "received": received,
        "sent": {rank: 1.0 for rank, event in sorted(events.items()) if not event.kept and rank not in received},
    }


def _wrong_exchange(
    step: int, events: Mapping[int, ShardedStep], group: Sequence[int], tolerance: float, hosts: Mapping[int, str]
) -> ShardFault | None:
    """Of shards that came wrong: the rank that holds or sent each of them."""
    wrong = {
        (rank, group[index]): error
        for rank in group
        for index, error in (events[rank].gathered if rank in events else {}).items()
        if error > tolerance and index < len(group)
    }
    if not wrong:
        return None
    share, holders = max(wrong.values()), {holder for holder, _ in wrong}
    common = set.intersection(*map(set, wrong))
    if len(group) > 2:  # the others got the same shard right
        common = common & holders if len(holders) == 1 else common
    if len(common) == 1:
        (rank,) = common
        sent = holders != common
        got = any(holder == rank != owner for holder, owner in wrong)
        return ShardFault("received" if not sent else "updated" if got else "sent", step, (rank,), share)
    if len({hosts.get(rank) for rank in holders}) == 1 and len(group) > 2:
        return ShardFault("received", step, tuple(sorted(holders)), share)
    return ShardFault("received", step, tuple(sorted({rank for pair in wrong for rank in pair})), share, True)


def sharded_defects(trace: LayoutTrace, tolerance: float) -> list[Defect]:
    """The fault of this layout, if its optimizer is sharded and its ranks told of their steps."""
    groups, backend = trace.replicas if trace.layout.zero else (), trace.plan.backend
    fault = first_fault(trace.sharded, groups, tolerance, trace.hosts, backend=backend) if groups else None
    if fault is None:
        return []
    values = {"share": float(f"{fault.share:.2g}"), "likely": "the device or the memory of that rank"}
    return [
        Defect(
            fault.check, fault.place, fault.step, fault.ranks, fault.template, values,
            tie=fault.tie, of_group=fault.was_sent, trace=trace,
        )
    ]  # fmt: skip
