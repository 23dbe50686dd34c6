"""The culprits of failures between pairs: the fewest ends that explain them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import TypeVar

End = TypeVar("End", bound=tuple[object, ...])


def suspects(pairs: Collection[tuple[End, End, bool]]) -> dict[End, list[End]]:
    """The ends that failures gather at, each with the other ends of the failed pairs that it explains.

    ``pairs`` are (from, to, whether it worked). The end that failed with the largest share of its partners is taken
    first, its pairs are explained by it, and so on until none is left. Of two that failed only with each other the
    one that was reached for is named: it was to answer.
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
