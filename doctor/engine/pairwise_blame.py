"""The culprits of failures between pairs: the fewest ends that explain them all; no end where the ends are cut apart.

Attempts are often a sample that goes one way, from each end to some others, so a pair that worked connects its ends, no
matter which of them tried. `doctor.net.host_groups` knows both ways of every pair and every port, as bit masks: there a
part is a strongly connected component.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec

from doctor.engine.grouping import all_reached, sets_by_key
from doctor.engine.result import CUT_PARTS, Finding
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

End = TypeVar("End", bound=tuple[object, ...])
MOST_LABELS = 6
"""Parts that a finding names in its text."""


class Cut(msgspec.Struct, Generic[End], frozen=True):
    """Three ends or more in parts, where no part holds more than half of them: none of them is a culprit."""

    parts: tuple[tuple[End, ...], ...]
    """The largest first. One end may be a part: that it is alone says nothing against it."""
    failed: tuple[tuple[End, End], ...]
    """The attempts between two parts, (from, to)."""

    @property
    def hosts(self) -> list[str]:
        return sorted({str(end[0]) for part in self.parts for end in part})

    @property
    def values(self) -> dict[str, object]:
        return part_values([[str(end[0]) for end in part] for part in self.parts])


def part_values(parts: Sequence[Sequence[str]]) -> dict[str, object]:
    """Values of a finding: the parts as lists of hosts and as words, and the number of all hosts."""
    labels = [folded(part) for part in parts[:MOST_LABELS]]
    if len(parts) > MOST_LABELS:
        labels.append(filled("{0} other parts", len(parts) - MOST_LABELS))
    return {CUT_PARTS: [*map(list, parts)], "between": labels, "count": len({*chain.from_iterable(parts)})}


def blame(pairs: Collection[tuple[End, End, bool]]) -> tuple[dict[End, list[End]], list[Cut[End]]]:
    """The ends that failures gather at, each with the other ends of the failed pairs that it explains; and the cuts.

    ``pairs`` are (from, to, whether it worked). The end that failed with the largest share of its partners is taken
    first, its pairs are explained by it, and so on until none is left. Of two that failed only with each other the
    one that was reached for is named: it was to answer. No end is named for failures between the parts of a `Cut`;
    attempts of an end to itself are not pairs.
    """
    divided, fewer = _cuts(pairs := [pair for pair in pairs if pair[0] != pair[1]])
    parts = chain.from_iterable(cut.parts for cut in divided)
    part_of = {end: place for place, part in enumerate(parts) for end in part}
    pairs = [pair for pair in pairs if part_of.get(pair[0]) == part_of.get(pair[1])]
    tried = partners(pairs)
    failed: dict[End, dict[End, bool]] = defaultdict(dict)
    for source, target, worked in pairs:
        if not worked:
            failed[source][target] = False
            failed[target][source] = True
    order = {end: place for place, end in enumerate(sorted(failed, key=_sort_key, reverse=True))}

    def rank(end: End) -> tuple[bool, float, int, int]:
        return end not in fewer, -len(failed[end]) / len(tried[end]), -sum(failed[end].values()), order[end]

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
    return blamed, divided


def _cuts(pairs: Collection[tuple[End, End, bool]]) -> tuple[list[Cut[End]], set[End]]:
    """The sets of ends that tried each other, directly or by way of others, and are cut into parts without a majority.

    Two ends are in one part where what they tried worked and never failed, be it by way of others; or where nothing
    failed between their parts, as nothing was tried: of many that tried one alone, and failed, that one is to blame.
    Beside them, the ends of sides that fewer ends are on than on the other, where one way alone is cut.
    """
    failed: dict[End, set[End]] = defaultdict(set)
    from_end: dict[End, list[tuple[End, End, bool]]] = defaultdict(list)
    for source, target, worked in pairs:
        from_end[source].append((source, target, worked))
        if not worked:
            failed[source].add(target)
            failed[target].add(source)
    tried = partners(pairs) if failed else {}
    cut_list = []
    fewer: set[End] = set()
    for ends in _components(tried):
        connected = {end: tried[end] - failed.get(end, set()) for end in ends}
        parts = _merged(sorted(_components(connected), key=_by_size), failed)
        if 2 * len(parts[0]) > len(ends):
            parts = _sides([pair for end in ends for pair in from_end.get(end, ())]) or parts
            fewer |= parts[-1]
        if len(ends) > 2 and 2 * len(parts[0]) <= len(ends):
            part_of = {end: place for place, part in enumerate(parts) for end in part}
            across = {pair[:2] for end in ends for pair in from_end.get(end, ()) if not pair[2]}
            crossing = [pair for pair in across if part_of[pair[0]] != part_of[pair[1]]]
            in_order = tuple(tuple(sorted(part, key=_sort_key)) for part in parts)
            cut_list.append(Cut(in_order, tuple(sorted(crossing))))
    return cut_list, fewer


def _sides(pairs: Collection[tuple[End, End, bool]]) -> list[set[End]]:
    """The ends that all failures come from, and those they go to, the more first; empty where something passes so.

    One end is no side: it is the one that failures gather at.
    """
    ahead: dict[End, set[End]] = defaultdict(set)
    back: dict[End, set[End]] = defaultdict(set)
    for source, target, worked in pairs:
        if worked:
            ahead[source].add(target)
            back[target].add(source)
    failed = [pair for pair in pairs if not pair[2]]
    sides = [all_reached((pair[0] for pair in failed), ahead), all_reached((pair[1] for pair in failed), back)]
    return sorted(sides, key=_by_size) if len(min(*sides, key=len)) > 1 and not sides[0] & sides[1] else []


def _merged(parts: Collection[set[End]], failed: Mapping[End, set[End]]) -> list[set[End]]:
    """Parts, the largest first; each joined to the first of the others that nothing failed with."""
    merged: list[set[End]] = []
    for part in parts:
        against: set[End] = set().union(*(failed.get(end, ()) for end in part))
        fitting = next((other for other in merged if not against & other), None)
        if fitting is None:
            merged.append(set(part))
        else:
            fitting |= part
    return sorted(merged, key=_by_size)


def _components(neighbours: Mapping[End, set[End]]) -> Iterator[set[End]]:
    """The sets of ends that hang together, by neighbours that name each other."""
    waiting = dict.fromkeys(neighbours)
    while waiting:
        reached = all_reached([next(iter(waiting))], neighbours)
        for end in reached:
            del waiting[end]
        yield reached


def folded(names: Collection[str]) -> str:
    """Hosts as a short text.

    >>> folded(["n1", "n2"])
    'n[1-2]'
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    names = list(names)
    try:
        return printable(str(NodeSet.fromlist(names)), 60)
    except NodeSetException:
        return printable(filled("{0} to {1}", names[0], names[-1]), 60)


