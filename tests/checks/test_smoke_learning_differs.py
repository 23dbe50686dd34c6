from __future__ import annotations

import pytest

from doctor.engine.result import Outcome, Status
from doctor.facts.smoke.further_stages import LearnedParameters
from doctor.facts.smoke.training import CallParts, ReferenceRun, TrainingStep
from tests.checks.smoke import alter, learned, page, ran, run_check, training, training_events

NAME = "smoke_learning_differs"


def outcome(digests: dict[int, int], errors: dict[int, float] | None = None, *facts: dict) -> Outcome:  # type: ignore[type-arg]
    run, known_values = ran(4, 2), errors or {}
    events = [LearnedParameters(rank, 0, 0, params, 7, 10, known_values.get(rank)) for rank, params in digests.items()]
    return run_check(NAME, run, learned(run, events), *facts)


def test_replicas_are_the_same() -> None:
    assert outcome(dict.fromkeys(range(4), 1)).status is Status.PASSED


def test_who_comes_to_other_numbers_when_it_does_its_part_again() -> None:
    """Though the stages behind it are as far from the serial training; below the tolerance nobody is named."""
    for share, named in ((2e-2, [1]), (8e-5, [0, 1, 2, 3])):
        run = ran(4, 2)
        events = [LearnedParameters(rank, rank, 0, 1, 7, 10, 5.0, repeated=share * (rank == 1)) for rank in range(4)]
        [finding] = run_check(NAME, run, learned(run, events)).findings
        assert (finding.values["ranks"], finding.values["tie"]) == (named, len(named) == 4)
        assert ("computed their part of it again: by 2.0e-02 of it" in str(finding)) is (named == [1])


def test_the_one_that_is_far_from_the_serial_training() -> None:
    [finding] = outcome({0: 1, 1: 1, 2: 5, 3: 1}, {0: 4e-6, 1: 4e-6, 2: 1e-4, 3: 4e-6}).findings
    assert (finding.values["ranks"], finding.hosts) == ([2], ("w2",))
    assert "1.0e-04 from the serial training" in str(finding)
    assert "--for 10m" in page(NAME, finding)


def test_whose_sum_of_gradients_was_another_may_have_been_sent_it_so() -> None:
    """With the gradients of the others it is the rank itself that made other parameters of them."""
    known = dict.fromkeys(range(4), 4e-6) | {2: 1e-4}
    events = [LearnedParameters(rank, 0, 0, 1 + (rank == 2), 7 + (rank == 2), 10, known[rank]) for rank in range(4)]
    run = ran(4, 4)
    [finding] = run_check(NAME, run, learned(run, events)).findings
    assert (finding.values["ranks"], finding.values["tie"], finding.hosts) == ([2, 3], True, ("w3", "w4"))
    assert str(finding).endswith("; it changed there, or on its way from rank 3 (w4)")
    assert finding.explained_by == ("smoke-collective-wrong",)


@pytest.mark.parametrize(("part", "ranks"), [(0, [2]), (1, [2, 3]), (2, [2]), (3, [2])])
def test_who_gave_the_right_sum_on_to_the_next_rank_has_changed_it_itself(part: int, ranks: list[int]) -> None:
    """Rank 2 gives on to rank 1 all parts of the sum but that of rank 1, which comes to it last."""
    run, group = ran(4, 4), tuple(range(4))
    held = [LearnedParameters(rank, 0, 0, 1 + (rank == 2), 7 + (rank == 2), 10) for rank in group]
    told = [
        CallParts(rank, -1, group, "all_reduce", tuple(9 + (rank == 2 and at == part) for at in group))
        for rank in group
    ]
    [finding] = run_check(NAME, run, learned(run, [*held, *told])).findings
    assert (finding.values["ranks"], finding.values["tie"]) == (ranks, len(ranks) > 1)
    # Of another operation, which goes round the other way, nothing is compared.
    told = [CallParts(rank, -1, group, "all_gather", (rank, rank, rank, rank)) for rank in group]
    [finding] = run_check(NAME, run, learned(run, [*held, *told])).findings
    assert finding.values["ranks"] == [2, 3]


