from __future__ import annotations

from typing import Any

from doctor.facts.smoke.training import ReferenceRun
from doctor.smoke.model import Layout
from tests.checks.smoke import page
from tests.checks.trained import DP2TP2, DP4, PP2DP2, TP4, ZERO, Trained, healthy, leading

NAME = "smoke_loss_differs"


def loss_off(trained: Trained, since: int = 0, by: float = 0.2) -> Trained:
    return trained.steps(lambda event: {"loss": event.loss + by} if event.step >= since else None)


def gradient_off(trained: Trained, since: int = 0) -> Trained:
    return trained.steps(lambda event: {"grad": event.grad * 0.9} if event.step >= since else None)


def parted(trained: Trained) -> Trained:
    """Tensors that are not cut have other values on every tensor-parallel rank."""
    return trained.steps(lambda event: {"replicated": event.replicated + 50 * trained.place(event)[2]})


def test_all_layouts_are_the_reference_run() -> None:
    healthy(NAME)


def test_rounding_is_no_difference() -> None:
    assert not loss_off(Trained(), by=4e-6).findings(NAME)
    assert loss_off(Trained(), by=2e-3).findings(NAME)


def test_devices_that_multiply_with_fewer_bits_may_be_off_by_more() -> None:
    trained = loss_off(Trained(), by=4e-3).spoil(ReferenceRun, lambda event: {"precision": 4e-4})
    assert not trained.findings(NAME)
    assert loss_off(trained, by=0.08).findings(NAME)


def test_no_all_reduce_forward() -> None:
    trained = parted(loss_off(Trained(TP4, DP2TP2)))
    finding = trained.only_finding(NAME)
    assert "most likely the forward pass lacks an all-reduce over the tensor-parallel group" in str(finding)
    assert leading(trained) == {NAME}


def test_permuted_shards_leave_whole_tensors_alike() -> None:
    finding = loss_off(Trained(TP4, DP2TP2)).only_finding(NAME)
    assert "permuted shards" in finding.values["likely"]


def passing(trained: Trained, step: int = 0, came: int = 1, changed: int = -1) -> Trained:
    """Stage 0 of rank 0 sends to rank 2, which holds what ``came`` tells from ``step`` on; pp2 dp2."""

    def messages(event: Any) -> dict[str, Any]:
        late = event.step >= step
        return {
            "sent": {2: 1} if event.rank == 0 else {},
            "received": {0: came if late else 1} if event.rank == 2 else {},
            "changed": late and event.rank == changed,
        }

    return trained.steps(messages)


def test_a_loss_is_laid_at_those_between_whom_a_message_changed() -> None:
    trained = passing(loss_off(Trained(PP2DP2), since=1), step=1, came=9)
    finding = trained.only_finding(NAME)
    assert finding.values["ranks"] == [0, 2] and finding.values["tie"]
    assert "likely a message between pipeline stages changed in step 1 between the memory of ranks 0, 2" in str(finding)
    finding = passing(loss_off(Trained(PP2DP2), since=1), step=1, came=9, changed=2).only_finding(NAME)
    assert finding.values["ranks"] == [2] and not finding.values["tie"]
    assert "changed in step 1 in the memory of rank 2" in str(finding)
    no_loss = passing(Trained(PP2DP2), step=1, came=9).only_finding(NAME)
    assert no_loss.values["ranks"] == [0, 2] and str(no_loss).startswith("a message between pipeline stages changed in")
    assert not passing(Trained(PP2DP2), step=1, came=1).findings(NAME)


def test_a_message_that_changed_later_or_not_at_all_explains_no_loss() -> None:
    for trained in (passing(Trained(PP2DP2)), passing(Trained(PP2DP2), step=2, came=9)):
        assert len(loss_off(trained, since=1).only_finding(NAME).values["ranks"]) == 4


def test_no_all_reduce_backward() -> None:
    """The loss of step 0 is right, its gradient is not."""
    trained = parted(loss_off(gradient_off(Trained(TP4)), since=1))
    finding = trained.only_finding(NAME)
    assert "the backward pass lacks an all-reduce" in finding.values["likely"]
    assert "the loss is right" in str(finding)
    assert leading(trained) == {NAME}


def test_a_shifted_zero_shard() -> None:
    """The gradient of step 0 is right too."""
    trained = Trained(DP4, ZERO)
    trained.steps(lambda event: {"loss": event.loss + 0.2} if trained.layout(event).zero and event.step else None)
    finding = trained.only_finding(NAME)
    assert "updates another shard" in finding.values["likely"]
    assert finding.values["layouts"] == ["dp4 zero1"]
    assert "; only with ZeRO-1; most likely" in str(finding)


