"""Which ends, and which links between two ends, exchange data more slowly than the others do. Pure.

No vendor's table is asked: the pairs are measured against each other. An end is slow when its exchanges with nearly all
its partners are, and the exchanges of the others among themselves are not. What stays slow when the slow ends are set
aside, and is slow again when it is measured alone, is a slow link, where both its ends are fast with most others;
several slow links of an end that is not are the end's. With two ends there is one pair, and nothing to measure it
against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from statistics import fmean, median, median_low, pstdev

import msgspec

Pair = tuple[int, int]
"""Two ranks, the lower one first."""

SLOW_END = 1.15
"""Times what the pairs of the others take; more where few pairs or great noise make chance likely."""
SLOW_LINK = 1.5
END_SIGMAS, LINK_SIGMAS, CONFIRM_SIGMAS = 5.0, 6.0, 3.0
"""Standard deviations of chance that a verdict lies above: of an end, of a link, of a link's second measurement."""
CLEAR = 6.0
"""Times the slowest pair that nobody suspects, by the quickest exchanges of a link or an end: clear on a busy host,
too, where pairs vary by more than any link does."""
CLEAR_AGAIN, CLEAR_AGAIN_TIMES = 3.0, 3
"""Less is as clear in so many confirmations: they are apart, and what disturbs a host for a moment is over."""
NEARLY_ALL = 0.75
MIN_SECONDS, MAX_SECONDS = 1e-9, 1e6
"""Seconds that an exchange can take; other values are none."""
MIN_NOISE = 0.04
"""Pairs that are alike differ by so much, whatever their repeats say."""


class Exchange(msgspec.Struct, frozen=True):
    """The times of one pair, both directions at once."""

    pair: Pair
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""
    control: bool = False
    """Of a pair that is not suspected, measured by turns with those that are."""
    attempt: int = 0
    """Number of the confirmation that it belongs to: they are some time apart."""
    turn: int = 0
    """Of a control, which may be measured several times in one confirmation: how many the same end measured before."""


class SpeedOutlier(msgspec.Struct, frozen=True):
    """One slow end or link, against the others."""

    ends: tuple[int, ...]
    """One end, or the two of a link."""
    ratio: float
    seconds: float
    peer_seconds: float
    """Seconds that pairs of the others take."""
    sigmas: float
    """How far above chance."""
    slow_pairs: int
    """Pairs of it that are slow."""
    measured_pairs: int


class SlowLinks(msgspec.Struct, frozen=True):
    """What the pairs tell."""

    ends: tuple[SpeedOutlier, ...] = ()
    links: tuple[SpeedOutlier, ...] = ()


