from __future__ import annotations

from doctor.engine.result import Outcome, Status
from doctor.facts.smoke import LearnedParameters, TrainingStep
from tests.checks.smoke import alter, learned, page, ran, run_check, training, training_events

NAME = "smoke_learning_differs"


def outcome(digests: dict[int, int], errors: dict[int, float] | None = None, *facts: dict) -> Outcome:  # type: ignore[type-arg]
    run, known_values = ran(4, 2), errors or {}
    events = [LearnedParameters(rank, 0, 0, params, 7, 10, known_values.get(rank)) for rank, params in digests.items()]
    return run_check(NAME, run, learned(run, events), *facts)


def test_replicas_are_the_same() -> None:
    assert outcome(dict.fromkeys(range(4), 1)).status is Status.PASSED


def test_the_one_that_is_far_from_the_serial_training() -> None:
    [finding] = outcome({0: 1, 1: 1, 2: 5, 3: 1}, {0: 4e-6, 1: 4e-6, 2: 1e-4, 3: 4e-6}).findings
    assert (finding.values["ranks"], finding.hosts) == ([2], ("w2",))
    assert "1.0e-04 from the serial training" in str(finding)
    assert "--for 10m" in page(NAME, finding)


def test_most_ranks_may_be_the_wrong_ones() -> None:
    [finding] = outcome({0: 5, 1: 5, 2: 5, 3: 1}, {0: 1e-2, 1: 1e-2, 2: 1e-2, 3: 4e-6}).findings
    assert finding.values["ranks"] == [0, 1, 2]


def test_none_of_them_stands_out() -> None:
    [finding] = outcome({0: 1, 1: 2, 2: 3, 3: 4}, dict.fromkeys(range(4), 4e-6)).findings
    assert finding.values["ranks"] == [0, 1, 2, 3]
    assert "not known" in str(finding)
    assert outcome({0: 1, 1: 2}).findings[0].values["ranks"] == [0, 1]


def test_what_training_explains_is_left_to_its_check() -> None:
    wrong = training(ran(4, 2), alter(training_events(ran(4, 2)), 2, TrainingStep, grad_digest=1))
    hidden = outcome({0: 1, 1: 1, 2: 5, 3: 1}, None, wrong)
    assert hidden.unknown and not hidden.findings
