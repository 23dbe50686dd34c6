from __future__ import annotations

from typing import Any

import pytest

from doctor.facts.smoke.training import ReferenceRepeated, ReferenceRun
from doctor.smoke.model import Layout
from tests.checks.smoke import findings_of, root_causes, run_check, start_events, started, training
from tests.checks.trained import DP4, TP4, Trained, healthy, leading, off

NAME = "smoke_reference_differs"


def wrong(trained: Trained, rank: int, **fields: Any) -> Trained:
    return trained.spoil(ReferenceRun, lambda event: fields if event.rank == rank else None)


def test_one_result() -> None:
    healthy(NAME)


def test_a_device_that_computes_otherwise() -> None:
    trained = wrong(Trained(DP4, devices=True), 3, losses=(4.6, 4.31, 4.0, 3.7), params=1)
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.hosts) == ([3], ("w2",))
    assert str(finding) == (
        "rank 3 (w2): the reference run ends with other numbers than on ranks 0-2 (w1, w2), on nccl: "
        "losses differ by up to 2.3e-03"
    )


def test_what_it_does_to_the_layouts_follows() -> None:
    trained = wrong(Trained(DP4, TP4, devices=True), 3, losses=(4.6, 4.31, 4.0, 3.7), params=1)
    trained.steps(lambda event: {"loss": event.loss + 0.1, "grad_digest": event.rank})
    assert leading(trained) == {NAME}
    assert trained.because("smoke_loss_differs") == "smoke-reference-differs"
    assert trained.because("smoke_gradient_not_synchronised") == "smoke-reference-differs"


def test_the_last_bit_counts_on_equal_devices() -> None:
    trained = wrong(Trained(DP4, devices=True), 1, params=1)
    assert trained.only_finding(NAME).values["how"] == "only the last bits differ"
    assert leading(trained.steps(lambda event: {"loss": event.loss + 0.1})) == {NAME, "smoke_loss_differs"}


def test_hosts_may_have_different_processors() -> None:
    """Of CPUs, those of one host are equal for certain."""
    trained = Trained(DP4).spoil(ReferenceRun, lambda event: {"params": 1} if event.rank >= 2 else None)
    assert not trained.findings(NAME)
    assert wrong(Trained(DP4), 3, params=1).only_finding(NAME).values["kind"] == "the CPUs of w2"
    far = Trained(DP4).spoil(
        ReferenceRun, lambda event: {"params": 1, "losses": (4.6, 4.4, 4.2, 4.0)} if event.rank >= 2 else None
    )
    assert far.only_finding(NAME).values["kind"] == "all devices"


def test_accelerators_of_two_kinds_are_not_compared_bit_for_bit() -> None:
    trained = wrong(Trained(DP4, devices=True), 3, params=1)
    events = training(trained.run, trained.events)
    other = [*start_events(trained.run)[:-1], *start_events(trained.run, "NVIDIA A100-SXM4-80GB")[-1:]]
    assert not findings_of(NAME, trained.run, events, started(trained.run, other))
    [finding] = findings_of(NAME, trained.run, events, started(trained.run))
    assert finding.values["kind"] == "NVIDIA H100 80GB HBM3 with torch 2.13.0"


def test_fewer_bits_are_named() -> None:
    trained = Trained(DP4, devices=True).spoil(
        ReferenceRun, lambda event: {"precision": 4e-4 if event.rank == 2 else 3e-7}
    )
    finding = wrong(trained, 2, params=1, losses=(4.6, 4.301, 4.0, 3.7)).only_finding(NAME)
    assert "products of float32 are off by 4e-04 there, by 3e-07 on the others (TF32 or the like)" in str(finding)


def test_a_product_that_is_wrong_once_is_seen_beside_equal_losses() -> None:
    """It would widen the tolerance of the whole run. Rounding differs by less: as of two instruction sets."""
    finding = wrong(Trained(DP4, devices=True), 1, precision=1e-2).spoil(
        ReferenceRun, lambda event: {"precision": 3e-7} if event.rank != 1 else None
    )
    assert finding.only_finding(NAME).values["ranks"] == [1]
    alike = Trained(DP4, devices=True).spoil(ReferenceRun, lambda event: {"precision": 3e-7 * (1 + 30 * event.rank)})
    assert not alike.findings(NAME)
    assert not wrong(Trained(DP4, devices=True), 1, precision=1e-2).findings(NAME)  # of the others it is not known


def test_the_formulas_of_the_model_tell_which_of_two_is_wrong() -> None:
    """Not where all ranks are as far from them: it is the library. An accelerator may multiply with fewer bits."""

    def of_two(*shares: float, devices: bool = False) -> Trained:
        trained = wrong(Trained(Layout(dp=2), ranks=2, devices=devices), 1, params=1, losses=(4.6, 4.301, 4.0, 3.7))
        trained.events += [ReferenceRepeated(rank, 0.0, formula=share) for rank, share in enumerate(shares)]
        return trained

    finding = of_two(6e-8, 5e-4).only_finding(NAME)
    assert (finding.values["ranks"], finding.values["tie"]) == ([1], False)
    assert "other losses or gradients than the formulas of its model in double precision, by 0.0005" in str(finding)
    assert of_two(5e-4, 5e-4).only_finding(NAME).values["ranks"] == [0, 1]
    assert of_two(6e-8, 5e-4, devices=True).only_finding(NAME).values["tie"]
    assert of_two(6e-8, 2e-2, devices=True).only_finding(NAME).values["ranks"] == [1]


