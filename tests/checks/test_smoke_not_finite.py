from __future__ import annotations

from typing import Any

import pytest

from doctor.facts.smoke.collectives import CollectiveWrong
from doctor.facts.smoke.training import ReferenceRun
from doctor.smoke.model import Layout
from tests.checks.smoke import collectives, findings_of, learning, root_causes, run_check, training
from tests.checks.trained import DP4, PP2DP2, TP4, Trained, healthy, leading

NAME = "smoke_not_finite"


def bad(trained: Trained, reports: dict[int, str], step: int = 1) -> Trained:
    """What each rank says of the step; after it all is lost."""

    def change(event: Any) -> dict[str, Any] | None:
        if event.step < step:
            return None
        lost = {"loss": None, "grad": None, "grad_local": None}
        return {**lost, "bad": reports.get(event.rank, "parameters") if event.step == step else "activations"}

    trained.ended(lambda event: {"update": dict.fromkeys(event.update)})
    return trained.steps(change)


def test_all_numbers_are_finite() -> None:
    healthy(NAME)


def test_the_rank_that_made_it() -> None:
    trained = bad(Trained(DP4), {2: "gradient"})
    finding = trained.only_finding(NAME)
    assert finding.hosts == ("w2",)
    assert (finding.values["ranks"], finding.values["step"]) == ([2], 1)
    assert str(finding) == (
        "rank 2 (w2; dp2) turned finite numbers into NaN or Inf: the gradient of step 1, before any reduction; "
        "it spread from there to 3 other ranks (in dp4)"
    )
    assert leading(trained) == {NAME}


def test_those_that_were_given_it_are_victims() -> None:
    finding = bad(Trained(TP4), {0: "input", 1: "input", 2: "input", 3: "activations"}).only_finding(NAME)
    assert finding.values["ranks"] == [3]
    assert finding.values["victims"] == "0-2"


def received(trained: Trained, moments: dict[int, tuple[int, int, int]]) -> Trained:
    """Ranks that were given such a number, each with when; all others have it in their parameters alone."""
    bad(trained, dict.fromkeys(moments, "input"))
    return trained.steps(lambda event: {"bad_at": moments.get(event.rank)} if event.step == 1 else None)


def test_a_message_that_changed_in_memory_accuses_no_sender() -> None:
    trained = received(Trained(PP2DP2), {2: (1, 1, 0)})
    assert trained.only_finding(NAME).values["ranks"] == [0, 2]
    trained.steps(lambda event: {"changed": event.rank == 2} if event.step == 1 else None)
    assert trained.only_finding(NAME).values["ranks"] == [2]


@pytest.mark.parametrize(
    ("layout", "moments", "first", "model"),
    [
        (TP4, {0: (1, 0, 9), 1: (1, 0, 13), 2: (1, 0, 5), 3: (1, 0, 9)}, "rank 2", [0, 1, 2, 3]),
        (Layout(dp=2, tp=2), {2: (1, 0, 7), 3: (1, 0, 5)}, "rank 3", [2, 3]),  # others: from the sum of gradients
        (PP2DP2, {1: (2, 0, 7), 3: (2, 1, 0)}, "rank 1", [1, 3]),  # forward: from the first stage to the second
        (PP2DP2, {1: (4, 1, 0), 3: (4, 0, 2)}, "rank 3", [1, 3]),  # backward
        (PP2DP2, {0: (1, 0, 8), 1: (2, 0, 2), 2: (1, 1, 0), 3: (2, 1, 0)}, "rank 0", [0, 2]),
        (TP4, dict.fromkeys(range(4), (1, 0, 5)), "every rank", [0, 1, 2, 3]),
    ],
)
def test_the_rank_that_held_it_first_or_who_sent_it(
    layout: Layout, moments: dict[int, tuple[int, int, int]], first: str, model: list[int]
) -> None:
    finding = received(Trained(layout), moments).only_finding(NAME)
    assert (finding.values["ranks"], finding.values["tie"]) == (model, first != "every rank")
    assert str(finding).startswith(first)
    assert "before any other rank did, in step 1: a collective brought it there" in str(finding)


