from __future__ import annotations

from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check

NAME = "net-answered-by-other"


def test_hosts_that_answer_for_themselves_have_no_finding() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_two_hosts_with_one_address() -> None:
    rows = [["-owo", "o-wo", "oo-o", "oow-"]] * 2
    detail = [{"target": 2, "port": port, "answered_by": 1} for port in (0, 1)]
    ((hosts, text),) = messages(run_check(NAME, answers(rows, details={0: detail, 1: detail, 3: detail})))
    assert set(hosts.split()) == {"w2", "w3"}
    assert "w2 and w3 answer to one address" in text


def test_a_stranger_on_the_way() -> None:
    detail = [{"target": 1, "port": 1, "detail": "SSH-2.0-OpenSSH_9.2"}]
    rows = [["-ooo", "o-oo", "oo-o", "ooo-"], ["-soo", "o-oo", "os-o", "oso-"]]
    outcome = run_check(NAME, answers(rows, details={0: detail}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert "3 of 3 attempts on an ephemeral port (stranger; SSH-2.0-OpenSSH_9.2)" in text
    assert "nft -a list" in advice(NAME, outcome)
