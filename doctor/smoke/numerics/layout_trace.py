"""One layout of the training as reported by its ranks, and the ranks that differ from the majority. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import majority_split
from doctor.engine.grouping import lists_by_key
from doctor.facts.smoke.further_stages import LearnedParameters
from doctor.facts.smoke.training import CallParts, LayoutBegun, LayoutEnded, ShardedStep, SmokeTraining, TrainingStep
from doctor.smoke.model import Layout, SmokePlan

Kind = TypeVar("Kind", LayoutBegun, LayoutEnded)


class LayoutTrace(msgspec.Struct, frozen=True, dict=True):
    """Every event of one layout, by rank. A rank without events is not in it. Made by `build_trace`."""

    plan: SmokePlan
    number: int
    """Of the layout in the plan."""
    begun: dict[int, LayoutBegun]
    steps: tuple[dict[int, TrainingStep], ...]
    ended: dict[int, LayoutEnded]
    replicas: tuple[tuple[int, ...], ...]
    """Groups whose ranks hold the same parameters, and train them on different data."""
    models: tuple[tuple[int, ...], ...]
    """Groups whose ranks hold one model together, and must see the same data and draw the same numbers."""
    slices: tuple[tuple[int, ...], ...]
    """Groups whose ranks hold slices of the same tensors: one stage, one data-parallel index."""
    code_paths: dict[int, str] = {}
    """By rank, of those that told it: what the same bits may be expected of."""
    sharded: dict[int, dict[int, ShardedStep]] = {}
    """By step and rank, of a sharded optimizer that went wrong."""
    parts: tuple[CallParts, ...] = ()

    @property
    def layout(self) -> Layout:
        return self.plan.layouts[self.number]

    @cached_property
    def hosts(self) -> dict[int, str]:
        """By rank. It is computed once: every group of ranks reads it in every step."""
        return {rank: self.plan.host_of(rank) for rank in self.ranks}

    @property
    def ranks(self) -> range:
        return range(self.layout.world)

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Pipeline stage, data-parallel index, tensor-parallel index."""
        return coordinates_in(self.layout, rank)

    def differing(
        self, events: Mapping[int, Any], group: Sequence[int], bits: str, error: str, tolerance: float
    ) -> Split[Any] | None:
        """The ranks of the group that hold another value than they should; None where there are none.

        Ranks of one code path have the same bits, in the field ``bits``. Those of several are compared by ``error``,
        how far they are from the reference run, and so are ranks without a majority that has the same bits. What each
        rank updates for itself (``replicated``) has the same bits where the same code paths made its gradient.
        """
        errors = field_values(events, group, error)
        near = len(errors) == len(group) and max(errors.values()) <= tolerance
        paths: Mapping[int, object] = self.gradient_makers[near] if bits == "replicated" else self.code_paths
        by_path = lists_by_key((paths.get(rank, ""), rank) for rank in group)
        for ranks in by_path.values():
            if parts := majority_split(field_values(events, ranks, bits), hosts=self.hosts):
                apart = errors_split(field_values(events, ranks, error), tolerance) if parts.tie else None
                return apart or parts
        return errors_split(field_values(events, group, error), tolerance) if len(by_path) > 1 else None

    @cached_property
    def gradient_makers(self) -> tuple[dict[int, int], dict[int, int]]:
        """By rank, a number that it shares with all whose gradients the same code paths made, group by group.

        A rank's gradient is the mean of its data-parallel group. Second, for ranks that are near the reference run: the
        same on the CPUs of one host alone, as libraries choose their code by more than what a host tells of its CPU.
        It is computed once, and once for each of these groups: every group of ranks reads it in every step.
        """
        makers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        places = self.plan.places
        for by_host, numbers in enumerate(makers):
            number_by_paths: dict[tuple[tuple[str, str], ...], int] = {}
            for group in self.replicas:
                paths = tuple(
                    (self.code_paths.get(rank, ""), self.hosts[rank] if by_host and places[rank].device < 0 else "")
                    for rank in group
                )
                numbers.update(dict.fromkeys(group, number_by_paths.setdefault(paths, len(number_by_paths))))
        return makers

    @cached_property
    def altered_message(self) -> tuple[int, tuple[int, ...]] | None:
        """The first step in which a message between pipeline stages changed, and the ranks where it can have."""
        altered = ((step, altered_messages(events)) for step, events in enumerate(self.steps))
        return next(((step, ranks) for step, ranks in altered if ranks), None)

    def changed_in_memory(self, rank: int, step: int) -> bool:
        """Whether what had come to the rank was otherwise when it was read again, up to this step."""
        begun = rank not in self.begun or self.begun[rank].kept
        return not begun or any(rank in events and not events[rank].kept for events in self.steps[: step + 1])

    def steps_from_right_parameters(self, tolerance: float) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
        """Up to the first step that leaves wrong parameters on every rank: what follows from them accuses none."""
        for step, events in enumerate(self.steps):
            yield step, events
            compared = any(event.grad_error is not None for rank, event in events.items() if rank)
            errors = [event.params_error for event in events.values()]  # None: not compared, or not finite
            if compared and all(error is None or error > tolerance for error in errors):
                return


