"""Who makes groups wrong, from the results of groups alone: hosts, ranks, ways out of a host, links."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from doctor.smoke.programs.worker.group_search import Isolation, Unit, isolate

SIZES = [(1, 3), (1, 4), (1, 8), (2, 2), (2, 4), (3, 1), (3, 2), (4, 1), (5, 1), (5, 2), (8, 1), (100, 1), (512, 8)]
Wrong = Callable[[set[int]], bool | None]


def searched(hosts: int, each: int, wrong: Wrong, most: int = 20) -> Isolation | None:
    """What comes of it; groups of one round must be apart, and of two ranks and more."""
    units: list[Unit] = [tuple(range(host * each, (host + 1) * each)) for host in range(hosts)]
    rounds = 0

    def test(groups: list[list[Unit]]) -> list[bool | None]:
        nonlocal rounds
        rounds += 1
        ranks = [[rank for unit in group for rank in unit] for group in groups]
        together = [rank for some in ranks for rank in some]
        assert len(together) == len(set(together)) and all(len(some) > 1 for some in ranks), ranks
        return [wrong(set(some)) for some in ranks]

    isolation = isolate(units, test)
    assert rounds <= most
    return isolation


@pytest.mark.parametrize(("hosts", "each"), SIZES)
def test_a_rank_that_is_wrong_in_every_group(hosts: int, each: int) -> None:
    for guilty in {0, hosts * each // 2, hosts * each - 1}:
        isolation = searched(hosts, each, lambda ranks, guilty=guilty: guilty in ranks)
        assert isolation and isolation.culprits == [(guilty,)]
        assert not (isolation.outward or isolation.links or isolation.unclear)


@pytest.mark.parametrize(("hosts", "each"), [(hosts, each) for hosts, each in SIZES if hosts > 1])
def test_a_host_all_of_whose_ranks_are_wrong(hosts: int, each: int) -> None:
    for guilty in {0, hosts // 2, hosts - 1}:
        ranks_of_guilty = set(range(guilty * each, (guilty + 1) * each))
        isolation = searched(hosts, each, lambda ranks, guilty=ranks_of_guilty: bool(ranks & guilty))
        assert isolation and isolation.culprits == [tuple(sorted(ranks_of_guilty))]
        assert not (isolation.outward or isolation.links or isolation.unclear)


@pytest.mark.parametrize(("hosts", "each"), [(3, 2), (5, 2), (16, 8), (512, 8)])
def test_a_host_that_is_wrong_with_others_and_right_alone(hosts: int, each: int) -> None:
    guilty = hosts // 2
    isolation = searched(
        hosts, each, lambda ranks: (on := {rank // each for rank in ranks}) != {guilty} and guilty in on
    )
    assert isolation and isolation.outward == [tuple(range(guilty * each, (guilty + 1) * each))]
    assert not (isolation.culprits or isolation.links or isolation.unclear)


@pytest.mark.parametrize(("hosts", "each"), [(2, 2), (2, 4), (3, 1), (3, 2), (4, 1), (5, 2), (8, 1), (512, 8)])
def test_a_way_between_two_hosts(hosts: int, each: int) -> None:
    rng = Random(hosts * 10 + each)
    for _ in range(3):
        first, second = sorted(rng.sample(range(hosts), 2))
        isolation = searched(
            hosts, each, lambda ranks, ends=(first, second): set(ends) <= {rank // each for rank in ranks}
        )
        assert isolation and not (isolation.culprits or isolation.outward or isolation.unclear)
        [link] = isolation.links
        assert sorted(rank // each for rank in (link[0][0], link[1][0])) == [first, second]


def test_two_culprits_are_both_found() -> None:
    isolation = searched(16, 2, lambda ranks: bool(ranks & {5, 28}))
    assert isolation and sorted(isolation.culprits) == [(5,), (28,)]


@pytest.mark.parametrize(("hosts", "each"), [(1, 2), (2, 1)])
def test_of_two_ranks_nothing_tells_which(hosts: int, each: int) -> None:
    isolation = searched(hosts, each, lambda ranks: True)
    assert isolation and isolation.unclear == [0, 1] and not (isolation.culprits or isolation.links)


def test_what_is_not_seen_again_is_laid_at_nobody() -> None:
    assert searched(8, 2, lambda ranks: False) is None
    isolation = searched(8, 2, lambda ranks: True if len(ranks) == 16 else None)
    assert (
        isolation
        and isolation.unclear == list(range(16))
        and not (isolation.culprits or isolation.links or isolation.outward)
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_innocent_is_named_when_tests_say_nothing_now_and_then(seed: int) -> None:
    """A group with the culprit is wrong, or cannot be told; one without is right, or cannot be told."""
    rng = Random(seed)
    guilty = rng.randrange(24)
    isolation = searched(12, 2, lambda ranks: None if rng.random() < 0.3 else guilty in ranks)
    for unit in (isolation.culprits + isolation.outward) if isolation else ():
        assert guilty in unit
