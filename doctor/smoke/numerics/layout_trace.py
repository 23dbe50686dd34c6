"""One layout of the training as reported by its ranks, and the ranks that differ from the majority. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from doctor.facts.smoke import LayoutBegun, LayoutEnded, SmokeTraining, TrainingStep
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

    def numbered_steps(self) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
        """The steps, numbered."""
        yield from enumerate(self.steps)


def coordinates_in(layout: Layout, rank: int) -> tuple[int, int, int]:
    """Pipeline stage, data-parallel index, tensor-parallel index."""
    return rank // (layout.dp * layout.tp), rank // layout.tp % layout.dp, rank % layout.tp


def build_trace(
    plan: SmokePlan,
    number: int,
    begun: Mapping[int, LayoutBegun] | None = None,
    steps: Iterable[dict[int, TrainingStep]] = (),
    ended: Mapping[int, LayoutEnded] | None = None,
) -> LayoutTrace:
    """A layout, with the groups that its ranks fall into."""
    groups: tuple[dict[tuple[int, ...], list[int]], ...] = ({}, {}, {})
    for rank in range(plan.layouts[number].world):
        stage, data, part = coordinates_in(plan.layouts[number], rank)
        for group, same in zip(groups, ((stage, part), (data,), (stage, data)), strict=True):
            group.setdefault(same, []).append(rank)
    replicas, models, slices = (tuple(map(tuple, group.values())) for group in groups)
    return LayoutTrace(plan, number, dict(begun or {}), tuple(steps), dict(ended or {}), replicas, models, slices)


def field_values(events: Mapping[int, Any], ranks: Iterable[int], name: str) -> dict[int, Any]:
    """One field of these ranks' reports; ranks without it are left out."""
    values = {rank: getattr(events[rank], name) for rank in ranks if rank in events}
    return {rank: value for rank, value in values.items() if value is not None}


def layout_traces(plan: SmokePlan, training: Mapping[str, SmokeTraining]) -> list[LayoutTrace]:
    """The layouts that were begun, in the plan's order."""
    traces = []
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
            traces.append(build_trace(plan, number, begun, ordered, ended))
    return traces


def _by_rank(number: int, events: Iterable[Kind]) -> dict[int, Kind]:
    return {event.rank: event for event in events if event.layout == number}
