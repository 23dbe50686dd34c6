from __future__ import annotations

from typing import Any

from tests.checks.smoke import page
from tests.checks.trained import DP2TP2, DP4, TP4, Trained, healthy, leading

NAME = "smoke_parameters_not_broadcast"


def test_all_ranks_have_the_parameters_of_rank_0() -> None:
    healthy(NAME)


def test_no_rank_received_the_parameters() -> None:
    trained = Trained(DP4, DP2TP2, TP4).begun(lambda event: {"params": event.before})
    finding = trained.only_finding(NAME)
    assert finding.values["layouts"] == ["dp4", "dp2 tp2"]
    assert str(finding).startswith(
        "after the first broadcast every rank but the first of its data-parallel group has the same"
    )
    assert leading(trained) == {NAME}


def test_one_rank_did_not() -> None:
    finding = Trained(DP4).begun(lambda event: {"params": event.before} if event.rank == 2 else None).only_finding(NAME)
    assert finding.hosts == ("w2",)
    assert finding.values["ranks"] == [2]
    assert str(finding) == (
        "after the first broadcast rank 2 (w2; dp2) has the same parameters as before it; expected those of rank 0, "
        "the first of the group (in dp4)"
    )
    assert "0 is a global rank" in page(NAME, finding).replace("\n", " ")


def test_the_parameters_of_another_rank() -> None:
    def change(event: Any) -> dict[str, Any]:
        return {"params": 7501}

    finding = Trained(DP4).begun(change).only_finding(NAME)
    assert "has the parameters that another rank made" in str(finding)


def test_parameters_corrupted_in_transit() -> None:
    finding = Trained(DP4).begun(lambda event: {"params": 1} if event.rank == 3 else None).only_finding(NAME)
    assert (finding.values["ranks"], finding.values["tie"]) == ([1, 3], True)  # its parent in the tree is rank 1
    assert "rank 3 (w2; dp3) has parameters that no rank made" in str(finding)
    assert "it changed there, or on its way from rank 1 (w1)" in str(finding)


def test_parameters_that_changed_in_memory_behind_the_broadcast_accuse_no_sender() -> None:
    trained = Trained(DP4).begun(lambda event: {"params": 1, "kept": False} if event.rank == 3 else None)
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.values["tie"]) == ([3], False)
    assert str(finding).endswith("the first of the group; it changed there after it had come (in dp4)")


def test_later_differences_follow_from_it() -> None:
    trained = Trained(DP4).begun(lambda event: {"params": event.before})
    trained.steps(lambda event: {"params": event.params + event.rank, "loss": event.loss + 0.1})
    assert leading(trained) == {NAME}
    assert trained.because("smoke_loss_differs") == "smoke-parameters-not-broadcast"