def test_a_pipeline_hands_it_on() -> None:
    finding = bad(Trained(PP2DP2), {1: "activations", 3: "input"}, step=0).only_finding(NAME)
    assert finding.values["ranks"] == [1]
    assert "pp0 dp1" in finding.values["who"]


def test_good_gradients_and_bad_parameters() -> None:
    finding = bad(Trained(DP4), {}).only_finding(NAME)
    assert "the parameters of every rank are NaN or Inf after step 1: all local gradients were finite before" in str(
        finding
    )


def test_all_at_once_is_arithmetic() -> None:
    finding = bad(Trained(DP4), dict.fromkeys(range(4), "loss")).only_finding(NAME)
    assert str(finding).startswith("every rank turned finite numbers into NaN or Inf: the loss of step 1")


def test_the_learning_stage_may_be_the_first_to_show_it() -> None:
    trained = Trained(Layout(dp=4))
    losses = learning(trained.run, {rank: [4.6, 4.0, None if rank == 3 else 3.5, None] for rank in range(4)})
    [finding] = findings_of(NAME, trained.run, training(trained.run, trained.events), losses)
    assert finding.hosts == ("w2",)
    assert (finding.values["ranks"], finding.values["step"]) == ([3], 2)


def test_what_follows_from_wrong_collectives_is_laid_at_no_host() -> None:
    """All ranks had it at once; one rank alone made it by itself."""
    trained = Trained(Layout(dp=4))
    spoilt = collectives(trained.run, CollectiveWrong(2, 0, "all_reduce", "float32", 1021, -1, 17, 22.0, 44.0, 1021))
    for losses, findings in (([None] * 4, 0), ([3.5, None, 3.5, 3.5], 1)):
        learned = learning(trained.run, {rank: [4.6, losses[rank]] for rank in range(4)})
        outcome = run_check(NAME, trained.run, training(trained.run, trained.events), learned, spoilt)
        assert len(outcome.findings) == findings
        assert findings or root_causes(outcome) == {"smoke-collective-wrong"}


def test_numbers_that_overflow_on_a_rank_follow_from_collectives_that_are_wrong() -> None:
    """A finite number that is huge comes to a rank by a wrong sum, and its own product of it is not finite."""
    finding = bad(Trained(TP4), {0: "gradient"}, 0).only_finding(NAME)
    assert (finding.values["ranks"], finding.explained_by) == ([0], ("smoke-collective-wrong",))


def test_a_rank_that_computes_its_part_otherwise_when_it_does_so_again_explains_what_it_was_given() -> None:
    trained = received(Trained(TP4), {2: (1, 0, 5)})
    assert trained.only_finding(NAME).values["ranks"] == [0, 1, 2, 3]
    trained.spoil(ReferenceRun, lambda event: {"layout": 1.0} if event.rank == 2 else None)
    assert trained.because(NAME) == "smoke-reference-differs"
    assert leading(trained) == {"smoke_reference_differs"}


def test_what_came_to_others_is_explained_by_a_rank_that_departs_from_itself() -> None:
    """It gave them a number that overflowed with them, and not with itself; or a huge one, which did so later."""
    for trained in (received(Trained(TP4), {0: (1, 0, 5), 1: (1, 0, 5)}), bad(Trained(TP4), {0: "activations"}, 1)):
        trained.spoil(ReferenceRun, lambda event: {"layout": 1.0} if event.rank == 3 else None)
        assert trained.because(NAME) == "smoke-reference-differs"
        assert leading(trained) == {"smoke_reference_differs"}
    trained = bad(Trained(TP4), {3: "activations"}, 1)
    trained.spoil(ReferenceRun, lambda event: {"layout": 1.0} if event.rank == 3 else None)
    assert trained.only_finding(NAME).values["ranks"] == [3]
