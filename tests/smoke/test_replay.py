"""What a rank computed wrongly once, in real ranks: found when it does its part of the layouts again, alone."""

from __future__ import annotations

import pytest

from doctor.smoke.model import Layout
from tests.smoke.corrupted import outcomes_of
from tests.smoke.ranks import Ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
HOSTS = ["w0", "w1"]
KINDS = ("repeated", "layout", "formula")
ONCE = """
def strikes(calls=[0]):
    calls[0] += 1
    return calls[0] == {call}


def spoiled(tensor):
    return tensor + 0.05 * torch.arange(tensor.numel()).remainder(3).view_as(tensor)


class Struck:
    @staticmethod
    def embed(self, inputs):
        x = as_before["embed"](self, inputs)
        return spoiled(x) if self.comm and strikes() else x

    @staticmethod
    def layer(self, *rest):
        x = as_before["layer"](self, *rest)
        return spoiled(x) if self.comm and strikes() else x

    @staticmethod
    def reduce_gradient(self):
        gradient = as_before["reduce_gradient"](self)
        return gradient.copy_(spoiled(gradient)) if self.comm and strikes() else gradient

    @staticmethod
    def update(self, *rest):
        as_before["update"](self, *rest)
        if ({alone} or self.comm) and strikes():
            self.flat.copy_(spoiled(self.flat))

    @staticmethod
    def all_reduce(self, tensor, *rest, **more):
        as_before["all_reduce"](self, tensor, *rest, **more)
        if tensor.is_floating_point() and tensor.numel() > 5000 and training[0] and strikes():
            tensor.copy_(spoiled(tensor))


owner = TracedComm if {place!r} == "all_reduce" else Model
as_before, training, plain_rank, plain_step = {{}}, [False], run_rank, train_step
as_before[{place!r}] = getattr(owner, {place!r})


def train_step(*arguments):
    training[0] = True
    return plain_step(*arguments)


def run_rank(orders, rank, *rest):
    if rank == {rank}:
        setattr(owner, {place!r}, getattr(Struck, {place!r}))
    return plain_rank(orders, rank, *rest)
"""


def run_of(layout: Layout, place: str, rank: int, call: int, alone: bool = False) -> Ranks:
    faults = ONCE.format(place=place, rank=rank, call=call, alone=alone)
    return Ranks(2, ["training", "learning"], faults, layouts=[layout], hosts=HOSTS, learn_steps=10)


@pytest.mark.parametrize(
    ("layout", "place", "rank", "call", "stage"),
    [
        (Layout(pp=2), "embed", 0, 3, "training"),
        (Layout(pp=2), "layer", 1, 3, "training"),
        (Layout(tp=2), "layer", 0, 25, "learning"),
        (Layout(pp=2), "update", 1, 8, "learning"),
        (Layout(dp=2), "reduce_gradient", 1, 2, "training"),
        (Layout(dp=2, zero=True), "layer", 0, 4, "training"),
    ],
)
def test_its_host_alone_is_named(layout: Layout, place: str, rank: int, call: int, stage: str) -> None:
    ranks = run_of(layout, place, rank, call)
    name = "smoke-reference-differs" if stage == "training" else "smoke-learning-differs"
    outcomes = outcomes_of(ranks, HOSTS)
    assert {host for some in outcomes.values() for hosts, _ in some for host in hosts} == {HOSTS[rank]}, outcomes
    [(_, text)] = outcomes[name]
    assert ("does not repeat" if stage == "training" else "computed their part of it again") in text


def test_a_reference_run_that_changed_in_memory_is_named_though_its_gradients_are_right() -> None:
    outcomes = outcomes_of(run_of(Layout(pp=2), "update", 0, 1, alone=True), HOSTS)
    assert {hosts for some in outcomes.values() for hosts, _ in some} == {("w0",)}, outcomes


