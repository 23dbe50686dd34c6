"""Wrong numbers of a sharded optimizer are laid at the rank that made them, and not at those that hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from doctor.facts.smoke.events import RankEvent
from doctor.facts.smoke.further_stages import LearnedParameters
from doctor.facts.smoke.training import ShardedStep
from doctor.smoke.model import Layout
from doctor.smoke.numerics.optimizer_shards import ShardFault, first_fault
from tests.checks.smoke import learned, ran, run_check
from tests.checks.trained import ZERO, Trained
from tests.smoke.ranks import Ranks, worker
from tests.smoke.sharded import PLACES, Fault, carry_out

HOSTS = {rank: f"w{rank // 2}" for rank in range(6)}
RIGHT = {"altered": 0.0, "summed": 0.0, "held": 5}


def told(changes: Mapping[int, Mapping[str, Any]], ranks: int = 6, step: int = 1) -> dict[int, ShardedStep]:
    """One step of all ranks, right but for these fields."""
    return {rank: ShardedStep(rank, 0, step, **{**RIGHT, **changes.get(rank, {})}) for rank in range(ranks)}


def fault_of(changes: Mapping[int, Mapping[str, Any]], ranks: int = 6) -> ShardFault | None:
    return first_fault({1: told(changes, ranks), 0: told({}, ranks, 0)}, [tuple(range(ranks))], HOSTS)


EVERYBODY = tuple(range(6))
CASES: list[tuple[Mapping[int, Mapping[str, Any]], tuple[str, tuple[int, ...], bool] | None]] = [
    ({}, None),
    # A sum that is wrong on others, of a gradient that changed where it was computed.
    ({4: {"altered": 0.1}, 1: {"summed": 0.3}}, ("given", (4,), False)),
    # A library that adds in the buffer that it was given.
    ({rank: {"altered": 0.9} for rank in range(6)}, None),
    (
        {**{rank: {"altered": 0.9} for rank in range(6)}, 3: {"altered": 0.9, "summed": 0.2}},
        ("reduced", EVERYBODY, True),
    ),
    # Whoever sent it, of a sum that goes from rank to rank.
    ({3: {"summed": 0.2}}, ("reduced", EVERYBODY, True)),
    ({2: {"summed": 0.2}, 3: {"summed": 0.1}}, ("reduced", EVERYBODY, True)),
    ({1: {"summed": 0.2}, 5: {"summed": 0.1}}, ("reduced", EVERYBODY, True)),
    # Of all ranks alike: the program.
    ({rank: {"summed": 0.5} for rank in range(6)}, None),
    # Or the rank before it in the ring, but where its own shard, which nobody sends it, is wrong as well.
    ({4: {"held": 7}}, ("received", (3, 4), True)),
    ({2: {"held": 7}, 4: {"held": 8}}, ("received", EVERYBODY, True)),
    ({1: {"kept": False}}, ("sent", (1,), False)),
    ({1: {"kept": False, "held": 7}}, ("received", (1,), False)),
    # What changes in the memory of a rank is wrong where it alone does, and not where that of most does.
    ({1: {"altered": 2e-9}, 3: {"altered": 1e-9}}, ("given", (1, 3), False)),
    ({rank: {"altered": 2e-9} for rank in (0, 1, 3)}, None),
    # What is told of a sum is beyond what rounding may do.
    ({5: {"summed": 3e-8}}, ("reduced", EVERYBODY, True)),
    ({0: {"summed": 3e-8}, 1: {"summed": 2e-8}}, ("reduced", EVERYBODY, True)),
    ({rank: {"summed": 3e-8} for rank in (0, 3, 4)}, ("reduced", EVERYBODY, True)),
]


@pytest.mark.parametrize(("changes", "expected"), CASES, ids=range(len(CASES)))
def test_the_maker_is_named(
    changes: Mapping[int, Mapping[str, Any]], expected: tuple[str, tuple[int, ...], bool] | None
) -> None:
    fault = fault_of(changes)
    assert (fault and (fault.place, fault.ranks, fault.tie)) == expected


def test_sums_that_are_wrong_on_one_rank_alone_in_step_after_step_are_its_own() -> None:
    def fault(*wrong: int, group: tuple[int, ...] = EVERYBODY) -> ShardFault | None:
        steps = {step: told({rank: {"summed": 3e-8}}, step=step) for step, rank in enumerate(wrong)}
        return first_fault(steps, [group], HOSTS)

    own = ("reduced", (5,), False)
    cases = {(5,): False, (5, 5): True, (5, 5, 5): True, (5, 5, 4): False, (5, 1, 5, 5): False}
    for wrong, is_own in cases.items():
        found = fault(*wrong)
        assert found and ((found.place, found.ranks, found.tie) == own) is is_own
    of_two = fault(*[5] * 9, group=(4, 5))
    assert of_two and (of_two.ranks, of_two.tie) == ((4, 5), True)


def test_of_two_ranks_it_is_either_what_one_sent_or_what_the_other_got() -> None:
    """The sender's own copy, where it is wrong too, tells."""
    either, sender = fault_of({1: {"held": 7}}, 2), fault_of({0: {"kept": False}}, 2)
    assert either and (either.ranks, either.tie) == ((0, 1), True)
    assert sender and (sender.place, sender.ranks, sender.tie) == ("sent", (0,), False)


