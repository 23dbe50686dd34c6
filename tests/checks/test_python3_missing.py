import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.result import Outcome
from doctor.facts.visit import Reachability
from tests.checks.run_check import Facts, check, messages


def run_check(trouble: str, text: str) -> Outcome:
    book = Facts({"a": [Reachability(failure=trouble, text=text, hint="")]})
    return evaluate_check(check("python3-missing"), ("a",), book, {})


@pytest.mark.parametrize("trouble", ["", "dropped", "auth", "timeout"])
def test_only_a_missing_interpreter_counts(trouble: str) -> None:
    assert messages(run_check(trouble, "something else")) == []


def test_the_reason_is_told() -> None:
    text = "python3 is version 3.4; 3.6 or later is needed"
    assert messages(run_check("no-python", text)) == [("a", text)]


@pytest.mark.parametrize(("trouble", "because"), [("dropped", "host-unreachable"), ("budget", "")])
def test_of_a_host_that_was_not_reached_nothing_is_claimed(trouble: str, because: str) -> None:
    outcome = run_check(trouble, "no answer")
    assert (outcome.evaluated_hosts, outcome.complete) == ((), False)
    assert outcome.unknown["a"].root_cause == because
