from __future__ import annotations

from doctor.engine.result import Status
from doctor.facts.smoke.further_stages import NativeResult
from tests.checks.smoke import native, page, root_causes, run_check, training
from tests.checks.trained import DP4, PP2DP2, Trained

NAME = "smoke_native_differs"
LOSSES = (4.6, 4.3, 4.0, 3.7)


def outcome(*events: NativeResult):  # type: ignore[no-untyped-def]
    trained = Trained(DP4, PP2DP2)
    return run_check(NAME, trained.run, training(trained.run, trained.events), native(trained.run, events))


def test_the_wrappers_are_the_reference_run() -> None:
    native_results = [NativeResult(rank, 0, "DDP", LOSSES) for rank in range(4)]
    pipes = [NativeResult(rank, 1, "ScheduleGPipe", (4.7, 4.4), reference=(4.7, 4.4)) for rank in range(4)]
    assert outcome(*native_results, *pipes).status is Status.PASSED


def test_one_wrapper_is_off() -> None:
    off = [NativeResult(rank, 0, "fully_shard", (4.6, 4.35, 4.0, 3.7)) for rank in range(4)]
    [finding] = outcome(*off, *(NativeResult(rank, 0, "DDP", LOSSES) for rank in range(4))).findings
    assert str(finding) == "fully_shard in dp4: the loss of step 1 is 4.35, expected 4.3 as in one process"
    assert finding.hosts == ("w1", "w2")
    assert "so the fault is in fully_shard" in page(NAME, finding)


def test_a_loss_that_is_not_finite() -> None:
    [finding] = outcome(
        *(NativeResult(rank, 0, "DDP", (4.6, None if rank == 1 else 4.3)) for rank in range(4))
    ).findings
    assert (finding.values["step"], finding.values["observed"]) == (1, None)


def test_what_is_wrong_without_wrappers_explains_it() -> None:
    trained = Trained(DP4).steps(lambda event: {"loss": event.loss + 0.1})
    off = native(trained.run, [NativeResult(rank, 0, "DDP", (4.9,)) for rank in range(4)])
    observed_outcome = run_check(NAME, trained.run, training(trained.run, trained.events), off)
    assert root_causes(observed_outcome) == {"smoke-loss-differs"}


def test_a_wrapper_that_could_not_run_is_unknown() -> None:
    report = outcome(*(NativeResult(rank, 0, "fully_shard", (), "no module named fully_shard") for rank in range(4)))
    assert report.status is Status.UNKNOWN
    assert report.unknown[""].text == "fully_shard in dp4, ranks 0-3 (w1, w2): no module named fully_shard"
