from __future__ import annotations

from typing import Any

from doctor.smoke.model import Layout
from tests.checks.trained import DP2TP2, DP4, TP4, Trained, healthy, leading

NAME = "smoke_parameters_diverge"


def test_replicas_are_equal() -> None:
    healthy(NAME)


def test_one_replica_leaves_the_others() -> None:
    trained = Trained(DP4).steps(lambda one: {"params": 1} if one.rank == 2 and one.step >= 2 else None)
    one = trained.one(NAME)
    assert one.hosts == ("w2",)
    assert (one.values["ranks"], one.values["step"]) == ([2], 2)
    assert str(one).startswith(
        "after step 2 rank 2 (w2; dp2) holds other parameters than the rest of data-parallel group"
    )
    assert leading(trained) == {NAME}


def test_of_two_replicas_none_has_a_majority() -> None:
    trained = Trained(Layout(dp=2), ranks=2).steps(lambda one: {"params": 1} if one.rank and one.step >= 1 else None)
    one = trained.one(NAME)
    assert one.values["tie"]
    assert one.values["ranks"] == [0, 1]


def test_whole_tensors_part_in_every_tensor_parallel_group() -> None:
    def change(one: Any) -> dict[str, Any] | None:
        return {"replicated": one.replicated + 50 * trained.place(one)[2]}

    trained = Trained(DP2TP2, TP4)
    one = trained.steps(change).one(NAME)
    assert one.values["layouts"] == ["dp2 tp2", "tp4"]
    assert "most likely the backward pass lacks an all-reduce over the tensor-parallel group" in str(one)


def test_one_rank_of_a_tensor_parallel_group() -> None:
    trained = Trained(TP4).steps(lambda one: {"replicated": 3} if one.rank == 1 else None)
    one = trained.one(NAME)
    assert one.values["ranks"] == [1]
    assert "values of the unsharded tensors" in str(one)


def test_one_tensor_parallel_rank_begins_otherwise() -> None:
    trained = Trained(TP4).begun(lambda one: {"replicated": 3} if one.rank == 1 else None)
    trained.steps(lambda one: {"loss": one.loss + 0.2})
    one = trained.one(NAME)
    assert one.values["ranks"] == [1]
    assert one.values["before"]
    assert "before the first step" in str(one)
    assert leading(trained) == {NAME}


def test_gradients_that_differ_come_first() -> None:
    trained = Trained(DP4).steps(lambda one: {"params": 1, "grad_digest": 1} if one.rank == 2 else None)
    assert leading(trained) == {"smoke_gradient_not_synchronised"}
    assert trained.because(NAME) == "smoke-gradient-not-synchronised"
