from __future__ import annotations

from typing import Any

from doctor.facts.smoke.training import ReferenceUpdate
from doctor.smoke.model import Layout
from tests.checks.smoke import page
from tests.checks.trained import DP4, TP4, Trained, healthy, leading

NAME = "smoke_update_missing"


def still(*tensors: str, ranks: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    def change(event: Any) -> dict[str, Any] | None:
        kept = {name: 0.0 if name in tensors or not tensors else square for name, square in event.update.items()}
        return {"update": kept} if event.rank in ranks else None

    return change


def test_everything_moves() -> None:
    healthy(NAME)


def test_a_learning_rate_of_0() -> None:
    trained = Trained(DP4, TP4).ended(still()).steps(lambda event: {"loss": 4.6})
    finding = trained.only_finding(NAME)
    assert str(finding) == (
        "every rank changed no parameter in 4 steps, although the gradient had a norm of 1.5 (in all 2 layouts)"
    )
    assert leading(trained) == {NAME}
    assert trained.because("smoke_loss_differs") == "smoke-update-missing"


def test_one_tensor_is_frozen() -> None:
    finding = Trained(DP4, TP4).ended(still("block0.mlp")).only_finding(NAME)
    assert finding.values["tensors"] == ["block0.mlp"]
    assert str(finding).startswith("block0.mlp did not move in 4 steps on every rank; the reference run's did")
    assert "- Some parameters: is `requires_grad` off" in page(NAME, finding)


def test_it_is_frozen_on_one_rank() -> None:
    finding = Trained(DP4).ended(still("head", ranks=(2,))).only_finding(NAME)
    assert finding.values["ranks"] == [2]
    assert finding.hosts == ("w2",)


def test_one_rank_never_updates() -> None:
    trained = Trained(DP4).ended(still(ranks=(1,))).steps(lambda event: {"params": 1} if event.rank == 1 else None)
    finding = trained.only_finding(NAME)
    assert finding.values["ranks"] == [1]
    assert leading(trained) == {NAME}


def test_what_the_reference_run_does_not_move_either_is_well() -> None:
    trained = Trained(DP4).ended(still("head"))
    trained.spoil(ReferenceUpdate, lambda event: {"update": {**event.update, "head": 0.0}})
    assert not trained.findings(NAME)


def test_a_shard_that_stays_behind_is_of_the_rank_that_updates_nothing_elsewhere() -> None:
    sharded = Layout(dp=4, zero=True)
    of_all = still("head")
    trained = Trained(DP4, sharded).ended(of_all)
    assert trained.only_finding(NAME).hosts == ("w1", "w2")
    never = still(ranks=(1,))
    trained = Trained(DP4, sharded).ended(lambda event: never(event) if event.layout == 0 else of_all(event))
    assert trained.only_finding(NAME).values["ranks"] == [1]