@pytest.mark.parametrize(
    ("came", "changed", "ranks", "words"),
    [
        (9, 0, [0, 1], "ranks 0 and 1 have different bits of the messages"),
        (9, 2, [1], "had changed a message"),
        (5, 0, [], ""),
    ],
)
def test_a_message_that_changed_tells_more_than_what_follows_from_it(
    came: int, changed: int, ranks: list[int], words: str
) -> None:
    run = ran(4, 2)
    events = [
        LearnedParameters(
            rank, rank, 0, 1, 7, 10, 0.5 if ranks else 0.0, sent={1: 5} if not rank else {},
            received={0: came} if rank == 1 else {}, changed=rank + 1 == changed,
        )
        for rank in range(4)
    ]  # fmt: skip
    found = run_check(NAME, run, learned(run, events)).findings
    assert [finding.values["ranks"] for finding in found] == [ranks] * bool(ranks)
    assert words in " ".join(map(str, found))


def test_most_ranks_may_be_the_wrong_ones() -> None:
    [finding] = outcome({0: 5, 1: 5, 2: 5, 3: 1}, {0: 1e-2, 1: 1e-2, 2: 1e-2, 3: 4e-6}).findings
    assert finding.values["ranks"] == [0, 1, 2]


def test_where_the_serial_training_tells_nothing_most_hosts_do() -> None:
    """Of a rank whose square roots are off, its own serial training is as wrong."""
    run = ran(6, 3)
    held = [LearnedParameters(rank, 0, 0, 5 if rank == 3 else 1, 7, 10, 1.1e-2) for rank in range(6)]
    [finding] = run_check(NAME, run, learned(run, held)).findings
    assert (finding.values["ranks"], finding.hosts) == ([3], ("w2",))
    [tied] = outcome({0: 1, 1: 1, 2: 5, 3: 5}, dict.fromkeys(range(4), 1.1e-2)).findings
    assert tied.values["ranks"] == [0, 1, 2, 3]


def test_none_of_them_stands_out() -> None:
    [finding] = outcome({0: 1, 1: 2, 2: 3, 3: 4}, dict.fromkeys(range(4), 4e-6)).findings
    assert finding.values["ranks"] == [0, 1, 2, 3]
    assert "not known" in str(finding)
    assert outcome({0: 1, 1: 2}).findings[0].values["ranks"] == [0, 1]


def test_what_training_explains_is_left_to_its_check() -> None:
    wrong = training(ran(4, 2), alter(training_events(ran(4, 2)), 2, TrainingStep, grad_digest=1))
    hidden = outcome({0: 1, 1: 1, 2: 5, 3: 1}, None, wrong)
    assert hidden.unknown and not hidden.findings


def learned_by(*events: LearnedParameters) -> Outcome:
    run = ran(4, 2)
    return run_check(NAME, run, learned(run, events))


