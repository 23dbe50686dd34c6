from __future__ import annotations

from typing import Any

import pytest

from doctor.smoke.model import Layout
from tests.checks.trained import DP2TP2, DP4, PP2DP2, TP4, ZERO, Trained, healthy, leading

NAME = "smoke_gradient_summed"


def summed(trained: Trained) -> Trained:
    """From step 0 on gradients are sums, and from step 1 on losses show it."""

    def change(event: Any) -> dict[str, Any]:
        times = trained.layout(event).dp if event.step == 0 else 3.7
        return {"grad": event.grad * times, "loss": event.loss + 0.2 * event.step}

    return trained.steps(change)


def test_means() -> None:
    healthy(NAME)


@pytest.mark.parametrize("layout", [DP4, ZERO, DP2TP2, PP2DP2], ids=lambda layout: layout.name)
def test_sums(layout: Layout) -> None:
    trained = summed(Trained(layout))
    finding = trained.only_finding(NAME)
    assert finding.values["count"] == layout.dp
    assert finding.values["step"] == 0
    assert f"is {float(layout.dp)} times the reference run's: a sum over {layout.dp} data-parallel ranks" in str(
        finding
    )
    assert leading(trained) == {NAME}
    assert trained.because("smoke_loss_differs") == "smoke-gradient-summed"


def test_sums_of_wrong_collectives_are_laid_at_these() -> None:
    """Also where they are no multiple of the mean: one rank's part of them is wrong."""
    assert summed(Trained(DP4)).only_finding(NAME).explained_by == ("smoke-collective-wrong",)


def test_layouts_without_data_parallelism_have_nothing_to_sum() -> None:
    assert not Trained(TP4).findings(NAME)


def test_a_sum_over_micro_batches() -> None:
    trained = Trained(Layout(dp=4, accumulate=2))
    trained.steps(lambda event: {"grad": 2 * event.grad, "grad_local": 2 * event.grad_local})
    assert "a sum over 2 micro-batches" in str(trained.only_finding(NAME))


def test_as_many_micro_batches_as_ranks() -> None:
    """The local gradients tell: a mean of sums is no longer than they are, a sum of means is."""
    layout = Layout(dp=2, accumulate=2)
    over_micro = Trained(layout, ranks=2).steps(
        lambda event: {"grad": 2 * event.grad, "grad_local": 2 * event.grad_local}
    )
    over_ranks = Trained(layout, ranks=2).steps(lambda event: {"grad": 2 * event.grad})
    assert over_micro.only_finding(NAME).values["over"] == "micro-batches"
    assert over_ranks.only_finding(NAME).values["over"] == "data-parallel ranks"


def test_longer_than_any_mean_is_a_sum_whatever_else_is_wrong() -> None:
    trained = Trained(DP4).steps(lambda event: {"grad": 2.9 * event.grad, "masks": (event.rank,)})
    assert "which a mean cannot be" in str(trained.only_finding(NAME))
