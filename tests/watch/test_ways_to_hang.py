"""Kinds of hangs and of healthy waits that were once confused. All: `python -m tests.watch.hang_campaign`."""

from __future__ import annotations

import pytest

from doctor.smoke.programs.recorder_page import MOST_TAGS, ends_of, message_group
from tests.watch.hang_campaign import conduct


@pytest.mark.full
@pytest.mark.parametrize("kind", ["groups_in_other_order", "other_tag"])
def test_a_circle_needs_no_time_limit(kind: str) -> None:
    trial = conduct(kind)
    assert trial.verdict == "right" and trial.findings[0][0] == "smoke-collective-order"
    assert trial.seconds < 30


@pytest.mark.full
def test_a_server_that_was_not_asked_yet_is_left_alone() -> None:
    trial = conduct("waits_for_requests", patience=3.0, LONG="12")
    assert trial.verdict == "left alone", trial


def test_a_rank_whose_thread_loads_ahead_is_still_in_its_collective() -> None:
    """The loader's marks of that thread are no end of the main thread's all_reduce, which the other has not entered."""
    trial = conduct("feeder_ends", patience=4.0)
    assert (trial.verdict, trial.findings[0][:2]) == ("right", ("smoke-rank-blocked", (1,))), trial
    assert "keeps the others waiting in all_reduce" in trial.findings[0][2]


def test_messages_of_one_tag_have_a_group_of_their_own() -> None:
    numbers = {message_group(a, b, 3, tag): (a, b, tag) for a in range(3) for b in range(3) for tag in range(MOST_TAGS)}
    assert len(numbers) == 9 * MOST_TAGS
    assert all(ends_of(number, 3) == ends for number, ends in numbers.items())


@pytest.mark.parametrize(
    ("value", "gradient", "rate", "dtype", "adaptive", "must"),
    [
        (0.1, 1e-2, 1e-2, "float32", False, True),
        (0.1, 1e-9, 1e-2, "float32", False, False),  # as of a bias before a normalization
        (1.0, 1e-2, 1e-5, "bfloat16", True, False),
        (1.0, 1e-9, 1e-3, "float32", True, True),
        (0.0, 1e-9, 1e-3, "float32", False, True),
        (0.1, 1e-9, 0.0, "float32", False, True),
        (0.1, 0.0, 1e-2, "float32", False, False),
        (0.1, 0.0, 1e-2, "float32", True, False),
    ],
)
def test_a_tensor_must_move_where_a_step_is_more_than_its_dtype_rounds_away(
    value: float, gradient: float, rate: float, dtype: str, adaptive: bool, must: bool
) -> None:
    import torch

    from doctor.watch.hook.gradient_sketch import should_move

    kind = getattr(torch, dtype)
    tensor = torch.full((4,), value, dtype=kind, requires_grad=True)
    tensor.grad = torch.full((4,), gradient, dtype=kind)
    optimizer = torch.optim.SGD([tensor], lr=rate)
    if adaptive:
        optimizer.state[tensor] = {"exp_avg_sq": torch.zeros(4)}
    assert should_move(torch, [optimizer], tensor) is must


def test_a_tensor_that_no_optimizer_holds_counts_with_any_gradient() -> None:
    import torch

    from doctor.watch.hook.gradient_sketch import should_move

    tensor = torch.ones(4, requires_grad=True)
    tensor.grad = torch.full((4,), 1e-9)
    assert should_move(torch, [], tensor)
