from __future__ import annotations

from typing import Any

from doctor.facts.smoke import ReferenceRun
from doctor.smoke.model import Layout
from tests.checks.smoke import found, judged, root_causes, start_events, started, training
from tests.checks.trained import DP4, TP4, Trained, healthy, leading, off

NAME = "smoke_reference_differs"


def wrong(trained: Trained, rank: int, **fields: Any) -> Trained:
    return trained.spoil(ReferenceRun, lambda one: fields if one.rank == rank else None)


def test_one_result() -> None:
    healthy(NAME)


def test_a_device_that_computes_otherwise() -> None:
    trained = wrong(Trained(DP4, devices=True), 3, losses=(4.6, 4.31, 4.0, 3.7), params=1)
    one = trained.one(NAME)
    assert (one.values["ranks"], one.hosts) == ([3], ("w2",))
    assert str(one) == (
        "rank 3 (w2): the reference run ends with other numbers than on ranks 0-2 (w1, w2), on nccl: "
        "losses differ by up to 2.3e-03"
    )


def test_what_it_does_to_the_layouts_follows() -> None:
    trained = wrong(Trained(DP4, TP4, devices=True), 3, losses=(4.6, 4.31, 4.0, 3.7), params=1)
    trained.steps(lambda one: {"loss": one.loss + 0.1, "grad_digest": one.rank})
    assert leading(trained) == {NAME}
    assert trained.because("smoke_loss_differs") == "smoke-reference-differs"
    assert trained.because("smoke_gradient_not_synchronised") == "smoke-reference-differs"


def test_the_last_bit_counts_on_equal_devices() -> None:
    trained = wrong(Trained(DP4, devices=True), 1, params=1)
    assert trained.one(NAME).values["how"] == "only the last bits differ"
    assert leading(trained.steps(lambda one: {"loss": one.loss + 0.1})) == {NAME, "smoke_loss_differs"}


def test_hosts_may_have_different_processors() -> None:
    """Of CPUs, those of one host are equal for certain."""
    trained = Trained(DP4).spoil(ReferenceRun, lambda one: {"params": 1} if one.rank >= 2 else None)
    assert not trained.findings(NAME)
    assert wrong(Trained(DP4), 3, params=1).one(NAME).values["kind"] == "the CPUs of w2"
    far = Trained(DP4).spoil(
        ReferenceRun, lambda one: {"params": 1, "losses": (4.6, 4.4, 4.2, 4.0)} if one.rank >= 2 else None
    )
    assert far.one(NAME).values["kind"] == "all devices"


def test_accelerators_of_two_kinds_are_not_compared_bit_for_bit() -> None:
    trained = wrong(Trained(DP4, devices=True), 3, params=1)
    events = training(trained.run, trained.events)
    other = [*start_events(trained.run)[:-1], *start_events(trained.run, "NVIDIA A100-SXM4-80GB")[-1:]]
    assert not found(NAME, trained.run, events, started(trained.run, other))
    [one] = found(NAME, trained.run, events, started(trained.run))
    assert one.values["kind"] == "NVIDIA H100 80GB HBM3 with torch 2.13.0"


def test_fewer_bits_are_named() -> None:
    trained = Trained(DP4, devices=True).spoil(ReferenceRun, lambda one: {"precision": 4e-4 if one.rank == 2 else 3e-7})
    one = wrong(trained, 2, params=1, losses=(4.6, 4.301, 4.0, 3.7)).one(NAME)
    assert "products of float32 are off by 4e-04 there, by 3e-07 on the others (TF32 or the like)" in str(one)


def test_of_two_none_has_a_majority() -> None:
    one = wrong(Trained(Layout(dp=2), ranks=2, devices=True), 1, params=1).one(NAME)
    assert one.values["tie"]
    assert one.values["ranks"] == [0, 1]


def test_draws_that_differ_explain_it() -> None:
    trained = wrong(Trained(TP4, devices=True), 3, losses=(4.7, 4.4, 4.1, 3.8), params=1)
    trained.steps(lambda one: {"masks": off(one.masks)} if one.rank == 3 else None)
    assert leading(trained) == {"smoke_mask_differs"}
    outcome = judged(NAME, trained.run, training(trained.run, trained.events))
    assert root_causes(outcome) == {"smoke-mask-differs"}


def test_reference_runs_of_different_length_are_compared_at_equal_steps() -> None:
    """In large worlds rank 0 alone does all steps; what it holds at its end is nothing that others could hold."""
    trained = Trained(DP4, devices=True).spoil(
        ReferenceRun, lambda one: {"losses": one.losses[:2], "params": 5, "params_step": 2} if one.rank else None
    )
    assert not trained.findings(NAME)
    assert not trained.spoil(ReferenceRun, lambda one: {"params": 5, "params_step": 2}).findings(NAME)
    one = wrong(trained, 0, params=6).one(NAME)
    assert (one.values["ranks"], one.values["how"]) == ([0], "only the last bits differ")


def test_two_ranks_that_did_not_do_the_same_steps_hold_nothing_against_each_other() -> None:
    trained = Trained(Layout(dp=2), ranks=2, devices=True)
    trained.spoil(ReferenceRun, lambda one: {"losses": one.losses[:1], "params": 5} if one.rank else None)
    assert not trained.findings(NAME)
