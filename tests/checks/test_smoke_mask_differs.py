from __future__ import annotations

from typing import Any

import pytest

from doctor.facts.smoke.training import ReferenceRun
from doctor.smoke.model import Layout
from tests.checks.smoke import page
from tests.checks.trained import DP2TP2, DP4, PP2DP2, TP4, Trained, healthy, leading, off

NAME = "smoke_mask_differs"


def drawn(trained: Trained, rank: int, *generators: str, since: int = 0, masks: bool = True) -> Trained:
    """One rank's generators give something else from a step on."""

    def change(event: Any) -> dict[str, Any] | None:
        if event.rank != rank or event.step < since:
            return None
        rng = {name: value + 7_000_000 * (name in generators) for name, value in event.rng.items()}
        return {"rng": rng, "masks": off(event.masks)} if masks else {"rng": rng}

    return trained.steps(change)


def test_the_same_draws_inside_a_model() -> None:
    healthy(NAME)


@pytest.mark.parametrize("layout", [TP4, DP2TP2, PP2DP2, Layout(pp=2, tp=2)], ids=lambda layout: layout.name)
@pytest.mark.parametrize("generator", ["python", "numpy", "torch", "device"])
def test_one_generator_of_one_rank(layout: Layout, generator: str) -> None:
    trained = drawn(Trained(layout), 3, generator)
    finding = trained.only_finding(NAME)
    assert finding.hosts == ("w2",)
    assert finding.values["ranks"] == [3]
    assert finding.values["generators"] == [generator]
    assert finding.values["step"] == 0
    assert leading(trained) == {NAME}


def test_the_message_says_who_where_and_which_generator() -> None:
    finding = drawn(Trained(DP2TP2, DP4), 3, "numpy").only_finding(NAME)
    assert str(finding) == (
        "rank 3 (w2; dp1 tp1) masks other positions than the rest of its model (2-3) from step 0 on: "
        "numpy's draws differ (in all 2 layouts)"
    )
    assert "Generators known to differ: numpy" in page(NAME, finding)


def test_the_first_step_that_differs() -> None:
    assert drawn(Trained(TP4), 1, "torch", since=2).only_finding(NAME).values["step"] == 2


def test_two_ranks_alone_are_decided_by_the_reference_run() -> None:
    finding = drawn(Trained(Layout(tp=2), ranks=2), 0, "python").only_finding(NAME)
    assert finding.values["ranks"] == [0]
    assert not finding.values["tie"]


def test_a_tie_is_said_when_the_twins_differ_too() -> None:
    trained = drawn(Trained(Layout(tp=2), ranks=2), 0, "python")
    trained.spoil(ReferenceRun, lambda event: {"losses": (4.5, 4.4, 4.3, 4.2)} if event.rank == 0 else None)
    finding = trained.only_finding(NAME)
    assert finding.values["tie"]
    assert finding.values["ranks"] == [0, 1]
    assert str(finding).startswith("the ranks 0-1, which hold one model, mask different positions from step 0 on")
    assert leading(trained) == {NAME}


def test_dropout_alone_leaves_the_masks_as_they_are() -> None:
    trained = drawn(Trained(TP4), 2, "dropout", masks=False)
    finding = trained.only_finding(NAME)
    assert finding.values["generators"] == ["dropout"]
    assert finding.values["ranks"] == [2]
    assert "draws other dropout numbers than the rest of its model (0-3)" in str(finding)


def test_a_host_without_numpy() -> None:
    def change(event: Any) -> dict[str, Any] | None:
        rng = {name: value for name, value in event.rng.items() if name != "numpy"}
        return {"rng": rng, "masks": off(event.masks)} if event.rank == 1 else None

    finding = Trained(TP4).steps(change).only_finding(NAME)
    assert (finding.values["ranks"], finding.values["generators"]) == ([1], ["numpy"])


def test_a_data_parallel_rank_is_held_against_the_reference_run() -> None:
    finding = drawn(Trained(DP4), 2, "torch").only_finding(NAME)
    assert finding.values["ranks"] == [2]
    assert "masks other positions than the reference run" in str(finding)


def test_layouts_that_know_the_generator_speak_for_those_that_do_not() -> None:
    finding = drawn(Trained(DP4, TP4), 2, "torch").only_finding(NAME)
    assert finding.values["generators"] == ["torch"]
    assert finding.values["layouts"] == ["dp4", "tp4"]


def test_a_consequence_is_not_reported_twice() -> None:
    trained = drawn(Trained(TP4), 3, "numpy").steps(lambda event: {"loss": event.loss + 0.3, "grad": 2 * event.grad})
    assert leading(trained) == {NAME}
    assert trained.because("smoke_loss_differs") == "smoke-mask-differs"
