from __future__ import annotations

from doctor.engine.result import Finding
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.model import Layout
from tests.checks.trained import DP2TP2, DP4, ZERO, Trained, healthy, leading

NAME = "smoke_gradient_not_synchronised"


def test_one_gradient_for_all() -> None:
    healthy(NAME)


def test_no_rank_reduces() -> None:
    trained = Trained(DP4, DP2TP2)
    trained.steps(lambda event: {"grad": event.grad_local, "grad_digest": event.grad_digest + trained.place(event)[1]})
    finding = trained.only_finding(NAME)
    assert str(finding).startswith("the gradient of every rank is the same before and after the reduction in step 0")
    assert finding.hosts == ("w1", "w2")
    assert leading(trained) == {NAME}


def test_one_rank_keeps_its_own() -> None:
    trained = Trained(DP4).steps(
        lambda event: {"grad": event.grad_local, "grad_digest": 1} if event.rank == 3 and event.step >= 1 else None
    )
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.values["step"], finding.hosts) == ([3], 1, ("w2",))
    assert "was not reduced" in str(finding)


def test_a_spoilt_sum_on_one_rank() -> None:
    finding = Trained(DP4).steps(lambda event: {"grad_digest": 1} if event.rank == 1 else None).only_finding(NAME)
    assert (finding.values["ranks"], finding.values["tie"]) == ([1], False)
    assert str(finding) == (
        "after its reduction in step 0 rank 1 (w1; dp1) has another gradient than its data-parallel group, "
        "whose ranks 0, 2-3 agree (in dp4)"
    )


def test_a_sum_that_is_wrong_on_one_rank_once_may_have_changed_on_its_way() -> None:
    """What its sender spoils is as often wrong on others: they pass it on."""

    def finding(*struck: tuple[int, int], layout: Layout = DP4) -> Finding:
        spoilt = Trained(layout).steps(
            lambda event: {"grad_digest": 1, "grad_error": 0.02} if (event.rank, event.step) in struck else None
        )
        return spoilt.only_finding(NAME)

    kept = Trained(DP4).steps(
        lambda event: (
            {"grad_digest": 1, "grad_error": 0.02, "kept": False} if (event.rank, event.step) == (1, 0) else None
        )
    )
    assert kept.only_finding(NAME).values["ranks"] == [1], "it had come right, and its memory changed then"
    once = finding((1, 0))
    assert (once.values["ranks"], once.hosts, once.values["tie"]) == ([1, 2], ("w1", "w2"), True)
    assert once.explained_by == ("smoke-collective-wrong",)
    assert "it changed there, or on its way from rank 2 (w2)" in str(once)
    often = finding((1, 0), (1, 1), (1, 2))  # and where collectives are wrong by themselves, those tell
    assert (often.hosts, often.explained_by) == (("w1",), ("smoke-collective-wrong",))
    assert finding((1, 0), (1, 1), (1, 2), (0, 3), (1, 3)).hosts == ("w1", "w2")
    assert finding((1, 0), (2, 1), (1, 2), (1, 3)).hosts == ("w1", "w2")


def test_of_two_ranks_none_has_a_majority() -> None:
    trained = Trained(Layout(dp=2), ranks=2).steps(lambda event: {"grad_digest": 1} if event.rank else None)
    assert trained.only_finding(NAME).values["tie"]


def test_shards_of_zero_differ_by_right() -> None:
    assert not Trained(ZERO).findings(NAME)


def test_two_bad_ranks_do_not_outvote_a_good_one() -> None:
    """What the reference run says is no vote."""
    trained = Trained(DP4).steps(
        lambda event: {"grad_digest": event.rank, "grad_error": 0.3 if event.rank in (0, 1) else 2e-7}
    )
    finding = trained.only_finding(NAME)
    assert (finding.values["ranks"], finding.hosts) == ([0, 1], ("w1",))
    assert "differs from the reference run's by 0.3" in str(finding)


def test_where_the_reference_is_not_known_hosts_vote() -> None:
    finding = Trained(DP4).steps(lambda event: {"grad_digest": 1} if event.rank in (0, 1) else None).only_finding(NAME)
    assert finding.values["ranks"] == [0, 1, 2, 3]
    assert finding.values["tie"]


def test_of_a_wrong_sum_that_a_group_shares_one_of_its_ranks_is_the_cause() -> None:
    """Such as of a stage that is sent wrong numbers by one of its pipelines."""
    layout = Layout(dp=2, pp=2)
    trained = Trained(layout).steps(lambda event: {"grad_error": 13.0 if event.rank in (0, 1) else 2e-7})
    message = str(trained.only_finding(NAME))
    assert "differs from the reference run's by 13.0" in message
    assert message.split(": ", 1)[1].startswith("what one of them added to it, or was sent before, is wrong")
    assert trained.only_finding(NAME).explained_by == ("smoke-collective-wrong",)
    alone = Trained(layout).steps(
        lambda event: {"grad_error": 0.5, "grad_digest": 7} if event.rank == 1 else {"grad_error": 2e-7}
    )
    assert alone.only_finding(NAME).values["ranks"] == [0, 1]
    assert "one of them added" not in str(alone.only_finding(NAME))
    assert "on its way from rank 0" in str(alone.only_finding(NAME))


def test_what_is_wrong_on_ranks_of_one_model_one_of_them_passed_on() -> None:
    """Of tensor parallelism all sum what each computes: a stage that was sent wrong numbers spoils both."""
    layout = Layout(dp=1, tp=2, pp=2)
    trained = Trained(layout).steps(lambda event: {"grad_error": 0.0099 if event.rank in (0, 1) else 2e-7})
    finding = trained.only_finding(NAME)
    assert finding.explained_by == ("smoke-collective-wrong",)
    assert str(finding).split(": ", 1)[1].startswith("what one of them added to it, or was sent before, is wrong")


def test_what_follows_from_wrong_parameters_accuses_no_rank() -> None:
    """Under ZeRO-1 all ranks take the shard that one of them got wrong; who comes to wrong gradients then is chance."""

    def findings(alike: bool) -> int:
        def fields(event: TrainingStep) -> dict[str, float | None]:
            if event.step == 0:
                return {"grad_error": 1e-7, "params_error": None if alike or event.rank == 0 else 1e-7}
            return {"grad_error": 0.02, "loss_error": 0.1 if event.rank in (0, 1) else 3e-7}

        trained = Trained(ZERO).steps(fields)
        return len(trained.findings(NAME)) + len(trained.findings("smoke_loss_differs"))

    assert (findings(False), findings(True)) == (1, 0)
