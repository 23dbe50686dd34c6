"""The rule for slow hosts and links, over seeded tournaments: right ends, right links, and none in healthy fleets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.analysis.outliers.pairs import PathOutlier
from doctor.facts.smoke.further_stages import PairTimes
from doctor.smoke.speed.link_speeds import compare_pairs
from tests.examples import examples
from tests.smoke.ranks import worker

Pair = tuple[int, int]


class Exchange(NamedTuple):
    """The times of one end of a pair; of the two ends of one measurement the lower one stands first."""

    pair: Pair
    seconds: tuple[float, ...]
    confirm: bool = False
    control: bool = False
    attempt: int = 0
    turn: int = 0


def outliers_among(exchanges: Iterable[Exchange]) -> tuple[PathOutlier, ...]:
    """What the rule makes of the events of both ends."""
    events, ends = [], Counter[tuple[object, ...]]()
    for exchange in exchanges:
        key = (exchange.pair, *exchange[2:])
        rank, peer = exchange.pair if ends[key] % 2 == 0 else exchange.pair[::-1]
        ends[key] += 1
        events.append(PairTimes(rank, peer, 0, 1 << 20, exchange.seconds, *exchange[2:5]))
    return compare_pairs(events)


COLD = 3.0
"""Times what the others take: the first exchange of a pair."""


def turns(count: int, most: int = 0) -> Iterator[list[Pair]]:
    """The worker's own rounds."""
    created = list(worker()["round_robin"](count))
    yield from created[:most] if most else created


def heavy(dice: random.Random) -> float:
    """Every second exchange is disturbed, by about as long again."""
    return 1 + (dice.expovariate(1) if dice.random() < 0.5 else 0)


def tournament(
    dice: random.Random,
    ends: int,
    slow: Mapping[int, float] | None = None,
    links: Mapping[Pair, float] | None = None,
    sigma: float = 0.12,
    repeats: int = 0,
    most: int = 0,
    late: float = 0.0,
    longer: Callable[[Pair], float] = lambda _: 1.0,
) -> list[Exchange]:
    """As the worker does it: each pair once, then the suspected ones alone, beside others.

    Without ``sigma`` the noise is heavy. ``late``: share of the exchanges that a busy machine makes 8 ms longer.
    ``longer``: times that each exchange of a pair takes besides.
    """
    slowed, bad = slow or {}, links or {}
    first_count, again_count = repeats or worker()["FIRST_EXCHANGES"], worker()["MOST_AGAIN"]

    def measure(pair: Pair, count: int) -> tuple[float, ...]:
        times = max(slowed.get(pair[0], 1.0), slowed.get(pair[1], 1.0), bad.get(pair, 1.0))
        noises = (dice.lognormvariate(0, sigma) if sigma else heavy(dice) for _ in range(count))
        exchanges = (
            0.002 * times * longer(pair) * noise * (COLD if not number else 1) for number, noise in enumerate(noises)
        )
        return tuple(time + (dice.expovariate(1 / 0.008) if dice.random() < late else 0.0) for time in exchanges)

    schedule = list(turns(ends, most))
    first = {pair: measure(pair, first_count) for pairs in schedule for pair in pairs}
    fastest = {
        end: [min((min(first[pair]) for pair in pairs if end in pair), default=0.0) for pairs in schedule]
        for end in range(ends)
    }
    exchanges = [Exchange(pair, times) for pair, times in first.items() for _ in "both"]
    suspected = worker()["slow_pairs"](schedule, fastest)
    normal = [pair for pair in first if pair not in {suspect for suspect, _ in suspected}]
    for attempt in (1, 2, 3):
        quickest, measured = [], Counter[Pair]()
        for number, (pair, _) in enumerate(suspected):
            again, beside = measure(pair, again_count), tuple[float, ...]()
            exchanges += [Exchange(pair, again, True, False, attempt) for _ in "both"]
            if normal:
                other = normal[number % len(normal)]
                beside = measure(other, again_count)
                exchanges += [Exchange(other, beside, True, True, attempt, measured[other]) for _ in "both"]
                measured[other] += 1
            quickest.append([min(again), min(beside, default=0.0)])
        suspected = worker()["still_slow"](suspected, [quickest]) if suspected else []
    return exchanges


