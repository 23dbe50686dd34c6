import pytest

from doctor.engine.evaluate import judge_one
from doctor.engine.result import Outcome
from doctor.facts.visit import Reach
from tests.checks.looked import Facts, check, said


def judged(trouble: str, text: str) -> Outcome:
    book = Facts({"a": [Reach(trouble=trouble, text=text, hint="")]})
    return judge_one(check("python3-missing"), ("a",), book, {})


@pytest.mark.parametrize("trouble", ["", "dropped", "auth", "timeout"])
def test_only_a_missing_interpreter_counts(trouble: str) -> None:
    assert said(judged(trouble, "something else")) == []


def test_the_reason_is_told() -> None:
    text = "python3 is version 3.4; 3.6 or later is needed"
    assert said(judged("no-python", text)) == [("a", text)]


@pytest.mark.parametrize(("trouble", "because"), [("dropped", "host-unreachable"), ("budget", "")])
def test_of_a_host_that_was_not_reached_nothing_is_claimed(trouble: str, because: str) -> None:
    outcome = judged(trouble, "no answer")
    assert (outcome.looked, outcome.complete) == ((), False)
    assert outcome.unknown["a"].because == because
