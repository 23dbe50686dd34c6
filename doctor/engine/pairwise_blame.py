"""The culprits of failures between pairs: the parts that a fleet is cut into, else the fewest ends that explain them.

As in `doctor.net.localize`, what passes decides first: where no part has most of the ends, none is at fault by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

End = TypeVar("End", bound=tuple[object, ...])


PARTS = "parts"
"""The value of a finding that is about a cut: lists of hosts, each of which connects within itself."""


def blame(pairs: Collection[tuple[End, End, bool]]) -> tuple[dict[End, list[End]], list[list[list[End]]]]:
    """What explains the failed ``pairs``: (from, to, whether it worked). Suspects, and cuts; a caller reports both.

    Suspects: the ends that failures gather at, each with the other ends of the failed pairs that it explains. Cuts:
    ends that tried each other and fall into parts, none with more than half of them; the largest part first.

    >>> alike = {"a": 1, "b": 1, "c": 2, "d": 2}
    >>> blame([((one,), (other,), alike[one] == alike[other]) for one in alike for other in alike if one != other])
    ({}, [[[('a',), ('b',)], [('c',), ('d',)]]])
    """
    failed = {frozenset(pair) for *pair, worked in pairs if not worked}
    if not failed:
        return {}, []
    tried = _connected((source, target) for source, target, _ in pairs)
    parts = _connected((source, target) for source, target, _ in pairs if frozenset((source, target)) not in failed)
    cuts: list[list[list[End]]] = []
    for ends in _members(tried):
        divided = _members({end: parts.get(end, end) for end in ends})
        if len(ends) > 2 and 2 * len(divided[0]) <= len(ends):
            cuts.append(divided)
    crossing = {end: number for cut in cuts for number, part in enumerate(cut) for end in part}
    within = [
        (source, target, worked)
        for source, target, worked in pairs
        if worked or source not in crossing or crossing[source] == crossing[target]
    ]
    return _suspects(within), cuts


def _connected(pairs: Iterable[tuple[End, End]]) -> dict[End, End]:
    """By end, the one that stands for all that are connected with it."""
    above: dict[End, End] = {}

    def root(end: End) -> End:
        while above.setdefault(end, end) != end:
            above[end] = end = above[above[end]]
        return end

    for source, target in pairs:
        above[root(source)] = root(target)
    return {end: root(end) for end in list(above)}


def _members(roots: Mapping[End, End]) -> list[list[End]]:
    """The ends that one stands for, in order; the largest set first."""
    by_root: dict[End, list[End]] = defaultdict(list)
    for end in sorted(roots, key=_sort_key):
        by_root[roots[end]].append(end)
    return sorted(by_root.values(), key=lambda ends: (-len(ends), _sort_key(ends[0])))


def cut_values(cut: list[list[End]]) -> dict[str, Any]:
    """The values of a finding about a cut: its hosts, and their parts as lists and in words."""
    parts = [[str(end[0]) for end in part] for part in cut]
    return {PARTS: parts, "count": len(parts), "places": " | ".join(", ".join(part) for part in parts)}


def _suspects(pairs: Collection[tuple[End, End, bool]]) -> dict[End, list[End]]:
    """The end that failed with the largest share of its partners comes first and explains its pairs, and so on.

    Of two that failed only with each other the one that was reached for is named: it was to answer.
    """
    tried = partners(pairs)
    failed: dict[End, dict[End, bool]] = defaultdict(dict)
    for source, target, worked in pairs:
        if not worked:
            failed[source][target] = False
            failed[target][source] = True
    order = {end: place for place, end in enumerate(sorted(failed, key=_sort_key, reverse=True))}

    def rank(end: End) -> tuple[float, int, int]:
        return -len(failed[end]) / len(tried[end]), -sum(failed[end].values()), order[end]

    blamed: dict[End, list[End]] = {}
    queue = [(rank(end), end) for end in failed]
    heapify(queue)
    while failed:
        queued_rank, worst = heappop(queue)
        if worst not in failed:
            continue
        if (now := rank(worst)) != queued_rank:
            heappush(queue, (now, worst))
            continue
        blamed[worst] = sorted(failed.pop(worst))
        for other in blamed[worst]:
            del failed[other][worst]
            if not failed[other]:
                del failed[other]
    return blamed


def hosts_to_name(host: str, others: Collection[str]) -> list[str]:
    """The hosts of a finding: one that failed with two others; of two that failed with each other alone, both.

    There one host's word, or one link between them, is all evidence.

    >>> hosts_to_name("b", ["a"]), hosts_to_name("b", ["a", "c"])
    (['a', 'b'], ['b'])
    """
    return [host] if len(set(others)) > 1 else sorted({host, *others})


def partners(pairs: Collection[tuple[End, End, bool]]) -> dict[End, set[End]]:
    """Whom each end was tried with, in either direction."""
    tried: dict[End, set[End]] = defaultdict(set)
    for source, target, _ in pairs:
        tried[source].add(target)
        tried[target].add(source)
    return tried


def _sort_key(end: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(str(part) for part in end)