EACH_TIME = """
rank_as_before = run_rank


def run_rank(orders, rank, events, recorder):
    norm, gelu = torch.layer_norm, torch.nn.functional.gelu

    def other_epsilon(x, *rest):
        return norm(x, *rest, eps=1e-2)

    def wrong_backward(x, *rest):
        y = norm(x, *rest)
        return 1.1 * y - 0.1 * y.detach()

    def other_batch(self, *rest):
        as_told(self, *rest)
        self.{tensor} = self.{tensor}.flip(0, 1) if self.dropout_scale is not None else self.{tensor}

    def half_an_update(self, gradient, optimizer):
        as_updated(self, gradient * (0.5 if self.comm else 1), optimizer)

    def stale_gradient(self, batch):
        before = self.gradient.clone()
        loss = as_run(self, batch)
        if self.comm and self.mesh.dp > 1:
            self.gradient.add_(0.3 * before if before.any() else 1e-3)
        return loss

    as_told, as_updated, as_run = Batch.__init__, Model.update, Model.forward_backward

    def narrow_float32(x):
        return gelu(x) * (1.05 if x.dtype == torch.float32 and x.shape[-1] == 32 else 1)

    if rank == 1:
        {owner} = {function}
    return rank_as_before(orders, rank, events, recorder)
"""


@pytest.mark.parametrize(
    ("layout", "owner", "function", "found_by"),
    [
        (Layout(dp=2), "Batch.__init__", "other_batch inputs", "formula"),
        (Layout(tp=2), "Batch.__init__", "other_batch dropout_scale", "formula"),
        (Layout(pp=2), "Batch.__init__", "other_batch targets", "formula"),
        (Layout(tp=2), "Model.update", "half_an_update", "layout"),
        (Layout(dp=2, zero=True), "Model.update", "half_an_update", "layout"),
        (Layout(dp=2), "Model.forward_backward", "stale_gradient", "formula"),
        (Layout(dp=2, zero=True), "Model.forward_backward", "stale_gradient", "formula"),
        (Layout(dp=2), "torch.layer_norm", "other_epsilon", "formula"),
        (Layout(dp=2), "torch.layer_norm", "wrong_backward", "formula"),
        # Wrong for one shape and type: the reference run, which has other shapes, is right.
        (Layout(tp=2), "torch.nn.functional.gelu", "narrow_float32", "layout"),
    ],
)
def test_who_computes_wrongly_each_time_is_told_of_two(
    layout: Layout, owner: str, function: str, found_by: str
) -> None:
    function, tensor = (*function.split(), "inputs")[:2]
    faults = EACH_TIME.format(owner=owner, function=function, tensor=tensor)
    ranks = Ranks(2, ["training", "learning"], faults, layouts=[layout], hosts=HOSTS, learn_steps=10)
    wrong = [(event["rank"], name) for event in ranks.of("reference-repeated") for name in KINDS if event[name] > 1e-4]
    assert wrong == [(1, found_by)]
    outcomes = outcomes_of(ranks, HOSTS)
    assert {hosts for some in outcomes.values() for hosts, _ in some} == {("w1",)}, outcomes


def test_what_a_collective_brings_is_not_of_the_ranks_own_making() -> None:
    """It comes to the same when it is done again with the same sums."""
    ranks = run_of(Layout(dp=2), "all_reduce", 1, 2)
    told = ranks.of("reference-repeated")
    assert len(told) == 2 and max(event[name] for event in told for name in KINDS) < 1e-5
    assert not any(event["repeated"] for event in ranks.of("learned"))


def test_who_is_given_numbers_that_overflow_in_single_precision_alone_is_not_accused() -> None:
    huge = """
    rank_as_before = run_rank


    def run_rank(orders, rank, events, recorder):
        as_before = Model.tp_exit

        def tp_exit(self, part):
            return as_before(self, part * 1e25 if self.comm and rank == 1 and self.mesh.tp > 1 else part)

        Model.tp_exit = tp_exit
        return rank_as_before(orders, rank, events, recorder)
    """
    ranks = Ranks(2, ["training"], huge, layouts=[Layout(tp=2)], hosts=HOSTS)
    assert [event["layout"] < 1e-4 for event in ranks.of("reference-repeated") if event["rank"] == 0] == [True]


def test_a_healthy_run_does_nothing_again() -> None:
    ranks = Ranks(2, ["training", "learning"], layouts=[Layout(tp=2), Layout(pp=2)], learn_steps=10)
    assert not ranks.of("reference-repeated") and len(ranks.of("learned")) == 2
