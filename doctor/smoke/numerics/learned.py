"""What ranks have learned, by their replicas, the same training done serially, and known levels of a loss. Pure.

The data have a topic a row, and a word for each topic and place. Who knows nothing of them has a loss of ln 64, the
number of words; who knows the place alone, ln 7, the number of topics; who sees the other words of the row, 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.analysis.values.splits import majority_split
from doctor.engine.grouping import lists_by_key
from doctor.facts.smoke.further_stages import LearnedParameters, SmokeLearning
from doctor.facts.smoke.training import CallParts
from doctor.smoke.model import SmokePlan
from doctor.smoke.numerics.collective_values import senders_to
from doctor.smoke.numerics.layout_trace import altered_messages, by_step
from doctor.smoke.numerics.optimizer_shards import ShardFault, first_fault
from doctor.smoke.numerics.reference_run import largest_difference, median_rank

CLEAR = 5.0
"""Times the error of the rank that is nearest to the serial training, from which on a replica is the wrong one."""
AMPLIFIED = 100.0
"""Times the tolerance of one step: Adam makes much of the sign of a gradient that is hardly more than rounding."""
AMPLIFIED_LOSS = 10.0
"""The same, of the loss of a single step."""


class LearnedWrong(msgspec.Struct, frozen=True):
    """Ranks that hold other parameters than they should."""

    ranks: tuple[int, ...]
    compared: tuple[int, ...]
    """All ranks that were compared; ``ranks`` are all of them where nothing tells which are wrong."""
    error: float | None
    """The largest, from the serial training."""
    what: Literal["replicas", "serial", "losses", "messages", "own"] = "replicas"
    """They differ from each other; or are alike, and far from the serial training; or the loss that they computed in a
    step is; or a message between them changed; or a rank alone comes to other numbers when it does its part again."""
    senders: tuple[int, ...] = ()
    """Ranks that can have sent them wrong sums of gradients: of these they had others than the rest."""


def wrong_learners(plan: SmokePlan, facts: Iterable[SmokeLearning], tolerance: float) -> Iterator[LearnedWrong]:
    """Data-parallel groups that disagree; or else the ranks that are far from the serial training.

    First those that come to something else when they do the same again. Bits are compared among ranks of one code
    path. ``tolerance``: of one step. What follows from a changed message tells no more.
    """
    stages = tuple(facts)
    events = [event for fact in stages for event in fact.learned]
    hosts = {event.rank: plan.host_of(event.rank) for event in events}
    if repeated := {event.rank: event.repeated for event in events if event.repeated > tolerance}:
        yield LearnedWrong(
            tuple(sorted(repeated)), tuple(event.rank for event in events), max(repeated.values()), "own"
        )
        return
    if altered := altered_messages({event.rank: event for event in events}):
        everyone = tuple(event.rank for event in events)
        yield LearnedWrong(altered, altered if len(altered) > 1 else everyone, None, "messages")
        return
    groups = lists_by_key(((event.pp, event.tp), event) for event in events)
    apart = [group for group in groups.values() if len(_bits(group)) > len({event.code_path for event in group})]
    parts = [event for fact in stages for event in fact.parts]
    yield from (_differing(group, hosts, plan.backend, parts) for group in apart)
    errors = {rank: error for group in groups.values() for rank, error in _errors(group).items()}
    far = tuple(sorted(rank for rank, error in errors.items() if error > AMPLIFIED * tolerance))
    if far and not apart:
        yield LearnedWrong(far, tuple(sorted(errors)), max(errors.values()), "serial")
    elif not apart:
        # Own serial runs with another loss in some step than those of most: their layout may give them no loss.
        curves = {event.rank: event.serial for group in groups.values() for event in group if event.serial}
        ours = curves[median_rank(curves)] if curves else ()
        shares = {rank: largest_difference(curve, ours) for rank, curve in curves.items()}
        limit = AMPLIFIED_LOSS * tolerance
        if split := majority_split({rank: share > limit for rank, share in shares.items()}, hosts=hosts):
            wrong = tuple(curves) if split.tie else split.differing
            yield LearnedWrong(wrong, tuple(curves), max(shares.values()), "losses")
        for group in groups.values() if not split else ():
            yield from _wrong_losses(group, limit)


def wrong_shard(plan: SmokePlan, facts: Iterable[SmokeLearning]) -> ShardFault | None:
    """Who made the first wrong number, where the optimizer is sharded."""
    stages = tuple(facts)
    groups: dict[tuple[int, int], list[int]] = {}
    for event in sorted((event for fact in stages for event in fact.learned), key=lambda event: event.rank):
        groups.setdefault((event.pp, event.tp), []).append(event.rank)
    steps = by_step(event for fact in stages for event in fact.sharded if event.layout < 0)
    hosts = {rank: plan.host_of(rank) for group in groups.values() for rank in group}
    parts = [event for fact in stages for event in fact.parts]
    return first_fault(steps, list(groups.values()), hosts, plan.backend, parts)


def _wrong_losses(group: Sequence[LearnedParameters], limit: float) -> Iterator[LearnedWrong]:
    """Ranks whose loss of some step is not that of the serial run, which has the right parameters.

    Where all are off, or all but the first rank, which did the serial run for them, it is the first. Of two, either.
    """
    errors = {event.rank: event.loss_error for event in group if event.loss_error is not None}
    off = {rank for rank, error in errors.items() if error > limit}
    sound, first = errors.keys() - off, min(event.rank for event in group)
    if off and not sound - {first}:
        off = set(errors) if sound and len(errors) == 2 else {first}
    if off:
        yield LearnedWrong(tuple(sorted(off)), tuple(sorted(errors)), max(errors.values()), "losses")


def _bits(group: Sequence[LearnedParameters]) -> set[tuple[str, int, int]]:
    return {(event.code_path, event.params, event.gradient) for event in group}


def _errors(group: Sequence[LearnedParameters]) -> dict[int, float]:
    """The error of each rank; one that has computed none has that of a rank which holds the same bits."""
    by_bits = {event.params: event.error for event in group if event.error is not None}
    errors = {event.rank: event.error if event.error is not None else by_bits.get(event.params) for event in group}
    return {rank: error for rank, error in errors.items() if error is not None}


def _differing(
    group: Sequence[LearnedParameters], hosts: Mapping[int, str], backend: str, parts: Collection[CallParts]
) -> LearnedWrong:
    """Those that are further from the serial training than the rest; else those that differ from most, by their bits.

    All ranks of the group are wrong for what is known where neither tells. Whose own serial training is as wrong as its
    part of the other one is as near to it as the others are to theirs.
    """
    everyone = tuple(sorted(event.rank for event in group))
    errors = {event.rank: event.error for event in group if event.error is not None}
    nearest = min(errors.values(), default=0.0)
    wrong = tuple(sorted(rank for rank, error in errors.items() if error > CLEAR * nearest))
    is_decided = len(errors) == len(group) > len(wrong) > 0
    if not is_decided and len({event.code_path for event in group}) == 1 and len(_bits(group)) < len(group):
        split = majority_split({event.rank: (event.params, event.gradient) for event in group}, hosts=hosts)
        is_decided, wrong = split is not None and not split.tie, split.differing if split else ()
    sent = (
        senders_to(wrong, "all_reduce", everyone, backend, parts)
        if is_decided and len({e.gradient for e in group}) > 1
        else ()
    )
    return LearnedWrong(
        wrong if is_decided else everyone, everyone, max(errors.values(), default=None), senders=tuple(sorted(sent))
    )


LOSS_OF_NOTHING = math.log(64)
LOSS_OF_PLACE = math.log(7)
MARGIN = 0.6
"""Below `LOSS_OF_NOTHING`. Between the best run that learns nothing (0.51) and the worst that learns (0.67)."""
MIN_STEPS = 10
"""Steps after which a program that learns is below that."""
MANY_STEPS = 40
"""Steps after which it is below `LOSS_OF_PLACE`."""
SEEDS = 1000
"""Trainings of each of seven kinds that the rule was tried on, without a mistake: ``python -m tests.smoke.curves``."""

Reason = Literal["", "nothing", "place", "rose"]


def mean_losses(rank_losses: Iterable[tuple[int, float | None]]) -> list[float | None]:
    """The mean loss of each step over all ranks that reported one; None where one of them was not finite."""
    steps = lists_by_key((step, loss) for step, loss in rank_losses)
    means: list[float | None] = []
    for _, losses in sorted(steps.items()):
        finite_losses = [loss for loss in losses if loss is not None]
        means.append(sum(finite_losses) / len(finite_losses) if len(finite_losses) == len(losses) else None)
    return means


def final_level(losses: Sequence[float]) -> float:
    """Where the curve has come to: the mean of its last three losses."""
    last = losses[-3:]
    return sum(last) / len(last)


def stall_reason(losses: Sequence[float]) -> Reason:
    """What the curve has not got below, or empty when it fell. For `MIN_STEPS` steps at least."""
    end = final_level(losses)
    if end > LOSS_OF_NOTHING - MARGIN:
        return "rose" if end > max(losses[0], LOSS_OF_NOTHING) + MARGIN else "nothing"
    return "place" if len(losses) >= MANY_STEPS and end > LOSS_OF_PLACE else ""


def false_alarm_rate(seeds: int = SEEDS) -> float:
    """The largest rate of false alarms that is still likely (95 %) when none was seen in so many trainings."""
    return 3 / seeds