def ends_of(exchanges: list[Exchange]) -> tuple[set[int], set[Pair]]:
    outliers = outliers_among(exchanges)
    hosts = {outlier.hosts[0] for outlier in outliers if outlier.kind == "host"}
    return hosts, {(outlier.hosts[0], outlier.hosts[1]) for outlier in outliers if outlier.kind == "link"}


@pytest.mark.parametrize("sigma", [0.12, 0.05, 0.3, 0.0], ids=["12 %", "5 %", "30 %", "heavy"])
def test_of_hundreds_of_healthy_fleets_none_has_a_slow_host_or_link(sigma: float) -> None:
    dice = random.Random(1)
    for ends, fleets in ((3, 80), (4, 80), (5, 40), (8, 40), (16, 6)):
        for number in range(fleets):
            assert ends_of(tournament(dice, ends, sigma=sigma)) == (set(), set()), (ends, number)


@pytest.mark.parametrize(
    ("ends", "slow", "sigma", "least"),
    [
        (3, 2.0, 0.05, 0.95),
        (4, 2.0, 0.12, 0.9),
        (4, 1.3, 0.03, 0.75),
        (8, 1.3, 0.05, 0.95),
        (8, 1.5, 0.12, 0.95),
        (16, 1.3, 0.12, 0.9),
    ],
)
def test_a_slow_host_is_found_and_no_other(ends: int, slow: float, sigma: float, least: float) -> None:
    dice, hits, runs = random.Random(2), 0, 40 if ends < 16 else 10
    for _ in range(runs):
        guilty = dice.randrange(ends)
        hosts, links = ends_of(tournament(dice, ends, {guilty: slow}, sigma=sigma))
        assert hosts <= {guilty} and not links
        hits += hosts == {guilty}
    assert hits >= least * runs, f"{hits} of {runs}"


@pytest.mark.parametrize("ends", [3, 4, 5])
def test_a_host_whose_sends_are_late_is_found_where_a_busy_machine_disturbs_most_exchanges(ends: int) -> None:
    """As of real runs at a load of 30 on two CPUs, in which each send of one host took 5 ms more."""
    dice, hits = random.Random(6), 0
    for _ in range(20):
        guilty = dice.randrange(ends)
        hosts, links = ends_of(tournament(dice, ends, {guilty: 3.5}, sigma=0.05, late=0.75))
        assert hosts <= {guilty} and not links
        hits += hosts == {guilty}
        assert ends_of(tournament(dice, ends, sigma=0.05, late=0.75)) == (set(), set())
    assert hits >= 19, f"{hits} of 20"


def test_two_slow_hosts_are_both_found() -> None:
    dice = random.Random(3)
    for _ in range(40):
        guilty = dice.sample(range(8), 2)
        assert ends_of(tournament(dice, 8, dict.fromkeys(guilty, 2.0))) == (set(guilty), set())


@pytest.mark.parametrize(("ends", "times", "sigma"), [(4, 3.0, 0.05), (6, 2.0, 0.05), (8, 3.0, 0.12), (16, 3.0, 0.12)])
def test_a_bad_link_is_found_and_no_host(ends: int, times: float, sigma: float) -> None:
    dice = random.Random(4)
    for _ in range(40 if ends < 16 else 8):
        low, high = sorted(dice.sample(range(ends), 2))
        assert ends_of(tournament(dice, ends, links={(low, high): times}, sigma=sigma)) == (set(), {(low, high)})