class _PairTimes:
    """Logarithms of each pair's time, first and second measurement, and how exact they are."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        first: dict[Pair, list[tuple[float, ...]]] = {}
        again: dict[tuple[Pair, int], list[tuple[float, ...]]] = {}
        beside: dict[tuple[Pair, int, int], list[tuple[float, ...]]] = {}
        for exchange in exchanges:
            low, high = sorted(exchange.pair)
            if exchange.control:
                beside.setdefault(((low, high), exchange.attempt, exchange.turn), []).append(exchange.seconds)
            elif exchange.confirm:
                again.setdefault(((low, high), exchange.attempt), []).append(exchange.seconds)
            else:
                first.setdefault((low, high), []).append(exchange.seconds)
        first_logs = {pair: logs for pair, ends in first.items() if (logs := usable_logs(ends))}
        self.first = {pair: lower_quartile(logs) for pair, logs in first_logs.items()}
        self.confirmations: dict[Pair, dict[int, list[float]]] = {}
        for (pair, attempt), ends in again.items():
            if pair in self.first and (logs := usable_logs(ends)):
                self.confirmations.setdefault(pair, {})[attempt] = logs
        self.controls: dict[int, dict[Pair, list[float]]] = {}
        """Of pairs that are not suspected, measured by turns with those that are: by confirmation."""
        for (pair, attempt, _), ends in beside.items():
            if logs := usable_logs(ends):
                self.controls.setdefault(attempt, {}).setdefault(pair, []).append(lower_quartile(logs))
        self.best_confirmation = {
            pair: min(logs)
            for pair, by_attempt in self.confirmations.items()
            if len(logs := [*chain.from_iterable(by_attempt.values())]) >= 3
        }
        self.best_first = {pair: min(logs) for pair, logs in first_logs.items()}
        """Of the first measurement, which has as many exchanges of every pair."""
        self.best = {
            pair: min([best, *chain.from_iterable(self.confirmations.get(pair, {}).values())])
            for pair, best in self.best_first.items()
        }
        """The quickest exchange of each pair, at any time."""
        counts = [max(1, len(logs)) for logs in first_logs.values()]
        spread = fmean([pstdev(logs) for logs in first_logs.values()]) if first_logs else 0.0
        self.noise = max(MIN_NOISE, 1.36 * spread / math.sqrt(median(counts)) if counts else 0.0)
        # Of few pairs not even the noise is well known.
        self.noise *= 1 + 1 / max(1, len(counts))

    def excess_again(self, pair: Pair, norm: float, usual_beside: Callable[[int], float]) -> list[float]:
        """By how much each confirmation of the pair was slower than both the norm and other pairs at that time.

        ``usual_beside``: what other pairs took in a confirmation. Empty for a pair that was measured once only.
        """
        confirmations = sorted(self.confirmations.get(pair, {}).items())
        return [lower_quartile(logs) - max(norm, usual_beside(attempt)) for attempt, logs in confirmations]

    def without(self, ends: Iterable[int]) -> dict[Pair, float]:
        excluded = set(ends)
        return {pair: time for pair, time in self.first.items() if not excluded & set(pair)}


def compare_pairs(exchanges: Iterable[Exchange]) -> SlowLinks:
    """The slow ends and links among pairs that are alike by construction."""
    table = _PairTimes(exchanges)
    ends: list[SpeedOutlier] = []
    while worst := _worst_end(table, table.without(end for outlier in ends for end in outlier.ends)):
        ends.append(worst)
    times = table.without(end for outlier in ends for end in outlier.ends)
    ends_of_links, links = _attributed(times, _slow_links(table, times))
    return SlowLinks(tuple(sorted([*ends, *ends_of_links], key=_by_ratio)), tuple(sorted(links, key=_by_ratio)))


def _attributed(
    times: Mapping[Pair, float], links: Sequence[SpeedOutlier]
) -> tuple[list[SpeedOutlier], list[SpeedOutlier]]:
    """The slow ends that several links share, and the links of which both ends are fast with most others."""
    paths, by_end = [], dict[int, list[SpeedOutlier]]()
    for link in links:
        slow_ends = [end for end in link.ends if _is_slow_elsewhere(times, end, link)]
        if not slow_ends:
            paths.append(link)
        elif len(slow_ends) == 1:
            by_end.setdefault(slow_ends[0], []).append(link)
    ends = [_end_of_links(times, end, its_links) for end, its_links in by_end.items() if len(its_links) > 1]
    named = {end for outlier in ends for end in outlier.ends}
    return ends, [link for link in paths if not named & set(link.ends)]


def _is_slow_elsewhere(times: Mapping[Pair, float], end: int, link: SpeedOutlier) -> bool:
    """Whether most of the end's pairs with others than the link's other end are slow, too."""
    between = math.log(link.peer_seconds) + math.log(link.ratio) / 2
    other_pairs = [time for pair, time in times.items() if end in pair and pair != link.ends]
    return 2 * sum(time > between for time in other_pairs) > len(other_pairs)


def _end_of_links(times: Mapping[Pair, float], end: int, links: Sequence[SpeedOutlier]) -> SpeedOutlier:
    """The end that several slow links share, and that is fast with few others."""
    mine = [time for pair, time in times.items() if end in pair]
    norm, usual = math.log(links[0].peer_seconds), median_low(mine)
    slow = sum(time > (norm + usual) / 2 for time in mine)
    sigmas = min(link.sigmas for link in links)
    return SpeedOutlier((end,), math.exp(usual - norm), math.exp(usual), math.exp(norm), sigmas, slow, len(mine))


def _by_ratio(outlier: SpeedOutlier) -> float:
    return -outlier.ratio


def _worst_end(table: _PairTimes, times: Mapping[Pair, float]) -> SpeedOutlier | None:
    """The end that stands out most, by standard deviations; None when nobody stands out enough."""
    pairs_by_end: dict[int, list[Pair]] = {}
    for pair in times:
        for end in pair:
            pairs_by_end.setdefault(end, []).append(pair)
    candidates = [
        candidate for end, pairs in pairs_by_end.items() if (candidate := _slow_end(table, times, end, pairs))
    ]
    return max(candidates, key=lambda outlier: (outlier.sigmas, outlier.ratio), default=None)


def _slow_end(table: _PairTimes, times: Mapping[Pair, float], end: int, pairs: Sequence[Pair]) -> SpeedOutlier | None:
    others = [time for pair, time in times.items() if end not in pair]
    mine = [times[pair] for pair in pairs]
    if len(mine) < 2 or not others:
        return None
    usual, norm = median_low(mine), median_low(others)
    more = usual - norm
    noise = _robust_spread(table.noise, [time - usual for time in mine], [time - norm for time in others])
    chance = 1.25 * noise * math.sqrt(1 / len(mine) + 1 / len(others))
    slow = sum(time > norm + more / 2 for time in mine)
    if more < math.log(SLOW_END) or slow < NEARLY_ALL * len(mine):
        return None
    # A disturbance leaves some exchanges alone; a slow end does not.
    best = table.best_first
    if median(best[pair] for pair in pairs) - median(best[pair] for pair in times if end not in pair) < more / 2:
        return None
    confirmed = _confirmed_excess(table, norm, end, pairs)
    if not confirmed or min(confirmed) < more / 2:
        return None
    quickest = sorted(table.best[pair] for pair in pairs)
    least = quickest[len(mine) - math.ceil(NEARLY_ALL * len(mine))] - max(others)
    clear = least >= math.log(CLEAR) or (len(confirmed) > 1 and min(confirmed) >= _clearly_more(len(confirmed)))
    # Of three hosts, the others are a single pair: nothing shows how much pairs vary here.
    if not (clear and len(others) > 1) and more < END_SIGMAS * chance:
        return None
    return SpeedOutlier((end,), math.exp(more), math.exp(usual), math.exp(norm), more / chance, slow, len(mine))


def _confirmed_excess(table: _PairTimes, norm: float, end: int, pairs: Sequence[Pair]) -> list[float]:
    """By how much the middle pair of the end was slower in each confirmation than pairs of the others at that time.

    Empty where no pair of it was measured again as a suspect.
    """

    def usual_beside(attempt: int) -> float:
        controls = table.controls.get(attempt, {}).items()
        beside = [time for pair, times_of_pair in controls if end not in pair for time in times_of_pair]
        return median(beside) if beside else norm

    again = {pair: excess for pair in pairs if (excess := table.excess_again(pair, norm, usual_beside))}
    if not again:
        return []
    for pair in set(pairs) - set(again):
        # Not suspected itself: what it took beside those that were, or at first where it was not measured again.
        as_control = [times[pair] for _, times in sorted(table.controls.items()) if pair in times]
        again[pair] = [min(times) - norm for times in as_control] or [table.first[pair] - norm]
    # A pair that was not slow in one confirmation was not measured in the next: it is as it was.
    attempts = range(max(map(len, again.values())))
    return [median_low(excess[min(number, len(excess) - 1)] for excess in again.values()) for number in attempts]


def _slow_links(table: _PairTimes, times: Mapping[Pair, float]) -> list[SpeedOutlier]:
    """Pairs far above the middle one. Of two pairs nobody can tell which is as it should be."""
    if len(times) < 3:
        return []
    norm = median_low(times.values())
    noise = _robust_spread(table.noise, [time - norm for time in times.values()])
    unsuspected = [time for pair, time in times.items() if pair not in table.confirmations]
    controls = {
        attempt: [time for times_of_pair in by_pair.values() for time in times_of_pair]
        for attempt, by_pair in table.controls.items()
    }
    slow_links, usual_best = [], median_low(table.best_first[pair] for pair in times)
    for pair, time in times.items():
        again = table.excess_again(pair, norm, lambda attempt: max(controls.get(attempt, ()), default=norm))
        if not again:
            continue
        more = min(time - norm, *again)
        sure = time - norm >= LINK_SIGMAS * noise and more >= CONFIRM_SIGMAS * noise
        slowest = max([*unsuspected, *chain.from_iterable(controls.values())], default=norm)
        clear = len(unsuspected) > 1 and table.best_confirmation.get(pair, norm) - slowest >= _clearly_more(len(again))
        always = table.best_first[pair] - usual_best >= more / 2
        if more >= math.log(SLOW_LINK) and always and (sure or clear):
            slow_links.append(
                SpeedOutlier(pair, math.exp(more), math.exp(norm + more), math.exp(norm), more / noise, 1, 1)
            )
    return slow_links


def _clearly_more(attempts: int) -> float:
    """By how much what was confirmed so many times is more than any chance: the logarithm of a factor."""
    return math.log(CLEAR_AGAIN if attempts >= CLEAR_AGAIN_TIMES else CLEAR)


def _robust_spread(least: float, *groups: Sequence[float]) -> float:
    """How much pairs that are alike differ: robust against the few that are not, and never less than `least`."""
    return max(least, 1.4826 * median([abs(rest) for group in groups for rest in group]))


def usable_logs(ends: Sequence[Sequence[float]]) -> list[float]:
    """Logarithms of the seconds that each end of a pair measured; values that no exchange can take are left out.

    An exchange lasts until its later end is done: on a slow link the other one is done when its own message lies in a
    buffer of the kernel, which holds several. The first exchange of several touches fresh memory and wakes the
    connection.
    """
    later = [max(filter(_is_possible, both), default=0.0) for both in zip_longest(*ends, fillvalue=0.0)]
    return [math.log(time) for time in (later[1:] if len(later) > 2 else later) if time]


def _is_possible(seconds: float) -> bool:
    return MIN_SECONDS <= seconds <= MAX_SECONDS


def lower_quartile(numbers: Sequence[float]) -> float:
    """The lower quartile of numbers: a disturbance makes an exchange slower, never quicker."""
    return sorted(numbers)[(len(numbers) - 1) // 4]
