"""Rounds of disjoint pairs: all of them, or a stated part, worked out by each host alone."""

from __future__ import annotations

from collections import Counter

import pytest

from doctor.net.schedule import Pair, Schedule, default_degree, full, quick

SIZES = [2, 3, 4, 5, 8, 9, 16, 31, 64, 127, 256]


def all_pairs(schedule: Schedule) -> list[Pair]:
    """Every pair once, round by round."""
    return [pair for number in range(schedule.rounds) for pair in schedule.pairs(number)]


def degrees(schedule: Schedule) -> Counter[int]:
    return Counter(host for pair in all_pairs(schedule) for host in pair)


@pytest.mark.parametrize("hosts", SIZES)
def test_full_has_every_pair_once(hosts: int) -> None:
    schedule = full(hosts, 34)
    pairs = all_pairs(schedule)
    assert len(pairs) == len(set(pairs)) == schedule.pair_count == hosts * (hosts - 1) // 2
    assert schedule.rounds == (hosts - 1 if hosts % 2 == 0 else hosts)
    assert schedule.chance_to_miss_pair == 0


@pytest.mark.parametrize("hosts", [0, 1])
def test_one_host_has_nobody_to_try(hosts: int) -> None:
    for schedule in (full(hosts, 3), quick(hosts, 3, seed=1)):
        assert (schedule.rounds, all_pairs(schedule), schedule.chance_to_miss_pair) == (0, [], 0)


@pytest.mark.parametrize("hosts", SIZES)
@pytest.mark.parametrize("seed", [0, 1, 2**32])
def test_a_host_is_in_one_pair_of_a_round_at_most(hosts: int, seed: int) -> None:
    for schedule in (full(hosts, 4), quick(hosts, 4, seed)):
        for number in range(schedule.rounds):
            pairs = schedule.pairs(number)
            assert len({host for pair in pairs for host in pair}) == 2 * len(pairs)
            if schedule.kind == "full":
                assert len(pairs) == hosts // 2


@pytest.mark.parametrize("hosts", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_quick_states_what_it_covers(hosts: int, seed: int) -> None:
    schedule = quick(hosts, 34, seed)
    pairs = all_pairs(schedule)
    assert len(pairs) == len(set(pairs)) == schedule.pair_count
    assert (
        min(degrees(schedule).values())
        == schedule.degree
        == min(hosts - 1, max(default_degree(hosts), schedule.degree))
    )
    assert {tuple(sorted((host, (host + 1) % hosts))) for host in range(hosts)} <= set(pairs), "the ring of the ranks"
    assert schedule.chance_to_miss_pair == pytest.approx(1 - len(pairs) / (hosts * (hosts - 1) / 2))


def test_quick_grows_with_the_logarithm_of_the_fleet() -> None:
    assert [max(degrees(quick(hosts, 34, seed=3)).values()) for hosts in (64, 256, 1024)] <= [15, 19, 23]


def test_a_seed_draws_the_same_pairs_again_and_another_seed_others() -> None:
    assert quick(64, 34, seed=5) == quick(64, 34, seed=5)
    assert set(all_pairs(quick(64, 34, seed=5))) != set(all_pairs(quick(64, 34, seed=6)))


def test_the_stated_chance_is_how_often_a_bad_pair_is_missed() -> None:
    """One fixed pair that is not of the ring, over many seeds: an adversary does not know the seed."""
    missed = sum((3, 20) not in set(all_pairs(quick(32, 1, seed))) for seed in range(400))
    schedule = quick(32, 1, seed=0)
    drawn = (schedule.pair_count - 32) / (schedule.all_pair_count - 32)
    assert missed / 400 == pytest.approx(1 - drawn, abs=0.08)


@pytest.mark.parametrize("hosts", [7, 8, 64, 255])
def test_both_ends_of_a_pair_agree_without_talking(hosts: int) -> None:
    for schedule in (full(hosts, 34), quick(hosts, 34, seed=9)):
        for host in range(hosts):
            for number, partner in schedule.partners(host):
                assert schedule.partner(partner, number) == host != partner


def test_above_128_hosts_a_host_tries_as_much_as_at_128() -> None:
    work = {}
    for hosts in (128, 256, 512):
        schedule = full(hosts, 34, strides=(8,))
        work[hosts] = sum(len(schedule.ports_of(3, partner, number)) for number, partner in schedule.partners(3))
    assert work[128] == 127 * 34
    assert work[256] == pytest.approx(work[128], rel=0.03)
    assert work[512] == pytest.approx(work[128], rel=0.1)


def test_samples_leave_no_port_of_a_neighbour_out() -> None:
    schedule = full(256, 34, strides=(8, 300))
    for partner in (4, 2, 11, 251, 47, 215):  # the ring, 8 away, and 300 - 256 away
        assert schedule.is_neighbour(3, partner)
        assert schedule.ports_of(3, partner, 17) == list(range(34))
    assert len(schedule.ports_of(3, 100, 17)) == 17


def test_every_port_of_a_target_is_tried_equally_often() -> None:
    schedule = full(512, 34)
    tried = Counter(port for number, source in schedule.partners(9) for port in schedule.ports_of(source, 9, number))
    assert len(tried) == 34
    assert max(tried.values()) - min(tried.values()) <= 3


def test_what_is_printed_says_the_coverage_and_what_may_be_missed() -> None:
    assert str(full(64, 34)) == "2016 of 2016 pairs both ways in 63 rounds, 34 of 34 ports"
    assert str(full(256, 34)) == (
        "32640 of 32640 pairs both ways in 255 rounds, 17 of 34 ports of each pair, all of a rank's neighbours; "
        "chance to miss a single bad port of one direction: 50.0 %"
    )
    schedule = quick(64, 34, seed=1)
    assert f"each host in at least {schedule.degree} pairs" in str(schedule)
    assert str(schedule).endswith(f"{100 * (1 - schedule.pair_count / 2016):.1f} %")