def test_a_slow_host_and_a_bad_link_between_others() -> None:
    dice = random.Random(5)
    for _ in range(40):
        guilty, low, high = dice.sample(range(8), 3)
        pair = (min(low, high), max(low, high))
        assert ends_of(tournament(dice, 8, {guilty: 2.0}, {pair: 4.0}, sigma=0.05)) == ({guilty}, {pair})


@pytest.mark.parametrize(("ends", "times", "sigma"), [(5, 30.0, 1.0), (5, 100.0, 1.5), (8, 30.0, 1.5)])
def test_on_busy_machines_a_far_slower_host_is_named_and_no_link_of_it(ends: int, times: float, sigma: float) -> None:
    """Pairs vary by e^sigma: one standard deviation is a factor of 3 to 4.5."""
    dice, hits = random.Random(9), 0
    for _ in range(60):
        guilty = dice.randrange(ends)
        hosts, links = ends_of(tournament(dice, ends, {guilty: times}, sigma=sigma))
        assert hosts <= {guilty} and not links
        hits += hosts == {guilty}
    assert hits >= 57


def test_an_end_whose_pairs_were_slow_once_and_not_slower_than_others_when_measured_again() -> None:
    """The machine was busier then: pairs that nobody suspects, measured by turns with them, took as long."""
    exchanges = [Exchange(pair, (0.002,) * 4) for pair in [(0, 1), (0, 2), (1, 2)]]
    exchanges += [Exchange((end, 3), (0.02,) * 4) for end in range(3)]
    again = [Exchange((end, 3), (0.02,) * 6, True) for end in range(3)]
    assert ends_of(exchanges + again) == ({3}, set())
    busy = [Exchange(pair, (0.02,) * 6, True, True) for pair in [(0, 1), (1, 2)]]
    assert ends_of(exchanges + again + busy) == (set(), set())
    idle = [Exchange(pair, (0.002,) * 6, True, True) for pair in [(0, 1), (1, 2)]]
    assert ends_of(exchanges + again + idle) == ({3}, set())


@pytest.mark.parametrize(("quiet", "named"), [(1, set()), (2, set()), (3, set()), (4, {3})])
def test_an_end_that_is_as_quick_as_others_in_any_confirmation_is_not_slow(quiet: int, named: set[int]) -> None:
    """``quiet``: the confirmation by which what kept the host busy was over; of three, the fourth is none."""
    slow, others = [(end, 3) for end in range(3)], [(0, 1), (0, 2), (1, 2)]
    exchanges = [Exchange(pair, (0.002,) * 5) for pair in others] + [Exchange(pair, (0.02,) * 5) for pair in slow]
    for attempt in (1, 2, 3):
        times = (0.002 if attempt >= quiet else 0.02,) * 6
        exchanges += [Exchange(pair, times, True, False, attempt) for pair in slow]
        exchanges += [Exchange(pair, (0.002,) * 6, True, True, attempt) for pair in others]
    assert ends_of(exchanges) == (named, set())


@pytest.mark.parametrize(("quiet", "named"), [(1, set()), (2, set()), (3, set()), (4, {(1, 4)})])
def test_a_link_that_is_as_quick_as_others_in_any_confirmation_is_not_slow(
    quiet: int, named: set[tuple[int, int]]
) -> None:
    exchanges = [
        exchange
        for exchange in tournament(random.Random(7), 6, sigma=0.03)
        if not exchange.confirm and exchange.pair != (1, 4)
    ]
    exchanges.append(Exchange((1, 4), (0.02,) * 5))
    for attempt in (1, 2, 3):
        exchanges.append(Exchange((1, 4), (0.002 if attempt >= quiet else 0.02,) * 6, True, False, attempt))
        exchanges.append(Exchange((0, 5), (0.002,) * 6, True, True, attempt))
    assert ends_of(exchanges) == (set(), named)


