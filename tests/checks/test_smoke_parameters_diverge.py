from __future__ import annotations

from typing import Any

from doctor.facts.smoke.training import ReferenceRun
from doctor.smoke.model import Layout
from tests.checks.trained import DP2TP2, DP4, TP4, Trained, healthy, leading

NAME = "smoke_parameters_diverge"


def test_replicas_are_equal() -> None:
    healthy(NAME)


def test_one_replica_leaves_the_others() -> None:
    trained = Trained(DP4).steps(lambda event: {"params": 1} if event.rank == 2 and event.step >= 2 else None)
    finding = trained.only_finding(NAME)
    assert finding.hosts == ("w2",)
    assert (finding.values["ranks"], finding.values["step"]) == ([2], 2)
    assert str(finding).startswith(
        "after step 2 rank 2 (w2; dp2) holds other parameters than the rest of data-parallel group"
    )
    assert leading(trained) == {NAME}


def test_of_several_hosts_the_collectives_tell_the_cause() -> None:
    trained = Trained(DP4).steps(lambda event: {"params": event.rank} if event.rank in (0, 2) else None)
    assert trained.only_finding(NAME).explained_by == ("smoke-collective-wrong",)
    trained = Trained(DP4).steps(lambda event: {"params": 1} if event.rank == 2 else None)
    assert not trained.only_finding(NAME).explained_by


def test_of_two_replicas_none_has_a_majority() -> None:
    trained = Trained(Layout(dp=2), ranks=2).steps(
        lambda event: {"params": 1} if event.rank and event.step >= 1 else None
    )
    finding = trained.only_finding(NAME)
    assert finding.values["tie"]
    assert finding.values["ranks"] == [0, 1]


def test_whole_tensors_part_in_every_tensor_parallel_group() -> None:
    def change(event: Any) -> dict[str, Any] | None:
        return {"replicated": event.replicated + 50 * trained.place(event)[2]}

    trained = Trained(DP2TP2, TP4)
    finding = trained.steps(change).only_finding(NAME)
    assert finding.values["layouts"] == ["dp2 tp2", "tp4"]
    assert "most likely the backward pass lacks an all-reduce over the tensor-parallel group" in str(finding)


def test_one_rank_of_a_tensor_parallel_group() -> None:
    """Its gradient is a sum over the ranks, which may have changed on its way."""
    trained = Trained(TP4).steps(lambda event: {"replicated": 3} if event.rank == 1 else None)
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.values["tie"]) == ([1, 2], True)
    assert "rank 1 (w1; tp1) holds other values of the unsharded tensors" in str(finding)
    trained.steps(lambda event: {"grad_error": 1e-7, "params_error": 0.1 if event.rank == 1 else 1e-7})
    assert trained.only_finding(NAME).values["ranks"] == [1]  # with the right gradient: by its own update


def test_one_tensor_parallel_rank_begins_otherwise() -> None:
    trained = Trained(TP4).begun(lambda event: {"replicated": 3} if event.rank == 1 else None)
    trained.steps(lambda event: {"loss": event.loss + 0.2})
    finding = trained.only_finding(NAME)
    assert finding.values["ranks"] == [1]
    assert finding.values["before"]
    assert "before the first step" in str(finding)
    assert leading(trained) == {NAME}


def test_gradients_that_differ_come_first() -> None:
    trained = Trained(DP4).steps(lambda event: {"params": 1, "grad_digest": 1} if event.rank == 2 else None)
    assert leading(trained) == {"smoke_gradient_not_synchronised"}
    assert trained.because(NAME) == "smoke-gradient-not-synchronised"