def test_who_trains_on_other_data_has_another_reference_run() -> None:
    trained = wrong(Trained(Layout(dp=2), ranks=2), 1, losses=(4.6, 4.301, 4.0, 3.7))
    assert trained.only_finding(NAME).values["tie"]
    trained.steps(lambda event: {"ids": (7,) * len(event.ids)} if event.rank == 1 else {})
    assert leading(trained) == {"smoke_shards_wrong"}


def test_of_two_none_has_a_majority() -> None:
    finding = wrong(Trained(Layout(dp=2), ranks=2, devices=True), 1, params=1).only_finding(NAME)
    assert finding.values["tie"]
    assert finding.values["ranks"] == [0, 1]


def test_draws_that_differ_explain_it() -> None:
    trained = wrong(Trained(TP4, devices=True), 3, losses=(4.7, 4.4, 4.1, 3.8), params=1)
    trained.steps(lambda event: {"masks": off(event.masks)} if event.rank == 3 else None)
    assert leading(trained) == {"smoke_mask_differs"}
    outcome = run_check(NAME, trained.run, training(trained.run, trained.events))
    assert root_causes(outcome) == {"smoke-mask-differs"}


def test_reference_runs_of_different_length_are_compared_at_equal_steps() -> None:
    """In large worlds rank 0 alone does all steps; what it holds at its end is nothing that others could hold."""
    trained = Trained(DP4, devices=True).spoil(
        ReferenceRun, lambda event: {"losses": event.losses[:2], "params": 5, "params_step": 2} if event.rank else None
    )
    assert not trained.findings(NAME)
    assert not trained.spoil(ReferenceRun, lambda event: {"params": 5, "params_step": 2}).findings(NAME)
    finding = wrong(trained, 0, params=6).only_finding(NAME)
    assert (finding.values["ranks"], finding.values["how"]) == ([0], "only the last bits differ")


def test_two_ranks_that_did_not_do_the_same_steps_hold_nothing_against_each_other() -> None:
    trained = Trained(Layout(dp=2), ranks=2, devices=True)
    trained.spoil(ReferenceRun, lambda event: {"losses": event.losses[:1], "params": 5} if event.rank else None)
    assert not trained.findings(NAME)


def test_cpus_of_one_host_with_two_code_paths_are_not_compared_bit_for_bit() -> None:
    trained = wrong(Trained(DP4), 3, params=1, code_path="CPU SSE4.1")
    assert not trained.findings(NAME)
    assert wrong(trained, 2, code_path="CPU SSE4.1").only_finding(NAME).values["ranks"] == [2, 3]


def test_a_reference_run_that_does_not_repeat_is_the_ranks_own_fault() -> None:
    once = {"repeated": 3e-2, "code_path": "CPU AVX2"}
    finding = wrong(Trained(DP4), 2, **once).only_finding(NAME)
    assert finding.values["ranks"] == [2] and "does not repeat" in str(finding)
    two = wrong(Trained(Layout(dp=2), ranks=2), 1, params=1, **once)
    assert two.only_finding(NAME).values["ranks"] == [1], "it is told which of two is wrong"
    assert leading(two.steps(lambda event: {"loss": event.loss + 0.1})) == {NAME}


def test_only_an_accelerator_may_add_in_another_order_when_it_repeats() -> None:
    last_bits = {"repeated": 1e-7}
    assert not wrong(Trained(DP4, devices=True), 2, code_path="NVIDIA H100", **last_bits).findings(NAME)
    assert wrong(Trained(DP4), 2, code_path="CPU AVX2", **last_bits).findings(NAME)


@pytest.mark.parametrize(("field", "words"), [("repeated", "the reference run does"), ("layout", "the training does")])
def test_what_a_rank_computes_wrongly_by_the_end_is_its_alone(field: str, words: str) -> None:
    """Where two hosts share each model, the layout names both."""
    trained = Trained(Layout(pp=2, dp=2))
    trained.steps(lambda event: {"loss_error": 5e-3 if event.rank == 3 else 0.0} if event.rank >= 2 else None)
    assert trained.only_finding("smoke_loss_differs").values["tie"]
    trained.events += [ReferenceRepeated(rank, **{"repeated": 0.0, field: 2e-2 * (rank == 3)}) for rank in range(4)]
    assert trained.only_finding(NAME).values["ranks"] == [3]
    assert f"{words} not repeat" in str(trained.only_finding(NAME))
    assert leading(trained) == {NAME}


def test_another_order_of_adding_by_the_end_accuses_nobody() -> None:
    trained = Trained(DP4)
    trained.events += [ReferenceRepeated(rank, 3e-7 * rank, layout=8e-5) for rank in range(4)]
    assert not trained.findings(NAME)
