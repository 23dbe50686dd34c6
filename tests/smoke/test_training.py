"""Causes and consequences in the training: what is not told accuses nobody, and one fault has one finding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges, majority_split
from doctor.facts.smoke.events import RankEvent
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.model import Layout
from doctor.smoke.numerics.analyze import analyze_training
from tests.checks.smoke import training
from tests.checks.trained import DP2TP2, DP4, TP4, TRAINED, Trained, leading, off
from tests.examples import examples

EVENTS = len(Trained(DP4, DP2TP2, steps=2).events)


@settings(max_examples=examples(60), deadline=None)
@given(st.sets(st.integers(1, EVENTS - 1), max_size=12), st.sampled_from([None, 0, 1, 2, 3]))
def test_what_was_not_told_accuses_nobody(lost: set[int], silent: int | None) -> None:
    """Any events may be missing, and all of a rank's."""
    trained = Trained(DP4, DP2TP2, steps=2)
    trained.events = [
        event
        for number, event in enumerate(trained.events)
        if number not in lost and (event.rank != silent or number == 0)
    ]
    for name in TRAINED:
        outcome = trained.outcome(name)
        assert not outcome.crashed, outcome.crashed
        assert not outcome.findings, outcome.findings


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_no_event_breaks_it(data: st.DataObject) -> None:
    """Whatever numbers the ranks tell."""
    trained = Trained(DP4, DP2TP2, Layout(pp=2, dp=2), steps=2)
    number = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.just(0.0)
    digest = st.integers(0, 3)

    def change(step: TrainingStep) -> dict[str, Any] | None:
        if not data.draw(st.booleans()):
            return None
        return {
            "loss": data.draw(number),
            "grad": data.draw(number),
            "grad_local": data.draw(number),
            "grad_digest": data.draw(digest),
            "params": data.draw(digest),
            "blocks": tuple(data.draw(st.lists(st.integers(-1, 99), max_size=3))),
            "ids": tuple(data.draw(st.lists(digest, max_size=3))),
            "masks": tuple(data.draw(st.lists(digest, max_size=3))),
            "rng": {"python": data.draw(digest)},
            "bad": data.draw(st.sampled_from(["", "input", "loss", "gradient", "parameters"])),
        }

    trained.steps(change)
    for name in TRAINED:
        outcome = trained.outcome(name)
        assert not outcome.crashed, outcome.crashed
        assert all(str(finding) for finding in outcome.findings)


def test_of_two_faults_that_cannot_cause_each_other_both_are_told() -> None:
    def change(step: TrainingStep) -> dict[str, Any] | None:
        if step.rank != 3:
            return None
        if trained.layout(step) == TP4:
            return {"masks": off(step.masks)}
        return {"ids": (1, *step.ids[1:])}

    trained = Trained(TP4, DP4)
    assert leading(trained.steps(change)) == {"smoke_mask_differs", "smoke_shards_wrong"}


def test_in_time_the_first_one_is_the_cause() -> None:
    trained = Trained(DP4).steps(lambda event: {"grad_digest": event.rank} if event.step >= 1 else None)
    trained.steps(lambda event: {"params": event.rank} if event.step >= 1 else None)
    trained.steps(lambda event: {"loss": event.loss + 1} if event.step >= 2 else None)
    verdict = analyze_training(trained.run.plan, training(trained.run, trained.events))
    assert [cause.check for cause in verdict.causes] == ["smoke-gradient-not-synchronised"]
    assert {defect.check for defect, _ in verdict.consequences} == {"smoke-parameters-diverge", "smoke-loss-differs"}
    assert {cause for _, cause in verdict.consequences} == {"smoke-gradient-not-synchronised"}


def test_layouts_are_named_up_to_three() -> None:
    trained = Trained(DP4, TP4, DP2TP2, Layout(pp=2, dp=2), Layout(dp=4, recompute=True))
    trained.steps(lambda event: {"ids": (1, *event.ids[1:])} if event.rank == 3 and event.layout < 4 else None)
    assert str(trained.only_finding("smoke_shards_wrong")).endswith("(in dp4, tp4, dp2 tp2 and 1 more; 4 of 5 layouts)")


def test_devices_are_named() -> None:
    trained = Trained(DP4, devices=True).steps(lambda event: {"grad_digest": 1} if event.rank == 3 else None)
    assert "rank 3 (w2, GPU 1; dp3)" in str(trained.only_finding("smoke_gradient_not_synchronised"))


@pytest.mark.parametrize(
    ("values", "casting", "expected"),
    [
        ({0: 1, 1: 1}, None, None),
        ({0: 1, 1: 1, 2: 2}, None, Split((2,), (0, 1), 1)),
        ({0: 1, 1: 2}, None, Split((0, 1), ())),
        ({0: 1, 1: 2}, 2, Split((0,), (1,), 2)),
        ({0: 1, 1: 2}, 3, Split((0, 1), ())),
        ({0: 1, 1: 1, 2: 2}, 2, Split((2,), (0, 1), 1)),
    ],
)
def test_who_stands_against_the_rest(values: dict[int, int], casting: int | None, expected: Split[int] | None) -> None:
    assert majority_split(values, casting) == expected


def test_runs_of_numbers() -> None:
    assert format_ranges([7, 0, 2, 1, 2]) == "0-2, 7"
    assert format_ranges([]) == "none"


def test_every_event_of_the_builder_has_a_rank() -> None:
    assert all(isinstance(event, RankEvent) and event.rank >= 0 for event in Trained(DP4).events)