@pytest.mark.parametrize("times", [1.4, 10.0])
def test_an_end_that_was_not_measured_again_is_not_named(times: float) -> None:
    exchanges = [Exchange(pair, (0.002,) * 8) for pair in [(0, 1), (0, 2), (1, 2)]]
    exchanges += [Exchange((end, 3), (times * 0.002,) * 8) for end in range(3)]
    assert ends_of(exchanges) == (set(), set())
    again = [Exchange((end, 3), (times * 0.002,) * 6, True) for end in range(3)]
    assert ends_of(exchanges + again) == ({3}, set())


def behind_a_bucket(dice: random.Random, ends: int, struck: int) -> list[Exchange]:
    """A rate limit on one end, that lets a burst pass: its pairs are quick or slow by what came just before them."""
    burst, refill = dice.uniform(0.2, 12), 0.002 * dice.uniform(3, 200)
    tokens, clock = burst, 0.0

    def longer(pair: Pair) -> float:
        nonlocal tokens, clock
        took = 0.002 * dice.lognormvariate(0, 0.12)
        if struck in pair:
            tokens = min(burst, tokens + clock / refill)
            clock = 0.0
            took += max(0.0, 1 - tokens) * refill
            tokens = max(0.0, tokens - 1)
        clock += took
        return took / 0.002

    return tournament(dice, ends, longer=longer)


@pytest.mark.parametrize("ends", [3, 4, 5])
def test_a_rate_limit_with_a_burst_on_one_end_never_accuses_another(ends: int) -> None:
    found = Counter[int]()
    for seed in range(60):
        hosts, links = ends_of(behind_a_bucket(random.Random(seed), ends, struck := seed % ends))
        assert hosts <= {struck}, (seed, hosts)
        assert all(struck in link for link in links), (seed, links)
        found[struck] += bool(hosts or links)
    assert sum(found.values()) > 5


def test_of_thousands_of_healthy_fleets_on_very_busy_machines_none_has_a_slow_host() -> None:
    """Each exchange varies by a factor of 4.5: of 900 fleets of three hosts, five had a host that was named once."""
    dice = random.Random(1)
    for ends in (3, 5):
        for _ in range(400):
            assert ends_of(tournament(dice, ends, sigma=1.5)) == (set(), set())


@pytest.mark.parametrize("seed", [2_003_177, 2_009_923, 2_010_233])
def test_healthy_fleets_of_which_quick_exchanges_alone_named_an_end_or_a_link(seed: int) -> None:
    """The only three of 20,000: of exchanges that vary by a factor, the quickest of a few differ by chance."""
    dice = random.Random(seed)
    ends, sigma = dice.choice([3, 3, 4, 5, 6]), dice.choice([0.05, 0.12, 0.3, 0.0, 1.0, 1.5])
    late = dice.choice([0.0, 0.0, 0.3, 0.75])
    assert ends_of(tournament(dice, ends, sigma=sigma, late=late)) == (set(), set())


def test_an_end_that_was_ever_as_quick_as_the_others_is_not_slow() -> None:
    exchanges = [Exchange(pair, (0.002,) * 8) for pair in [(0, 1), (0, 2), (1, 2)]]
    exchanges += [Exchange((end, 3), (0.02,) * 6, True) for end in range(3)]
    assert ends_of(exchanges + [Exchange((end, 3), (0.02,) * 8) for end in range(3)]) == ({3}, set())
    assert ends_of(exchanges + [Exchange((end, 3), (0.02,) * 5 + (0.002,) * 1 + (0.02,) * 2) for end in range(3)]) == (
        set(),
        set(),
    )


def test_links_of_an_end_that_is_fast_with_most_others_stay_links() -> None:
    dice = random.Random(10)
    bad = {(0, 1): 5.0, (0, 2): 5.0}
    for _ in range(20):
        assert ends_of(tournament(dice, 8, links=bad, sigma=0.05)) == (set(), set(bad))