def of_two_code_paths(*layouts: Layout) -> Trained:
    """A host of each, whose unsharded tensors have other last bits from the start."""
    trained = Trained(*layouts).spoil(ReferenceRun, lambda event: {"code_path": f"path {event.rank // 2}"})
    trained.begun(lambda event: {"replicated": event.rank // 2, "error": 4e-8})
    return trained.steps(lambda event: {"replicated": event.rank // 2, "params_error": 8e-7})


def test_ranks_of_different_code_paths_are_compared_by_their_error_and_not_by_their_bits() -> None:
    trained = of_two_code_paths(TP4)
    assert not leading(trained)
    trained.steps(lambda event: {"params_error": 2e-3} if event.rank == 3 and event.step == 2 else None)
    finding = trained.only_finding(NAME)
    assert (finding.values["who"], finding.values["step"]) == ("rank 3 (w2; tp3)", 2)
    begun = of_two_code_paths(TP4).begun(lambda event: {"error": 1e-2} if event.rank == 2 else None)
    assert begun.only_finding(NAME).values["ranks"] == [2]


def test_an_error_that_is_not_known_accuses_nobody_of_another_code_path() -> None:
    trained = of_two_code_paths(TP4).steps(lambda event: {"params_error": None if event.rank else 1.0})
    assert not leading(trained)


def test_between_ranks_of_one_code_path_bits_count_and_the_serial_run_tells_who_is_wrong() -> None:
    trained = of_two_code_paths(TP4).steps(lambda event: {"replicated": 9} if event.rank == 3 and event.step else None)
    finding = trained.only_finding(NAME)
    assert finding.values["tie"] and finding.values["ranks"] == [2, 3]
    finding = trained.steps(
        lambda event: {"params_error": 1e-3} if event.rank == 3 and event.step else None
    ).only_finding(NAME)
    assert finding.values["who"] == "rank 3 (w2; tp3)"


def test_what_each_rank_computes_for_itself_may_differ_between_hosts_within_the_tolerance() -> None:
    """As on two CPUs of one name for which a library chooses other code; on one host it is no rounding."""
    for near, differs in ((8e-7, False), (3e-4, True)):
        trained = Trained(TP4).steps(
            lambda event, error=near: {
                "replicated": 7 if event.rank > 1 else 5,
                "params_error": error if event.rank > 1 else 1e-7,
            }
        )
        assert bool(trained.findings(NAME)) is differs
    on_one_host = Trained(TP4).steps(
        lambda event: {"replicated": 7 if event.rank == 3 else 5, "params_error": 8e-7 if event.rank == 3 else 1e-7}
    )
    assert on_one_host.findings(NAME)


def test_ranks_of_one_host_whose_gradients_are_means_with_other_hosts_may_differ_within_the_tolerance() -> None:
    """Of three ranks a host in pairs of tensor parallelism, one of a pair has two partners elsewhere, one has one."""
    layout = Layout(dp=3, tp=2)
    for near, differs in ((2e-7, False), (3e-4, True)):
        trained = Trained(layout, ranks=6).steps(
            lambda event, error=near: {
                "replicated": 7 if event.rank % 2 else 5,
                "params_error": error if event.rank % 2 else 1e-7,
            }
        )
        assert bool(trained.findings(NAME)) is differs


def of_no_replicas(last: float, gradient: float) -> Trained:
    """Two pipeline stages, which hold nothing alike; the second one's parameters are ``last`` off after step 2."""
    trained = Trained(Layout(pp=2), ranks=2).steps(lambda event: {"params_error": 1e-8, "grad_error": 1e-7})
    return trained.steps(
        lambda event: {"params_error": last, "grad_error": gradient} if event.rank and event.step == 2 else None
    )


def test_what_one_rank_alone_holds_is_compared_with_the_reference_run() -> None:
    """A memory that fails behind the last update shows in no loss."""
    finding = of_no_replicas(0.13, 1e-7).only_finding(NAME)
    assert (finding.values["who"], finding.values["step"]) == ("rank 1 (w2; pp1)", 2)
    assert "differ from the reference run's by 0.13 of their norm" in str(finding)
    assert not leading(of_no_replicas(2e-8, 1e-7)), "rounding"
    assert not of_no_replicas(0.13, 0.2).findings(NAME), "its gradient was wrong before"
