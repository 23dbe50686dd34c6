"""Whom a rendezvous that does not come about is laid at."""

from __future__ import annotations

import pytest

from doctor.facts.smoke.first_stages import ConnectFailed, TorchImported
from doctor.smoke.model import Failure, Layout, RankPlacement, SmokePlan
from doctor.smoke.run.progress import JOIN, StageProgress

NO_ANSWER = "10.77.1.1 port 39029 does not answer"


def joining(hosts: int, errors: dict[int, tuple[str, str]], seconds: float = 10.0) -> Failure | None:
    """Two ranks on each host; by rank: the problem that it reports a second after the import, and the text."""
    places = tuple(RankPlacement(rank, f"w{rank // 2}", rank % 2) for rank in range(2 * hosts))
    progress = StageProgress(SmokePlan("gloo", places, (Layout(dp=2 * hosts),)), 0.0)
    for host in range(hosts):
        progress.add_event(f"w{host}", TorchImported(-1, 1.0, "2.13", "3.11"), 1.0)
    for rank, (problem, text) in errors.items():
        progress.add_event(f"w{rank // 2}", ConnectFailed(rank, problem, text), 2.0 + rank / 2)  # type: ignore[arg-type]
    return progress.overdue(seconds, dict.fromkeys(range(2 * hosts), seconds - 1.0))


def test_who_reports_an_error_of_its_own_is_named_and_nobody_else() -> None:
    stale = dict.fromkeys((2, 3), ("no-route", "head (10.9.9.9) port 29500: No route to host"))
    for seconds in (10.0, 2.0 + JOIN):
        failure = joining(3, stale, seconds)
        assert failure and (failure.kind, failure.culprit_ranks) == ("never-joined", (2, 3))
        assert not failure.unreached


def test_the_masters_host_when_all_others_report_the_same() -> None:
    failure = joining(5, dict.fromkeys(range(2, 10), ("dropped", NO_ANSWER)), 12.0)
    assert failure and failure.culprit_ranks == (0, 1)
    assert failure.text == f"4 of the 4 other hosts do not reach w0: {NO_ANSWER}"
    assert failure.unreached


@pytest.mark.parametrize(("hosts", "refused", "named"), [(5, 3, (0, 1)), (5, 2, (6, 7, 8, 9)), (4, 2, (4, 5, 6, 7))])
def test_most_hosts_of_a_run_are_not_apart_from_the_others(hosts: int, refused: int, named: tuple[int, ...]) -> None:
    """Of four, it may be either half: what the hosts try of each other decides, see failure_evidence."""
    ranks = range(2 * (hosts - refused), 2 * hosts)
    failure = joining(hosts, dict.fromkeys(ranks, ("dropped", NO_ANSWER)), 14.0)
    assert failure and failure.culprit_ranks == named


def test_one_rank_of_a_host_that_is_refused_is_not_its_host() -> None:
    failure = joining(2, {3: ("dropped", NO_ANSWER)}, 12.0)
    assert failure and failure.culprit_ranks == (3,)


def test_nobody_is_named_before_all_have_tried() -> None:
    assert joining(5, {2: ("dropped", NO_ANSWER)}, 5.9) is None


def test_of_two_hosts_it_may_be_either() -> None:
    failure = joining(2, {2: ("dropped", NO_ANSWER), 3: ("dropped", NO_ANSWER)}, 12.0)
    assert failure and failure.culprit_ranks == (0, 1, 2, 3)
    assert "which of the two" in failure.text and not failure.unreached


@pytest.mark.parametrize(("hosts", "refused"), [(2, (0, 2, 3)), (5, tuple(range(10)))])
def test_a_host_that_does_not_answer_its_own_ranks_is_the_one(hosts: int, refused: tuple[int, ...]) -> None:
    failure = joining(hosts, dict.fromkeys(refused, ("dropped", NO_ANSWER)), 14.0)
    assert failure and failure.culprit_ranks == (0, 1)
    assert failure.text == f"{NO_ANSWER}; its own ranks do not reach it either"


def test_hosts_that_are_wrong_alike_are_both_named_where_others_join() -> None:
    """As with the same stale entry in /etc/hosts: who joined has another address."""
    failure = joining(5, dict.fromkeys((1, 4), ("dropped", NO_ANSWER)), 14.0)
    assert failure and (failure.culprit_ranks, failure.text) == ((1, 4), NO_ANSWER)


def test_different_errors_of_two_hosts_are_each_ones_own() -> None:
    unlike = {0: ("dropped", NO_ANSWER), 3: ("no-route", "10.77.1.1 port 39029: No route to host")}
    failure = joining(2, unlike, 14.0)
    assert failure and failure.culprit_ranks == (0, 3)


@pytest.mark.parametrize("problem", ["name", "refused"])
def test_a_fault_of_each_host_is_not_the_masters(problem: str) -> None:
    texts = {
        rank: (problem, "head does not resolve" if problem == "name" else f"10.9.9.{rank // 2} refuses")
        for rank in (2, 3, 4, 5)
    }
    failure = joining(3, texts, 12.0)
    assert failure and failure.culprit_ranks == (2, 3, 4, 5)


@pytest.mark.parametrize("hosts", [2, 3])
def test_what_the_system_says_of_the_connecting_host_is_not_the_masters(hosts: int) -> None:
    """connect(2): EADDRNOTAVAIL, no local port is left; also of two hosts, and where all others have it."""
    ranks = range(2, 2 * hosts)
    failure = joining(hosts, dict.fromkeys(ranks, ("own", "head port 29500: Cannot assign requested address")), 14.0)
    assert failure and failure.culprit_ranks == tuple(ranks)


def test_to_be_late_is_no_error() -> None:
    assert joining(3, {}, 2.0 + JOIN) is None