def test_ranks_of_two_code_paths_are_compared_by_their_error_and_not_by_their_bits() -> None:
    events = [LearnedParameters(rank, 0, 0, rank // 2, 7, 10, 8e-7, f"path {rank // 2}") for rank in range(4)]
    assert learned_by(*events).status is Status.PASSED
    [finding] = learned_by(*events[:3], LearnedParameters(3, 0, 0, 9, 7, 10, 0.3, "path 1")).findings
    assert finding.values["ranks"] == [3]


def test_replicas_that_are_wrong_alike_are_far_from_the_serial_training() -> None:
    """The ranks of two pipeline stages: the first of each group of equal bits has done the serial training."""
    near = [LearnedParameters(0, 0, 0, 1, 7, 10, 2e-6), LearnedParameters(1, 0, 0, 1, 7, 10)]
    [finding] = learned_by(
        *near, LearnedParameters(2, 1, 0, 2, 8, 10, 2.0), LearnedParameters(3, 1, 0, 2, 8, 10)
    ).findings
    assert (finding.values["ranks"], finding.hosts) == ([2, 3], ("w2",))
    assert "the same training in one process, and the other ranks do not: 2.0e+00 from the serial" in str(finding)


def test_where_all_are_far_from_the_serial_training_nobody_is_said_to_be_the_cause() -> None:
    events = [LearnedParameters(rank, rank // 2, 0, rank // 2, 7, 10, 1.5) for rank in range(4)]
    [finding] = learned_by(*events).findings
    assert finding.values["ranks"] == [0, 1, 2, 3]
    assert "where they go wrong is not known" in str(finding)


def test_what_a_device_that_computes_otherwise_has_learned_is_left_to_the_check_of_the_reference_run() -> None:
    run = ran(4, 2)
    events = [LearnedParameters(rank, 0, 0, 1, 7, 10, 0.2 if rank == 0 else None) for rank in range(4)]
    wrong = training(run, alter(training_events(run), 3, ReferenceRun, repeated=6e-2))
    hidden = run_check(NAME, run, learned(run, events), wrong)
    assert hidden.unknown and not hidden.findings


def test_a_healthy_training_on_devices_of_which_nothing_is_known_accuses_nobody() -> None:
    """Adam makes much of rounding; without the training stage it is not known with how many bits they multiply."""
    events = [LearnedParameters(rank, 0, 0, 1, 7, 10, 0.1 if rank == 0 else None) for rank in range(4)]
    assert learned_by(*events).status is Status.PASSED
    run = ran(4, 2)
    assert run_check(NAME, run, learned(run, events), training(run, training_events(run))).findings


@pytest.mark.parametrize(
    ("shares", "ranks"),
    [
        ((0.0, 0.0, 0.01, 0.0), [2]),
        ((0.0, 0.0, 2e-4, 1e-7), []),  # another code path
        ((0.0, 0.0, 0.01, 0.01), [0, 1, 2, 3]),
    ],
)
def test_a_serial_run_that_is_another_one_than_that_of_most(shares: tuple[float, ...], ranks: list[int]) -> None:
    """Of four pipeline stages the last alone computes a loss of the layout; each does the serial run for itself."""
    run = ran(4, 4)
    events = [
        LearnedParameters(rank, rank, 0, rank, 7, 3, 1e-3, serial=(4.0, 3.0 * (1 + share), 2.0))
        for rank, share in enumerate(shares)
    ]
    found = run_check(NAME, run, learned(run, events), training(run, training_events(run))).findings
    assert [finding.values["ranks"] for finding in found] == [ranks] * bool(ranks)
    assert all("by 1.0e-02 of it" in str(finding) for finding in found)


@pytest.mark.parametrize(
    ("errors", "ranks", "words"),
    [
        ((2e-6, 2e-6, 1e-2, 2e-6), [2], "and the other ranks had not: by 1.0e-02 of it"),
        ((1e-2, 1e-2, 1e-2, 1e-2), [0], "and the other ranks had not"),
        ((2e-6, 1e-2, 1e-2, 1e-2), [0], "and the other ranks had not"),
        ((1e-2, 2e-6), [0], "and the other ranks had not"),
        ((2e-6, 1e-2), [0, 1], "not known"),
        ((4e-4, 2e-6, 1e-4, 9e-4), [], ""),
    ],
)
def test_the_loss_of_one_step_that_is_wrong_once(errors: tuple[float, ...], ranks: list[int], words: str) -> None:
    """Adam hides it: the parameters of all ranks are hardly further from the serial training than those of a sound run.

    The first rank does the serial run for all; of two ranks, its word alone does not tell.
    """
    run = ran(len(errors), len(errors) // 2)
    events = [
        LearnedParameters(rank, 0, 0, 1, 7, 10, None if rank else 2e-4, loss_error=error)
        for rank, error in enumerate(errors)
    ]
    found = run_check(NAME, run, learned(run, events), training(run, training_events(run))).findings
    assert [finding.values["ranks"] for finding in found] == [ranks] * bool(ranks)
    assert all(words in str(finding) for finding in found)
