from __future__ import annotations

from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check

NAME = "net-large-packets-lost"
ROWS = [["-ooo", "o-oo", "oo-o", "ooo-"], ["-hoo", "h-hh", "oh-o", "oho-"]]


def test_packets_of_every_size_pass() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_the_largest_size_that_passes_is_named() -> None:
    detail = [{"target": 1, "port": 1, "detail": "full-size packets to it are lost", "largest_bytes": 1400}]
    outcome = run_check(NAME, answers(ROWS, details={0: detail}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert "the largest that passes has 1400 bytes" in text
    assert "ping -c 3 -M do -s 1372" in advice(NAME, outcome)


def test_where_no_size_passes_none_is_named() -> None:
    ((_, text),) = messages(run_check(NAME, answers(ROWS)))
    assert "none of the sizes tried passes" in text


def test_one_direction_is_told_from_a_pair_by_whose_data_stalls() -> None:
    rows = [["-ooo", "o-oo", "oo-o", "ooo-"], ["-hoo", "h-oo", "oo-o", "ooo-"]]
    present, back = "full-size packets to it are lost", "full-size packets from it are lost"
    for own_name, other, place in (
        (present, back, "from w1 to w2"),
        (back, present, "from w2 to w1"),
        (present, present, "between"),
    ):
        details = {
            host: [{"target": 1 - host, "port": 1, "detail": text, "largest_bytes": 1400}]
            for host, text in enumerate((own_name, other))
        }
        ((_, text),) = messages(run_check(NAME, answers(rows, details=details)))
        assert place in text