def test_a_wrong_sum_explains_the_loss_of_the_next_step() -> None:
    trained = Trained(ZERO).steps(lambda event: {"loss": event.loss + 0.2, "params_error": 0.1} if event.step else {})
    events: list[RankEvent] = [ShardedStep(rank, 0, 0, **RIGHT) for rank in range(4)]
    trained.events += [*events[:3], ShardedStep(3, 0, 0, **{**RIGHT, "altered": 0.1})]
    finding = trained.only_finding("smoke_gradient_not_synchronised")
    assert (finding.values["ranks"], finding.hosts) == ([3], ("w2",))
    assert str(finding).startswith("the gradient of rank 3 (w2; dp3) changed in memory by 0.1 of its norm in step 0")
    assert not trained.findings("smoke_parameters_diverge")
    right = Trained(ZERO)
    right.events += events
    assert not right.findings("smoke_gradient_not_synchronised")


def test_what_the_learning_stage_kept_names_the_rank_too() -> None:
    run = ran(4, 2, layouts=(Layout(dp=4, zero=True),))
    held: list[RankEvent] = [LearnedParameters(rank, 0, 0, 5, 0, 10, 0.3) for rank in range(4)]
    told: list[RankEvent] = [
        ShardedStep(rank, -1, 2, **{**RIGHT, "altered": 0.2 if rank == 1 else 0.0}) for rank in range(4)
    ]
    [finding] = run_check("smoke_learning_differs", run, learned(run, held + told)).findings
    assert (finding.values["ranks"], finding.hosts) == ([1], ("w1",))
    assert str(finding).startswith("while it learned: the gradient of rank 1 changed in memory by 2.0e-01")
    assert not run_check("smoke_learning_differs", run, learned(run, held)).findings


@pytest.mark.torch
@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_a_sum_is_right_to_the_edge_of_what_rounding_may_do(count: int) -> None:
    """In any order, also where the addends cancel out or are hardly numbers; one step behind the edge it is wrong."""
    torch, wrong_sums, bound = (worker()[name] for name in ("torch", "wrong_sums", "rounding_bound"))
    addends = torch.randn(count, 3, 999, generator=torch.Generator().manual_seed(count))
    addends[:, 1] *= torch.tensor([-1.0, 1.0]).repeat(count)[:count, None] * 1e6
    addends[:, 2] *= 1e-40
    exact, limit = addends.double().sum(0), bound(addends.double(), addends.dtype)
    parts = list(addends)
    while len(parts) > 1:  # a tree
        parts = [sum(parts[at : at + 2]) for at in range(0, len(parts), 2)]
    orders = [addends.sum(0), *parts, sum(addends), sum(reversed(addends))]
    shuffled = addends.gather(0, torch.rand(addends.shape).argsort(0))
    orders.append(shuffled.cumsum(0)[-1])
    for sums in orders:
        assert wrong_sums((sums / count).double() * count, addends.double(), addends.dtype) == [0.0] * 3
    for row in range(3):
        for share, is_wrong in ((0.999, False), (1.001, True)):
            sums = exact.clone()
            sums[row, 7] += share * limit[row, 7]
            found = wrong_sums(sums, addends.double(), addends.dtype)
            assert [error > 0 for error in found] == [is_wrong and each == row for each in range(3)]
    assert wrong_sums(exact.fill_(math.nan), addends.double(), addends.dtype) == [1.0] * 3
    addends[0] = math.inf
    assert wrong_sums(exact, addends.double(), addends.dtype) == [0.0] * 3


ONCE = {"scattered": "vague"}


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.sample
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("stage", ["training", "learning"])
def test_real_ranks(place: str, stage: str) -> None:
    judged = carry_out(Fault(place, "negated", 4, 1, 2, 1, 1, stage, 7, False), 3)
    # A sum that is wrong once may have changed on any rank, and what one rank got otherwise on its way.
    assert judged.verdict == ONCE.get(place, "right"), judged


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.sample
def test_a_wrong_sum_behind_the_first_steps_that_hardly_changes_what_is_learned() -> None:
    judged = carry_out(Fault("scattered", "row", 2, 2, 1, 27, 27, "learning", 300, False), 3)
    assert judged.verdict == "one of", judged


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.sample
@pytest.mark.parametrize("stage", ["training", "learning"])
def test_a_low_bit_of_a_sum(stage: str) -> None:
    judged = carry_out(Fault("scattered", "bit", 3, 1, 1, 2, 2, stage, 4 * 300, False), 3)
    assert judged.verdict == "vague", judged


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.parametrize("world", [2, 3])
def test_right_sums_are_not_told(world: int) -> None:
    ranks = Ranks(world, ["training", "learning"], layouts=[Layout(dp=world, zero=True)], learn_steps=30)
    assert len(ranks.of("learned")) == world
    assert not ranks.of("sharded")


def test_a_number_that_flipped_to_a_huge_one_is_far_though_its_square_is_not_finite() -> None:
    torch, distance, exceeds = (worker()[name] for name in ("torch", "relative_distance", "exceeds"))
    expected = torch.ones(8)
    values = expected.clone()
    values[3] = 7e19
    assert exceeds(1e-5, [distance(values, expected)])
    assert distance(expected, 0 * expected) is None
    assert distance(expected * float("nan"), expected) is None
