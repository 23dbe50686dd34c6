from __future__ import annotations

from tests.checks.looked import advice, judged, said
from tests.checks.net_answers import HEALTHY, answers

NAME = "net-port-unavailable"
BOUND = [
    {"port": 0, "state": "bound", "number": 29500, "detail": "train.py (pid 7, user ann, for 90 s)"},
    {"port": 1, "state": "listening"},
]
ROWS = [["-roo", "o-oo", "or-o", "oro-"], ["-ooo", "o-oo", "oo-o", "ooo-"]]


def test_free_ports_have_no_finding() -> None:
    assert said(judged(NAME, HEALTHY)) == []


def test_a_port_that_another_process_holds_is_its_own_hosts_whoever_tried_it() -> None:
    outcome = judged(NAME, answers(ROWS, listeners={1: BOUND}))
    ((hosts, text),) = said(outcome)
    assert hosts == "w2"
    assert text == "it cannot listen on port master 29500: bound; train.py (pid 7, user ann, for 90 s)"
    assert 'ss -tlnp "sport = :29500"' in advice(NAME, outcome)


def test_a_refusal_of_a_host_that_listens_is_no_held_port() -> None:
    assert said(judged(NAME, answers(ROWS))) == []