def test_many_hosts_meet_only_some_of_the_others() -> None:
    dice = random.Random(6)
    for _ in range(3):
        guilty = dice.randrange(64)
        assert ends_of(tournament(dice, 64, {guilty: 1.5}, most=9)) == ({guilty}, set())
        assert ends_of(tournament(dice, 64, most=9)) == (set(), set())


def test_what_was_slow_once_and_not_again_alone_is_no_slow_link() -> None:
    exchanges = tournament(random.Random(7), 6, sigma=0.03)
    exchanges = [
        Exchange(exchange.pair, (0.02, 0.02, 0.02)) if exchange.pair == (1, 4) else exchange for exchange in exchanges
    ]
    assert ends_of(exchanges) == (set(), set())
    assert ends_of([*exchanges, Exchange((1, 4), (0.002,) * 6, True)]) == (set(), set())
    assert ends_of([*exchanges, Exchange((1, 4), (0.02,) * 6, True)]) == (set(), {(1, 4)})


def test_two_ends_have_nothing_to_be_compared_with() -> None:
    assert ends_of([Exchange((0, 1), (5.0, 5.0, 5.0))]) == (set(), set())
    assert ends_of([]) == (set(), set())


def test_the_ratio_and_the_partners_are_told() -> None:
    (path_outlier,) = outliers_among(tournament(random.Random(8), 8, {3: 2.0}, sigma=0.03))
    assert path_outlier.ratio == pytest.approx(2, rel=0.1)
    assert path_outlier.peer_seconds == pytest.approx(0.002, rel=0.1)
    assert (path_outlier.slow_paths, len(path_outlier.paths)) == (7, 7)
    assert path_outlier.sigmas > 5


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.lists(st.floats(), max_size=5), st.booleans()), max_size=30
    )
)
def test_nothing_that_a_rank_tells_breaks_the_rule(events: list[tuple[int, int, list[float], bool]]) -> None:
    outliers_among(
        Exchange((first, other), tuple(times), again) for first, other, times, again in events if first != other
    )


def test_of_a_very_slow_host_two_exchanges_are_enough_though_one_end_leaves_its_messages_in_a_buffer() -> None:
    """Times of a real run of five hosts, one of them behind 2 Mbit/s: its sends returned before they had arrived."""
    quick = dict.fromkeys([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], (0.0009, 0.0004, 0.0004, 0.0003, 0.0005))
    slow = {
        (1, 4): ((1.1106361, 2.1710798), (0.0012281, 0.0041584)),
        (3, 4): ((1.9787579, 1.1095052), (1.9787433, 1.1103264)),
        (2, 4): ((1.1112506, 1.1063159), (1.1098271, 1.1064424)),
        (0, 4): ((1.1078697, 1.1114531), (1.1079547, 0.0136732)),
    }
    again = {
        (0, 4): ((1.105305, 1.1135303), (0.0032548, 0.007235)),
        (1, 4): ((1.1095978, 1.1150742), (1.1095986, 0.0009463)),
        (2, 4): ((1.0875955, 1.1088542), (1.0878737, 1.1094203)),
        (3, 4): ((1.1094431, 1.111762), (1.1097615, 0.000865)),
    }
    exchanges = [Exchange(pair, seconds) for pair, seconds in quick.items() for _ in "both"]
    exchanges += [Exchange(pair, end) for pair, ends in slow.items() for end in ends]
    exchanges += [Exchange(pair, end, True) for pair, ends in again.items() for end in ends]
    assert ends_of(exchanges) == ({4}, set())


