from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from doctor.engine.result import Outcome, Status
from doctor.facts.smoke.training import TrainingStep
from tests.checks.smoke import alter, learning, page, ran, root_causes, run_check, training, training_events

NAME = "smoke_loss_stalled"
FALLING = (4.6, 4.3, 4.0, 3.8, 3.6, 3.4, 3.2, 3.0, 2.8, 2.6)


def outcome(losses: Sequence[float | None], *facts: dict) -> Outcome:  # type: ignore[type-arg]
    run = ran(4, 2)
    return run_check(NAME, run, learning(run, dict.fromkeys(range(4), losses)), *facts)


def test_it_falls() -> None:
    assert outcome(FALLING).status is Status.PASSED


def test_nothing_is_learned() -> None:
    """The first losses fall in any run: that is no learning."""
    [finding] = outcome([4.9, 4.5, 4.3, 4.25, 4.2, 4.18, 4.17, 4.16, 4.16, 4.16]).findings
    assert str(finding) == (
        "the loss is 4.16 after 10 steps, expected below 3.559: it learns nothing; "
        "the loss is still at ln 64, that of a uniform guess"
    )
    assert finding.values["reason"] == "nothing"
    assert finding.values["mistaken"] == 0.003
    assert "0 (0.02 in this run)" in " ".join(page(NAME, finding).split())


def test_it_rises() -> None:
    [finding] = outcome([4.6 + step for step in range(10)]).findings
    assert finding.values["reason"] == "rose"


def test_words_are_learned_by_their_place_alone() -> None:
    """Only a longer run can tell."""
    curve = [max(math.log(7) + 0.05, 4.6 - 0.2 * step) for step in range(40)]
    assert outcome(curve[:20]).status is Status.PASSED
    [finding] = outcome(curve).findings
    assert finding.values["reason"] == "place"
    assert "the loss stays at ln 7" in str(finding)


def test_ranks_tell_the_loss_of_their_own_rows() -> None:
    run = ran(4, 2)
    mixed = {rank: [loss + (rank - 1.5) for loss in FALLING] for rank in range(4)}
    assert run_check(NAME, run, learning(run, mixed)).status is Status.PASSED


def test_too_few_steps() -> None:
    run = ran(4, 2)
    short = msgspec.structs.replace(run, plan=msgspec.structs.replace(run.plan, learn_steps=9))
    few: Sequence[float | None] = FALLING[:9]
    judged = run_check(NAME, short, learning(run, dict.fromkeys(range(4), few)))
    assert judged.skipped == {"": "9 steps are too few; 10 are needed"}


def test_a_loss_that_no_rank_reported_is_unknown() -> None:
    assert {reason.text for reason in outcome(FALLING[:9]).unknown.values()} == {
        "the ranks reported the losses of 9 of 10 steps"
    }


def test_nan_is_another_checks() -> None:
    observed_outcome = outcome([*FALLING[:5], None, None, None, None, None])
    assert root_causes(observed_outcome) == {"smoke-not-finite"}


def test_what_is_wrong_in_the_layouts_explains_it() -> None:
    run = ran(4, 2)
    events = alter(training_events(run), 3, TrainingStep, ids=(1, 2))
    observed_outcome = outcome([4.2] * 10, training(run, events))
    assert not observed_outcome.findings
    assert root_causes(observed_outcome) == {"smoke-shards-wrong"}
