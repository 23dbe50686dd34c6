"""Which of several units makes the groups wrong that it is in: halves are tested, then halves of the wrong half. Pure.

A unit is a tuple of ranks, those of a host or a single one. Every rank computes this by itself, from the same results,
so that all of them test the same groups in the same order.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

Unit = Tuple[int, ...]
TestGroups = Callable[[List[List[Unit]]], List[Optional[bool]]]
"""Tests groups of units that share no unit, all at once. Of each group: True if its results were wrong, False if all
were right although as many as this would have been wrong before, None if neither can be said."""


class GroupSearch:
    """The search, and what it found.

    A wrong group holds a culprit: that is certain. That a right group holds none rests on how many results it had.
    """

    def __init__(self, test: TestGroups) -> None:
        self.test = test
        self.culprits: list[Unit] = []
        """Units that make every tested group wrong that they are in."""
        self.links: list[tuple[Unit, Unit]] = []
        """Pairs that are wrong together, and each right with others."""
        self.unclear: list[Unit] = []
        """Units of groups that are wrong, where no test tells which of them it is."""

    def search(self, wrong: list[Unit], right: list[Unit]) -> None:
        """Divides a group that was wrong. ``right``: units of groups that were right, to be partners of single ones."""
        partners = [unit for unit in right if unit not in wrong]
        if len(wrong) == 1:
            self.culprits += wrong
        elif len(wrong) == 2:
            self.tell_apart(wrong[0], wrong[1], partners)
        elif len(wrong) == 3 and not partners:
            self.compare_three(wrong)
        else:
            self.halve(wrong, partners)

    def halve(self, wrong: list[Unit], partners: list[Unit]) -> None:
        """Tests the halves of three units and more; a single unit gets a partner."""
        middle = len(wrong) // 2
        halves = [wrong[:middle], wrong[middle:]]
        groups = [half + partners[:1] if len(half) == 1 else half for half in halves]
        results = self.test(groups)
        faulty = [half for half, result in zip(halves, results) if result]
        healthy = [unit for half, result in zip(halves, results) if result is False for unit in half]
        for half in faulty:
            self.search(half, partners + healthy)
        if not faulty and all(result is False for result in results):
            self.search_between(halves[0], halves[1])
        elif not faulty:
            self.unclear += wrong

    def tell_apart(self, first: Unit, second: Unit, partners: list[Unit]) -> None:
        """Two units that are wrong together: each with another partner."""
        if not partners:
            self.unclear += [first, second]
            return
        if len(partners) > 1:
            results = self.test([[first, partners[0]], [second, partners[1]]])
        else:
            results = self.test([[first, partners[0]]]) + self.test([[second, partners[0]]])
        self.culprits += [unit for unit, result in zip((first, second), results) if result]
        if not any(results):
            if None in results:
                self.unclear += [first, second]
            else:
                self.links.append((first, second))

    def compare_three(self, wrong: list[Unit]) -> None:
        """Three units, and no others: by pairs."""
        pairs = [(wrong[0], wrong[1]), (wrong[0], wrong[2]), (wrong[1], wrong[2])]
        results = [self.test([list(pair)])[0] for pair in pairs]
        bad = [pair for pair, result in zip(pairs, results) if result]
        common = [unit for unit in wrong if bad and all(unit in pair for pair in bad)]
        if None in results or len(bad) in (0, 3):
            self.unclear += wrong
        elif len(bad) == 2:
            self.culprits += common
        else:
            self.links.append(bad[0])

    def search_between(self, before: list[Unit], after: list[Unit]) -> None:
        """Two groups that are right, and wrong together: the pair with one unit in each."""
        if len(before) == len(after) == 1:
            self.links.append((before[0], after[0]))
            return
        before_parts = [part for part in (before[: len(before) // 2], before[len(before) // 2 :]) if part]
        after_parts = [part for part in (after[: len(after) // 2], after[len(after) // 2 :]) if part]
        turns = [[(a, b) for a in before_parts for b in after_parts if (a is before_parts[0]) == (b is after_parts[0])]]
        turns += [
            [(a, b) for a in before_parts for b in after_parts if (a is before_parts[0]) != (b is after_parts[0])]
        ]
        for pairs in turns:
            results = self.test([a + b for a, b in pairs]) if pairs else []
            for (a, b), result in zip(pairs, results):
                if result:
                    self.search_between(a, b)
                    return
        self.unclear += before + after


class Isolation:
    """What a second round of collectives tells of wrong values, in ranks."""

    def __init__(self) -> None:
        self.culprits: list[Unit] = []
        """Each: a rank, or all ranks of a host."""
        self.outward: list[Unit] = []
        """Hosts, as their ranks, that are wrong with others and right alone."""
        self.links: list[tuple[Unit, Unit]] = []
        self.unclear: list[int] = []


def isolate(hosts: list[Unit], test: TestGroups) -> Isolation | None:
    """Divides the world, the ranks of these hosts, until a rank, a host or a pair is left; None if nothing is wrong.

    First by hosts, then by the ranks of each host that is wrong even when it is alone.
    """
    ranks: list[Unit] = [(rank,) for unit in hosts for rank in unit]
    if test([hosts])[0] is not True:
        return None
    result = Isolation()
    if len(hosts) == 1:
        by_rank = GroupSearch(test)
        by_rank.search(ranks, [])
        result.culprits, result.links = by_rank.culprits, by_rank.links
        result.unclear = [rank for unit in by_rank.unclear for rank in unit]
        return result
    if len(hosts) == 2:
        suspects, others = hosts, []
    else:
        by_host = GroupSearch(test)
        by_host.search(hosts, [])
        result.links = by_host.links
        result.unclear = [rank for unit in by_host.unclear for rank in unit]
        suspects = by_host.culprits
        others = [unit for unit in hosts if unit not in suspects and not set(unit) & set(result.unclear)]
    examine_hosts(suspects, others, test, result, pair=len(hosts) == 2)
    return result


def examine_hosts(suspects: list[Unit], others: list[Unit], test: TestGroups, result: Isolation, pair: bool) -> None:
    """Which ranks of these hosts it is: each host alone, then its ranks. ``pair``: there are no other hosts."""
    plural = [unit for unit in suspects if len(unit) > 1]
    alone = dict(zip(plural, test([[(rank,) for rank in unit] for unit in plural]) if plural else []))
    healthy = others + [unit for unit in plural if pair and alone[unit] is False]
    for unit in plural:
        if alone[unit]:
            by_rank = GroupSearch(test)
            by_rank.search([(rank,) for rank in unit], [(other[0],) for other in healthy])
            faulty = [rank for single in by_rank.culprits for rank in single]
            result.links += by_rank.links
            unclear = bool(by_rank.unclear)
            if faulty and not unclear and len(faulty) < len(unit):
                result.culprits += by_rank.culprits
            elif unclear or faulty:
                result.culprits.append(unit)
        elif not pair:
            (result.outward if alone[unit] is False else result.culprits).append(unit)
    if not pair:
        result.culprits += [unit for unit in suspects if len(unit) == 1]
    elif not any(alone.values()):
        if len(plural) == 2 and None not in alone.values():
            result.links.append((suspects[0], suspects[1]))
        else:
            result.unclear += [rank for unit in suspects for rank in unit]


def divisions(hosts: list[str]) -> list[list[list[int]]]:
    """Ways to part the world in two, each of two ranks and more: by a bit of the host's number, or of the rank's.

    Any two hosts are apart in one of them, so that a host which is wrong now and then is found by where it was.
    """
    names = list(dict.fromkeys(hosts))
    numbers = [names.index(host) for host in hosts] if len(names) > 1 else list(range(len(hosts)))
    pairs = []
    for bit in range(max(numbers).bit_length()):
        parts = [[rank for rank, number in enumerate(numbers) if number >> bit & 1 == value] for value in (0, 1)]
        if min(map(len, parts)) > 1:
            pairs.append(parts)
    return pairs
