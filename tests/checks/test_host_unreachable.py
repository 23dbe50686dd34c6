from doctor.engine.evaluate import judge_one
from doctor.engine.result import Outcome
from doctor.facts.visit import Reach
from tests.checks.looked import Facts, check, said


def judged(**hosts: Reach) -> Outcome:
    book = Facts({host: [reach] for host, reach in hosts.items()})
    return judge_one(check("host-unreachable"), tuple(hosts), book, {})


WELL = Reach(trouble="", text="", hint="")


def test_a_host_that_answers_is_well() -> None:
    assert said(judged(a=WELL)) == []


def test_the_transports_own_words_are_the_finding() -> None:
    lost = Reach(trouble="dropped", text="no answer from 10.0.0.9 port 22 in 10 s", hint="nc -zv 10.0.0.9 22")
    outcome = judged(a=WELL, b=lost)
    assert said(outcome) == [("b", "no answer from 10.0.0.9 port 22 in 10 s")]
    assert outcome.findings[0].values["trouble"] == "dropped"
    assert outcome.findings[0].values["hint"] == "nc -zv 10.0.0.9 22"


def test_a_host_without_python_was_reached() -> None:
    assert said(judged(a=Reach(trouble="no-python", text="there is no python3", hint=""))) == []


def test_a_host_that_had_not_answered_when_time_was_up_is_unknown_not_guilty() -> None:
    outcome = judged(a=WELL, b=Reach(trouble="budget", text="no answer within the budget of 3 s", hint=""))
    assert outcome.findings == ()
    assert outcome.unknown["b"].text == "not reached: no answer within the budget of 3 s"