def hosts_to_name(host: str, others: Collection[str]) -> dict[str, Any]:
    """The hosts of a finding: one that failed with two others; of two that failed with each other alone, both.

    There one host's word, or one link between them, is all evidence, and to leave out either of them is the cure.

    >>> hosts_to_name("b", ["a"])
    {'hosts': ['a', 'b'], 'cut_parts': [['a'], ['b']]}
    >>> hosts_to_name("b", ["a", "c"])
    {'hosts': ['b'], 'cut_parts': []}
    """
    names = [host] if len(set(others)) > 1 else sorted({host, *others})
    return {"hosts": names, CUT_PARTS: [[name] for name in names] if len(names) > 1 else []}


def partners(pairs: Collection[tuple[End, End, bool]]) -> dict[End, set[End]]:
    """Whom each end was tried with, in either direction."""
    return sets_by_key(way for source, target, _ in pairs for way in ((source, target), (target, source)))


def _sort_key(end: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(str(part) for part in end)


def _by_size(ends: Collection[tuple[object, ...]]) -> tuple[int, tuple[str, ...]]:
    return -len(ends), min(map(_sort_key, ends))


def loss_findings(
    pairs: Collection[tuple[tuple[str, int], tuple[str, int], bool]],
    at_one: str,
    between_parts: str,
    values: Callable[[str, int], Mapping[str, Any]],
) -> Iterator[Finding]:
    """Of devices that did not reach each other, by host and number: one for each culprit, and one for each cut.

    ``values``: the address of a device, and what else a finding shows of it.
    """
    tried = partners(pairs)
    suspects, cuts = blame(pairs)
    for (host, npu), others in sorted(suspects.items()):
        peers = [other[0] for other in others]
        more: dict[str, Any] = {"lost": len(others), "tried": len(tried[host, npu]), "owner": host}
        more |= {**hosts_to_name(host, peers), "peers": peers, "first": peers[0], **values(host, npu)}
        yield Finding(at_one, npu=npu, **more)
    for cut in cuts:
        (source, npu), (target, _) = cut.failed[0]
        more = {**cut.values, "first": source, "owner": target, **values(target, npu)}
        yield Finding(between_parts, hosts=cut.hosts, npu=npu, **more)
