"""Smoke runs that trained wrongly, made from a healthy one, and what a check says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from doctor.engine.result import Finding, Outcome
from doctor.facts.smoke.events import RankEvent
from doctor.facts.smoke.training import LayoutBegun, LayoutEnded, TrainingStep
from doctor.smoke.model import Layout, SmokeRun
from doctor.smoke.plan import default_layouts
from tests.checks.smoke import findings_of, place_in, ran, root_causes, run_check, training, training_events

DP4, TP4, DP2TP2, PP2DP2, ZERO = (
    Layout(dp=4),
    Layout(tp=4),
    Layout(dp=2, tp=2),
    Layout(pp=2, dp=2),
    Layout(dp=4, zero=True),
)

Change = Callable[[Any], dict[str, Any] | None]
"""What becomes of an event: new values of some fields, or None for none."""


class Trained:
    """A run of some layouts, with events that can be spoilt."""

    def __init__(self, *chosen: Layout, ranks: int = 4, steps: int = 4, devices: bool = False) -> None:
        self.run: SmokeRun = ran(ranks, 2, layouts=chosen or default_layouts(ranks), devices=devices)
        self.events: list[RankEvent] = training_events(self.run, steps=steps)

    def spoil(self, kind: type[RankEvent], change: Change) -> Trained:
        self.events = [
            msgspec.structs.replace(event, **(change(event) or {})) if isinstance(event, kind) else event
            for event in self.events
        ]
        return self

    def steps(self, change: Change) -> Trained:
        return self.spoil(TrainingStep, change)

    def begun(self, change: Change) -> Trained:
        return self.spoil(LayoutBegun, change)

    def ended(self, change: Change) -> Trained:
        return self.spoil(LayoutEnded, change)

    def layout(self, event: Any) -> Layout:
        layout: Layout = self.run.plan.layouts[event.layout]
        return layout

    def place(self, event: Any) -> tuple[int, int, int]:
        """Pipeline stage, data-parallel index, tensor-parallel index of who said it."""
        return place_in(self.layout(event), event.rank)

    def findings(self, check: str) -> tuple[Finding, ...]:
        return findings_of(check, self.run, training(self.run, self.events))

    def only_finding(self, check: str) -> Finding:
        """The only finding of the check."""
        findings = self.findings(check)
        assert len(findings) == 1, [str(finding) for finding in findings]
        return findings[0]

    def outcome(self, check: str) -> Outcome:
        return run_check(check, self.run, training(self.run, self.events))

    def because(self, check: str) -> str:
        """The check that explains what this one saw, where it found nothing of its own."""
        outcome = self.outcome(check)
        assert not outcome.findings
        return " ".join(sorted(root_causes(outcome)))


TRAINED = (
    "smoke_gradient_not_synchronised",
    "smoke_gradient_summed",
    "smoke_loss_differs",
    "smoke_mask_differs",
    "smoke_mask_repeated",
    "smoke_not_finite",
    "smoke_parameters_diverge",
    "smoke_parameters_not_broadcast",
    "smoke_shards_wrong",
    "smoke_reference_differs",
    "smoke_update_missing",
)
"""The checks that judge the layouts."""


def leading(trained: Trained) -> set[str]:
    """The checks that find something: one defect has one."""
    return {name for name in TRAINED if trained.findings(name)}


def healthy(check: str) -> None:
    """Every layout of two, three, four and eight ranks, without a finding and wholly judged."""
    for ranks in (2, 3, 4, 8):
        outcome = Trained(ranks=ranks).outcome(check)
        assert outcome.complete
        assert not outcome.findings and not outcome.unknown and not outcome.crashed


def off(value: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(entry + 5_000_000 for entry in value)
