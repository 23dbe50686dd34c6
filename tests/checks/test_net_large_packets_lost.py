from __future__ import annotations

from tests.checks.looked import advice, judged, said
from tests.checks.net_answers import HEALTHY, answers

NAME = "net-large-packets-lost"
ROWS = [["-ooo", "o-oo", "oo-o", "ooo-"], ["-hoo", "h-hh", "oh-o", "oho-"]]


def test_packets_of_every_size_pass() -> None:
    assert said(judged(NAME, HEALTHY)) == []


def test_the_largest_size_that_passes_is_named() -> None:
    detail = [{"target": 1, "port": 1, "detail": "full-size packets to it are lost", "largest_bytes": 1400}]
    outcome = judged(NAME, answers(ROWS, details={0: detail}))
    ((hosts, text),) = said(outcome)
    assert hosts == "w2"
    assert "the largest that passes has 1400 bytes" in text
    assert "ping -M do -s 1372" in advice(NAME, outcome)


def test_where_no_size_passes_none_is_named() -> None:
    ((_, text),) = said(judged(NAME, answers(ROWS)))
    assert "none of the sizes tried passes" in text