def test_other_parameters_at_the_start_are_seen_in_every_layout() -> None:
    trained = loss_off(Trained(DP4, TP4, PP2DP2)).begun(
        lambda event: {"params": event.params + 1, "before": event.before + 1}
    )
    finding = trained.only_finding(NAME)
    assert "rank 0 begins with other parameters than its reference run" in str(finding)
    assert finding.values["layouts"] == ["dp4", "tp4", "pp2 dp2"]


def test_a_learning_rate_that_is_too_high() -> None:
    trained = loss_off(Trained(DP4), since=1)
    trained.ended(lambda event: {"update": {name: 1.21 * square for name, square in event.update.items()}})
    assert "1.1 times as large as they should be" in trained.only_finding(NAME).values["likely"]


def test_updates_of_the_right_size_are_no_learning_rate() -> None:
    """It was said that they are 1 time as large as they should be."""
    trained = loss_off(Trained(DP4), since=1)
    trained.ended(lambda event: {"update": {name: 1.002 * square for name, square in event.update.items()}})
    assert "was right in size, and is not what" in trained.only_finding(NAME).values["likely"]


def test_pipelines_and_recomputing() -> None:
    assert (
        "a pipeline stage works on other activations" in loss_off(Trained(PP2DP2)).only_finding(NAME).values["likely"]
    )
    again = Layout(dp=4, recompute=True)
    assert "computed again" in gradient_off(Trained(again)).only_finding(NAME).values["likely"]


def test_the_message_and_the_page() -> None:
    finding = loss_off(Trained(DP2TP2)).only_finding(NAME)
    assert str(finding).startswith(
        "the loss of step 0 is 4.8, the reference run's 4.6; most likely a tensor-parallel rank"
    )
    assert "most likely\na tensor-parallel rank holds another slice" in page(NAME, finding)


def test_a_layout_that_is_off_beside_one_with_a_root_is_explained_by_it() -> None:
    def change(event: Any) -> dict[str, Any] | None:
        broken = {"loss": event.loss + 0.2}
        return {**broken, "ids": (1, *event.ids[1:])} if trained.layout(event) == DP4 and event.rank == 3 else broken

    trained = Trained(DP4, TP4)
    trained.steps(change)
    assert leading(trained) == {"smoke_shards_wrong"}
    assert trained.because(NAME) == "smoke-shards-wrong"


def own_loss_off(trained: Trained, *ranks: int, since: int = 0) -> Trained:
    """By 1 % of what the reference run has for the same blocks."""
    errors = dict.fromkeys(ranks, 1e-2)
    return trained.steps(lambda event: {"loss_error": errors.get(event.rank, 2e-7) if event.step >= since else 2e-7})


def test_one_of_two_that_compute_the_same_loss() -> None:
    finding = own_loss_off(Trained(DP2TP2), 3).only_finding(NAME)
    assert (finding.values["ranks"], finding.hosts, finding.values["tie"]) == ([3], ("w2",), False)


def test_one_rank_of_very_many_is_judged_by_its_own_blocks() -> None:
    """The mean of 64 losses is off by 1.6e-4 of 1 %: the rank's own loss tells."""
    trained = own_loss_off(Trained(Layout(dp=64), ranks=64), 9, since=1)
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.values["step"], finding.values["tie"]) == ([9], 1, False)
    assert str(finding).startswith(
        "the loss of rank 9 (w1; dp9) in step 1 differs from the reference run's of the same"
    )


def test_where_all_ranks_of_one_model_have_a_wrong_loss_it_is_one_of_them() -> None:
    finding = own_loss_off(Trained(DP2TP2), 2, 3).only_finding(NAME)
    assert finding.values["ranks"] == [2, 3] and not finding.values["tie"]
    assert finding.explained_by == ("smoke-collective-wrong",), "where that of one of them is"
    assert not own_loss_off(Trained(DP2TP2), 3).only_finding(NAME).explained_by
    trained = Trained(PP2DP2).steps(lambda event: {"loss_error": None if event.rank < 2 else 1e-2 * (event.rank == 3)})
    finding = trained.only_finding(NAME)
    assert finding.values["ranks"] == [1, 3] and finding.values["tie"]
    assert "one of the ranks of its model computes something else" in str(finding)


def test_own_losses_that_are_wrong_on_every_rank_blame_the_program() -> None:
    assert not own_loss_off(Trained(DP4), 0, 1, 2, 3).findings(NAME)
    finding = own_loss_off(loss_off(Trained(DP4)), 0, 1, 2, 3).only_finding(NAME)
    assert finding.values["ranks"] == [0, 1, 2, 3] and "most likely" in str(finding)


def test_a_norm_that_is_off_where_each_rank_found_its_gradient_right_says_nothing_of_a_transfer() -> None:
    def events(error: float) -> Trained:
        return Trained(ZERO).steps(lambda event: {"grad": event.grad * (1 + event.rank / 100), "grad_error": error})

    assert not events(2e-7).findings("smoke_loss_differs")
    assert events(2e-2).findings("smoke_loss_differs")
