import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.result import Outcome
from doctor.facts.visit import Reachability
from tests.checks.run_check import Facts, check, messages


def run_check(**hosts: Reachability) -> Outcome:
    book = Facts({host: [reach] for host, reach in hosts.items()})
    return evaluate_check(check("host-unreachable"), tuple(hosts), book, {})


WELL = Reachability(failure="", text="", hint="")


def test_a_host_that_answers_is_well() -> None:
    assert messages(run_check(a=WELL)) == []


def test_the_transports_own_words_are_the_finding() -> None:
    lost = Reachability(failure="dropped", text="no answer from 10.0.0.9 port 22 in 10 s", hint="nc -zv 10.0.0.9 22")
    outcome = run_check(a=WELL, b=lost)
    assert messages(outcome) == [("b", "no answer from 10.0.0.9 port 22 in 10 s")]
    assert outcome.findings[0].values["trouble"] == "dropped"
    assert outcome.findings[0].values["hint"] == "nc -zv 10.0.0.9 22"


def test_a_host_without_python_was_reached() -> None:
    assert messages(run_check(a=Reachability(failure="no-python", text="there is no python3", hint=""))) == []


def test_a_host_that_had_not_answered_when_time_was_up_is_unknown_not_guilty() -> None:
    outcome = run_check(a=WELL, b=Reachability(failure="budget", text="no answer within the budget of 3 s", hint=""))
    assert outcome.findings == ()
    assert outcome.unknown["b"].text == "not reached: no answer within the budget of 3 s"


CASES = [("name", "Name"), ("timeout", "By hand"), ("auth", "SSH"), ("key-changed", "SSH")]


@pytest.mark.parametrize(("failure", "case"), CASES)
def test_a_name_without_an_address_is_no_matter_of_a_login_nor_a_login_of_slurm(failure: str, case: str) -> None:
    reach = Reachability(failure=failure, text="the name b does not resolve", hint="")
    (finding,) = run_check(a=WELL, b=reach).findings
    assert finding.values["case"] == case