def altered_messages(events: Mapping[int, TrainingStep | LearnedParameters]) -> tuple[int, ...]:
    """Ranks where a message between pipeline stages can have changed: those whose own two readings of it differ.

    Else the sender and the receiver of what came otherwise.
    """
    changed = {rank for rank, event in events.items() if event.changed}
    ways = {
        way
        for rank, event in events.items()
        for peer, value in event.sent.items()
        if peer in events and events[peer].received.get(rank, value) != value
        for way in (rank, peer)
    }
    return tuple(sorted(changed or ways))


def coordinates_in(layout: Layout, rank: int) -> tuple[int, int, int]:
    """Pipeline stage, data-parallel index, tensor-parallel index."""
    return rank // (layout.dp * layout.tp), rank // layout.tp % layout.dp, rank % layout.tp


def errors_split(errors: Mapping[int, float], tolerance: float) -> Split[Any] | None:
    """Who is farther from the reference run than the others, which are not: no vote, as it is right where most are not.

    >>> errors_split({0: 1e-7, 1: 0.2, 2: 0.3}, 1e-4).differing
    (1, 2)
    """
    far = tuple(rank for rank, error in errors.items() if error > tolerance)
    near = tuple(rank for rank, error in errors.items() if error <= tolerance)
    return Split(far, near) if far and near else None


def build_trace(
    plan: SmokePlan,
    number: int,
    begun: Mapping[int, LayoutBegun] | None = None,
    steps: Iterable[dict[int, TrainingStep]] = (),
    ended: Mapping[int, LayoutEnded] | None = None,
    code_paths: Mapping[int, str] | None = None,
    sharded: Mapping[int, dict[int, ShardedStep]] | None = None,
    parts: Iterable[CallParts] = (),
) -> LayoutTrace:
    """A layout, with the groups that its ranks fall into."""
    groups: tuple[dict[tuple[int, ...], list[int]], ...] = ({}, {}, {})
    for rank in range(plan.layouts[number].world):
        stage, data, part = coordinates_in(plan.layouts[number], rank)
        for group, same in zip(groups, ((stage, part), (data,), (stage, data)), strict=True):
            group.setdefault(same, []).append(rank)
    replicas, models, slices = (tuple(map(tuple, group.values())) for group in groups)
    reports = dict(begun or {}), tuple(steps), dict(ended or {})
    more = dict(code_paths or {}), dict(sharded or {}), tuple(parts)
    return LayoutTrace(plan, number, *reports, replicas, models, slices, *more)


def field_values(events: Mapping[int, Any], ranks: Iterable[int], name: str) -> dict[int, Any]:
    """One field of these ranks' reports; ranks without it are left out."""
    values = {rank: getattr(events[rank], name) for rank in ranks if rank in events}
    return {rank: value for rank, value in values.items() if value is not None}


def layout_traces(plan: SmokePlan, training: Mapping[str, SmokeTraining]) -> list[LayoutTrace]:
    """The layouts that were begun, in the plan's order."""
    traces = []
    paths = {event.rank: event.code_path for fact in training.values() for event in fact.reference}
    for number in range(len(plan.layouts)):
        steps: dict[int, dict[int, TrainingStep]] = {}
        for fact in training.values():
            for event in fact.steps:
                if event.layout == number:
                    steps.setdefault(event.step, {})[event.rank] = event
        begun = _by_rank(number, (event for fact in training.values() for event in fact.begun))
        ended = _by_rank(number, (event for fact in training.values() for event in fact.ended))
        ordered = tuple(steps[step] for step in range(len(steps)) if step in steps)
        if begun or ordered:
            sharded = by_step(event for fact in training.values() for event in fact.sharded if event.layout == number)
            parts = (event for fact in training.values() for event in fact.parts if event.layout == number)
            traces.append(build_trace(plan, number, begun, ordered, ended, paths, sharded, parts))
    return traces


def by_step(events: Iterable[ShardedStep]) -> dict[int, dict[int, ShardedStep]]:
    """By step and rank."""
    steps: dict[int, dict[int, ShardedStep]] = {}
    for event in events:
        steps.setdefault(event.step, {})[event.rank] = event
    return steps


def _by_rank(number: int, events: Iterable[Kind]) -> dict[int, Kind]:
    return {event.rank: event for event in events if event.layout == number}