BUFFERED: dict[tuple[Pair, int], tuple[tuple[float, ...], ...]] = {
    ((0, 1), 0): (
        (0.2145894, 0.2181877, 0.0035372, 0.2169465, 0.2193002),
        (0.2144336, 0.2182048, 0.2187828, 0.219491, 0.4393873),
    ),
    ((0, 2), 0): (
        (0.1345311, 0.2198833, 0.2192424, 0.0011295, 0.2192401),
        (0.4341762, 0.2196073, 0.2196162, 0.2193215, 0.2198008),
    ),
    ((1, 2), 0): (
        (0.0022354, 0.0024347, 0.0015442, 0.0018597, 0.0023529),
        (0.0058009, 0.0042916, 0.0015213, 0.0015349, 0.0030251),
    ),
    ((0, 2), 1): (
        (0.2172142, 0.0044226, 0.215103, 0.2197601, 0.2201862, 0.2195946),
        (0.2178613, 0.2183825, 0.2196722, 0.2197158, 0.2197356, 0.2197969),
    ),
    ((1, 2), 1): (
        (0.0023432, 0.0021983, 0.0021892, 0.0019334, 0.0020461, 0.0015602),
        (0.0014934, 0.002308, 0.0017678, 0.0020099, 0.0021915, 0.0013985),
    ),
    ((0, 2), 2): (
        (0.000711, 0.2200116, 0.0169881, 0.2034513, 0.2195738, 0.2195481),
        (0.2135759, 0.2200798, 0.2192623, 0.2194793, 0.2195455, 0.2196754),
    ),
    ((1, 2), 2): (
        (0.0031454, 0.0036187, 0.0024185, 0.0012373, 0.0019957, 0.0029205),
        (0.0025923, 0.0033915, 0.0024821, 0.0013107, 0.0018465, 0.0028238),
    ),
}
"""Times of a real run of three hosts, the first of them behind 40 Mbit/s: by pair and confirmation, of either end."""


@pytest.mark.parametrize("guilty", range(3))
def test_of_three_hosts_a_slow_one_is_named_though_some_of_its_messages_lie_in_a_buffer(guilty: int) -> None:
    """One end is done at once now and then, and the next exchange takes as long again: that is no noise."""

    def renumbered(pair: Pair) -> Pair:
        low, high = ((end + guilty) % 3 for end in pair)
        return min(low, high), max(low, high)

    exchanges = [
        Exchange(renumbered(pair), end, attempt > 0, attempt > 0 and pair == (1, 2), attempt)
        for (pair, attempt), ends in BUFFERED.items()
        for end in ends
    ]
    assert ends_of(exchanges) == ({guilty}, set())


def test_of_three_hosts_the_slow_one_is_named_though_one_end_of_a_pair_beside_leaves_its_message_in_a_buffer() -> None:
    """Times of a real run, the second host behind 2 Mbit/s: one exchange of each pair, and (0, 1) was not suspected."""
    exchanges = [Exchange((0, 1), seconds) for seconds in ((2.2149,), (0.0011,))]
    exchanges += [Exchange((1, 2), seconds) for seconds in ((1.0049,), (2.2162,))]
    exchanges += [Exchange((0, 2), (0.0028, 0.001, 0.001, 0.0008, 0.0017)) for _ in "both"]
    exchanges += [Exchange((1, 2), seconds, True, False, 1) for seconds in ((2.2036,), (2.2027,))]
    exchanges += [Exchange((0, 1), seconds, True, True, 1) for seconds in ((2.2114,), (0.0015,))]
    assert ends_of(exchanges) == ({1}, set())


@pytest.mark.parametrize("times", [3.0, 10.0, 200.0])
def test_of_three_hosts_the_slow_one_or_the_slow_link_is_named_and_no_other(times: float) -> None:
    dice, hosts, links = random.Random(9), 0, 0
    for number in range(60):
        guilty = number % 3
        pair = (0, 1) if guilty == 2 else (guilty, 2)
        named = ends_of(tournament(dice, 3, {guilty: times}, sigma=0.05))
        assert named in (({guilty}, set()), (set(), set()))
        hosts += named != (set(), set())
        named = ends_of(tournament(dice, 3, links={pair: times}, sigma=0.05))
        assert named in ((set(), {pair}), (set(), set()))
        links += named != (set(), set())
    assert min(hosts, links) >= 57
