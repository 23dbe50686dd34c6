from __future__ import annotations

from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check

NAME = "net-flows-lost"
SOME = "9 of 32 source ports fail each time, such as 40001, and 23 pass each time, such as 40002"


def test_a_network_on_which_every_flow_passes_has_no_finding() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_one_of_the_equal_paths_to_a_host_is_broken() -> None:
    details = {source: [{"target": 1, "port": 0, "detail": SOME}] for source in (0, 2, 3)}
    outcome = run_check(NAME, answers([["-foo", "o-oo", "of-o", "ofo-"]] * 2, details=details))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert f"some connections to w2 fail depending on their source port: {SOME}" in text
    assert "/proc/net/bonding" in advice(NAME, outcome)


def test_the_way_back_of_one_direction_is_not_accused_as_well() -> None:
    """Both hosts' connections fail; that of the first has arrived, so that the way from the second is broken."""
    rows = ["-foo", "f-oo", "oo-o", "ooo-"]
    outcome = run_check(NAME, answers([rows] * 2, arrived={0: [(1, 0), (1, 1)]}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w1 w2"
    assert "some connections from w2 to w1 fail" in text


def test_a_port_that_is_blocked_is_another_checks() -> None:
    assert (
        messages(run_check(NAME, answers([["-ooo", "o-oo", "oo-o", "ooo-"], ["-doo", "o-oo", "od-o", "odo-"]]))) == []
    )
