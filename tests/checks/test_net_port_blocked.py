from __future__ import annotations

from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check

NAME = "net-port-blocked"
OPEN = ["-ooo", "o-oo", "oo-o", "ooo-"]


def test_open_ports_have_no_finding() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_ports_of_one_host_that_a_rule_rejects() -> None:
    outcome = run_check(NAME, answers([OPEN, ["-roo", "o-oo", "or-o", "oro-"]]))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert "connections to w2 fail on an ephemeral port, and pass on others: 3 of 3 attempts (refused)" in text
    assert "nft -a list ruleset" in advice(NAME, outcome) and "nft delete rule" in advice(NAME, outcome)


def test_a_host_that_is_wholly_cut_off_is_another_checks() -> None:
    assert messages(run_check(NAME, answers([["-doo", "d-dd", "od-o", "odo-"]] * 2))) == []
