from __future__ import annotations

from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check

NAME = "net-unreachable"
DEAD_HOST = ["-odo", "o-do", "dd-d", "ood-"]


def test_a_fleet_whose_hosts_reach_each_other_is_healthy() -> None:
    outcome = run_check(NAME, HEALTHY)
    assert outcome.complete
    assert messages(outcome) == []


def test_one_host_that_nobody_reaches_is_named_alone() -> None:
    outcome = run_check(NAME, answers([DEAD_HOST] * 2))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w3"
    assert "connections to and from w3 fail on all ports tried: 12 of 12 attempts (dropped)" in text
    assert "ping -c 3" in advice(NAME, outcome)


def test_one_direction_is_told_from_a_pair_by_the_packets_that_arrive() -> None:
    both = ["-ood", "o-oo", "oo-o", "doo-"]
    ((hosts, text),) = messages(run_check(NAME, answers([both] * 2)))
    assert "between w1 and w4" in text
    ((hosts, text),) = messages(run_check(NAME, answers([both] * 2, arrived={3: [(0, 0), (0, 1)]})))
    assert hosts == "w1 w4"
    assert "from w1 to w4" in text


def test_an_arrival_on_both_sides_proves_no_direction() -> None:
    both = ["-ood", "o-oo", "oo-o", "doo-"]
    ((_, text),) = messages(run_check(NAME, answers([both] * 2, arrived={3: [(0, 0)], 0: [(3, 0)]})))
    assert "between w1 and w4" in text


def test_a_host_without_a_route_back_is_told_from_a_broken_pair() -> None:
    rows = ["-ooo", "o-ou", "oo-o", "odo-"]
    detail = [{"target": 3, "port": port, "detail": "no way to it (EINVAL)"} for port in (0, 1)]
    ((_, text),) = messages(run_check(NAME, answers([rows] * 2, details={1: detail})))
    assert "from w2 to w4" in text


def own_attempts(*letters: str) -> list[list[str]]:
    """Rows of a healthy fleet in which w2 tried itself, with a letter for each port."""
    return [["-ooo", f"o{letter}oo", "oo-o", "ooo-"] for letter in letters]


def test_a_host_that_does_not_reach_itself_is_named_with_its_loopback_interface() -> None:
    outcome = run_check(NAME, answers(own_attempts("-", "d")))
    ((hosts, text),) = messages(outcome)
    assert (hosts, text) == ("w2", "connections from w2 to itself fail on all ports tried: 1 of 1 attempt (dropped)")
    assert "`ip link show lo` must say UP" in advice(NAME, outcome)
    assert "cable" not in advice(NAME, outcome)


def test_a_host_that_reaches_itself_or_was_not_tried_or_does_not_listen_is_no_finding() -> None:
    assert messages(run_check(NAME, answers(own_attempts("o", "o")))) == []
    assert messages(run_check(NAME, answers(own_attempts("-", "?")))) == []
    bound = {1: [{"port": 0, "state": "bound"}, {"port": 1, "state": "bound"}]}
    assert messages(run_check(NAME, answers(own_attempts("d", "d"), listeners=bound))) == []


def test_what_nobody_reaches_is_not_named_again_as_what_the_host_itself_does_not_reach() -> None:
    rows = [["-doo", "odoo", "od-o", "odo-"]] * 2
    ((hosts, text),) = messages(run_check(NAME, answers(rows)))
    assert hosts == "w2"
    assert "connections to w2 fail" in text


def test_what_the_source_itself_refuses_accuses_it_alone() -> None:
    rows = ["-ooo", "o-uo", "oo-o", "ooo-"]
    detail = [{"target": 2, "port": port, "detail": "no way to it (EINVAL)"} for port in (0, 1)]
    outcome = run_check(NAME, answers([rows] * 2, details={1: detail}))
    ((hosts, _),) = messages(outcome)
    assert hosts == "w2"
    assert "w2 itself refuses" in advice(NAME, outcome)
    ((hosts, _),) = messages(run_check(NAME, answers([rows] * 2)))
    assert hosts == "w2 w3"


def test_two_hosts_do_not_decide_which_of_them_it_is() -> None:
    ((hosts, _),) = messages(run_check(NAME, answers([["-d", "d-"]] * 2)))
    assert hosts == "w1 w2"


def test_what_was_not_tried_in_time_is_unknown_and_no_failure() -> None:
    facts = answers([["-o??", "o-oo", "oo-o", "ooo-"]] * 2)
    assert messages(run_check(NAME, facts)) == []


def test_one_host_alone_has_nobody_to_reach() -> None:
    assert not run_check(NAME, {"w1": []}).complete


def test_a_way_back_that_the_other_hosts_route_does_not_have_is_its_direction() -> None:
    """The one's packets arrive, and the other finds nobody on the way that it takes: EHOSTUNREACH."""
    both = ["-oou", "o-oo", "oo-o", "doo-"]
    ((_, text),) = messages(run_check(NAME, answers([both] * 2, arrived={3: [(0, 0)]})))
    assert "from w1 to w4" in text
