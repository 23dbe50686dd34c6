"""The culprits of collectives that gave wrong values: the fewest ranks that explain them all. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.facts.smoke.collectives import CollectiveWrong, SecondRound, SmokeCollectives
from doctor.smoke.numerics.buffers import is_untouched

Groups = Mapping[int, tuple[str, tuple[int, ...]]]
HostOf = Callable[[int], object]
SEGMENTED = ("all_gather", "all_to_all")
"""Each member's values come to lie in a segment of their own."""


PASSED_ON = ("all_reduce", "all_gather")
"""Each rank gives on to the next what it has received."""


class Blame(msgspec.Struct, frozen=True):
    """Wrong values that the same ranks explain."""

    ranks: tuple[int, ...]
    events: tuple[CollectiveWrong, ...]
    kind: Literal["ranks", "one of", "outward", "between"] = "ranks"
    """ranks: it is these; one of: it is one of them, and nothing tells which; outward: what their host sends to or
    receives from others; between: what passes between their hosts, or between the two of them."""
    isolated: bool = False
    """A second round found it."""


def blame_ranks(
    events: Sequence[CollectiveWrong],
    groups: Groups,
    world: int,
    second_rounds: Iterable[SecondRound] = (),
    host_of: HostOf = lambda rank: rank,
    backend: str = "",
) -> list[Blame]:
    """Every event is explained once: by what a second round found, then by the rank that explains most of the rest.

    Wrong calls are distinguished by their group, operation, dtype, size, root and offset. ``host_of``: of a
    rank; what all ranks of one host alone have wrong may be that host's. ``backend``: of gloo it is known who receives
    from whom.
    """
    wrong_calls = list(_wrong_calls(events, groups, tuple(range(world))))
    if not wrong_calls:
        return []
    lone = sum(len(call) for call, _ in wrong_calls) == 1
    unexplained = [(call, _candidates(call, members, lone, host_of, backend)) for call, members in wrong_calls]
    blames: list[Blame] = []
    isolated = list(_isolated(second_rounds))
    for kind, ranks in isolated:
        explained = [entry for entry in unexplained if entry[1] & set(ranks)] or unexplained
        blames.append(Blame(ranks, tuple(event for call, _ in explained for event in call), kind, True))
    named = {rank for _, ranks in isolated for rank in ranks}
    # Of what isolated ranks alone have wrong they are the cause, whoever else could be.
    unexplained = [
        (call, ranks) for call, ranks in unexplained if not (ranks & named or {event.rank for event in call} <= named)
    ]
    while unexplained:
        worst, calls = _most_explaining(unexplained)
        explained_events = tuple(event for call in calls for event in call)
        blames.append(Blame(tuple(sorted(worst)), explained_events, "ranks" if len(worst) == 1 else "one of"))
        unexplained = [entry for entry in unexplained if entry[0] not in calls]
    return blames


def _wrong_calls(
    events: Sequence[CollectiveWrong], groups: Groups, everyone: tuple[int, ...]
) -> Iterator[tuple[list[CollectiveWrong], tuple[int, ...]]]:
    """The events of each call, those of a second reading first, with the members of its group.

    A library that uses its input as room for its work does so on every rank, and no memory is at fault.
    """
    events_by_call: dict[tuple[object, ...], list[CollectiveWrong]] = defaultdict(list)
    for event in sorted(events, key=lambda event: not event.reread):
        key = (event.gid, event.op, event.dtype, event.numel, event.root, event.offset)
        events_by_call[key].append(event)
    for call in events_by_call.values():
        members = groups.get(call[0].gid, ("", everyone))[1]
        if len(members) < 2 or {event.rank for event in call if event.reread == "input"} < set(members):
            yield call, members


def without_part(events: Sequence[CollectiveWrong], groups: Groups, world: int) -> dict[int, CollectiveWrong]:
    """By rank that left a call with the result untouched, while others of its group have the right one: that result.

    Where another rank has a wrong one of the same call, what lies there may have come from a wrong root.
    """
    calls = _wrong_calls(events, groups, tuple(range(world)))
    untouched = [
        event
        for call, members in calls
        if len(call) < len(members) and all(is_untouched(event, members) for event in call)
        for event in call
    ]
    return {event.rank: event for event in untouched}


def _most_explaining(
    unexplained: Sequence[tuple[Sequence[CollectiveWrong], Collection[int]]],
) -> tuple[Collection[int], list[Sequence[CollectiveWrong]]]:
    """The ranks that explain most calls, and these calls; ``unexplained``: each call's events, and its candidates."""
    reach = lists_by_key(
        (rank, number) for number, (_, ranks_of_call) in enumerate(unexplained) for rank in ranks_of_call
    )
    explained_calls = max((reach[rank] for rank in sorted(reach)), key=len)
    # Ranks that explain the same events cannot be told apart, but by who has all of what is wrong.
    worst = {rank for rank, numbers in reach.items() if numbers == explained_calls}
    calls = [unexplained[number][0] for number in explained_calls]
    having = worst.intersection(*({event.rank for event in call} for call in calls))
    decides = len(calls) > 1 and all(len(call) == 1 for call in calls) and having
    return having if decides else worst, calls


AVERAGE = "all_reduce avg"
"""As the worker names it."""


def sums_for_averages(
    events: Sequence[CollectiveWrong], groups: Groups, world: int
) -> tuple[list[CollectiveWrong], list[CollectiveWrong]]:
    """Wrong averages that are the sum on every rank of their group, and all other wrong values.

    The library adds and does not divide, then: no rank is at fault. Where one rank alone has the sum, it is.
    """
    sums: dict[int, list[CollectiveWrong]] = defaultdict(list)
    for event in events:
        size = len(groups.get(event.gid, ("", tuple(range(world))))[1])
        if event.op != AVERAGE or size < 2:
            continue
        # The worker sends Inf and NaN as text.
        got, expected = event.got, event.expected
        if not (isinstance(got, int | float) and isinstance(expected, int | float) and expected):
            continue
        if math.isclose(got, expected * size, rel_tol=0.01):
            sums[event.gid].append(event)
    summed = [
        event
        for gid, events_of_group in sums.items()
        if {event.rank for event in events_of_group} == set(groups.get(gid, ("", tuple(range(world))))[1])
        for event in events_of_group
    ]
    return summed, [event for event in events if event not in summed]


def _isolated(
    rounds: Iterable[SecondRound],
) -> Iterator[tuple[Literal["ranks", "outward", "between"], tuple[int, ...]]]:
    """What second rounds lay it at, in ranks; each once."""
    places: dict[tuple[Literal["ranks", "outward", "between"], tuple[int, ...]], None] = {}
    for done in rounds:
        places.update({("ranks", ranks): None for ranks in done.culprits})
        places.update({("outward", ranks): None for ranks in done.outward})
        places.update({("between", (*first, *second)): None for first, second in done.links})
    yield from places


def _candidates(
    events: Sequence[CollectiveWrong], members: Sequence[int], lone: bool, host_of: HostOf, backend: str
) -> set[int]:
    """The ranks that one call's wrong values can come from. ``lone``: there are no others in the whole run."""
    first, observers = events[0], {event.rank for event in events}
    if altered := {event.rank for event in events if event.reread}:
        return altered
    op = first.op.split()[0]
    if all(is_untouched(event, members) for event in events) and not observers | {first.root} >= set(members):
        return observers
    if (op in PASSED_ON and _struck_apart(events, host_of) and len({host_of(rank) for rank in members}) > 2) or (
        op in SEGMENTED and _of_several_hosts(events, members, host_of)
    ):
        return observers
    if op == "reduce_scatter" and _all_sums_of_a_host(events, members, host_of):
        return observers
    passed = _passed_on(events, op, members) if backend == "gloo" else set[int]()
    if op in SEGMENTED or op in ("send_recv", "broadcast"):
        sources = {event.root if op == "broadcast" else _source(event, op, members) for event in events}
        # The others have the right values of the same source where one host alone has wrong ones.
        elsewhere = len({host_of(rank) for rank in observers}) > 1 or set(members) - sources <= observers
        return passed or (sources if len(observers) > 1 and elsewhere else sources | observers)
    if op in ("all_reduce", "barrier") and len(observers) == 1 and len(members) > 1:
        # The others have the right sum: what it gave was right. One element, once, may have changed on its way to it.
        return passed or set(members) if lone and events[0].wrong == 1 else observers
    return passed or set(members)


def _passed_on(events: Sequence[CollectiveWrong], op: str, members: Sequence[int]) -> set[int]:
    """Of damage that gloo's ranks gave on to each other: who had it first, and who sent it there.

    Empty where no rank is known to be the first, or all that receive the same values have them wrong. How the values go
    on: to the rank before in gloo/allreduce.cc, to the next one in allgather.cc, along a tree in broadcast.cc.
    """
    observers, place = {event.rank for event in events}, {rank: number for number, rank in enumerate(members)}
    root = events[0].root if op == "broadcast" else _source(events[0], op, members) if op == "all_gather" else -1
    alike = {(event.index, event.wrong, str(event.got)) for event in events}
    if op not in ("all_reduce", "all_gather", "broadcast") or len(alike) > 1 or set(members) - observers <= {root}:
        return set()
    senders: dict[int, int] = {}
    for rank in observers - {root}:
        turn = (place[rank] - place.get(root, 0)) % len(members)
        steps = {"all_reduce": -1, "all_gather": 1}.get(op, 1 << turn.bit_length() >> 1)
        senders[rank] = members[(place[rank] - steps) % len(members)]
    first = {rank for rank, sender in senders.items() if sender not in observers}
    origins = {senders[rank] for rank in first}
    return (origins | (first if len(first) == 1 else set())) if len(origins) == 1 and root not in observers else set()


def _struck_apart(events: Sequence[CollectiveWrong], host_of: HostOf) -> bool:
    """Whether ranks of one host alone have so many elements wrong, each others: none was passed on to the next rank."""
    places = {event.index for event in events}
    alike = len({event.wrong for event in events}) == len({host_of(event.rank) for event in events}) == 1
    return alike and len(places) == len(events) > 1


def _all_sums_of_a_host(events: Sequence[CollectiveWrong], members: Sequence[int], host_of: HostOf) -> bool:
    """Whether all ranks of one host of three, of several ranks, have every element wrong, and no other rank has any.

    What another rank gave, or passed on, would have to be wrong from the first element for that host to the last.
    """
    observers = {event.rank for event in events}
    hosts = {host_of(rank) for rank in observers}
    of_host = {rank for rank in members if host_of(rank) in hosts}
    is_whole = len(hosts) == 1 and observers == of_host and len(of_host) > 1
    return is_whole and len(set(map(host_of, members))) > 2 and all(event.wrong >= event.numel for event in events)


def _of_several_hosts(events: Sequence[CollectiveWrong], members: Sequence[int], host_of: HostOf) -> bool:
    """Whether ranks of one host alone have more elements wrong than the ranks of any one host gave."""
    most = max(Counter(map(host_of, members)).values())
    return len({host_of(event.rank) for event in events}) == 1 and all(
        event.wrong * len(members) > event.numel * most for event in events
    )


def _source(event: CollectiveWrong, op: str, members: Sequence[int]) -> int:
    """Whose values lie at the first wrong place."""
    if op == "send_recv":
        return event.root if event.root >= 0 else members[members.index(event.rank) - 1]
    return members[min(event.index * len(members) // max(event.numel, 1), len(members) - 1)]


def soak_note(facts: Iterable[SmokeCollectives], ranks: Sequence[int]) -> str:
    """What the soak stage counted on these ranks, to stand behind a verdict; the empty string without that stage."""
    counted = [event for fact in facts for event in fact.soaked if event.rank in ranks]
    if not counted:
        return ""
    parts = [
        filled("rank {0} {1} of {2} {3}", event.rank, wrong, event.counts.get(op, 0), op)
        for event in sorted(counted, key=lambda event: event.rank)
        for op, wrong in sorted(event.wrong.items())
        if wrong
    ]
    seconds = max(event.seconds for event in counted)
    return filled("; wrong in {0} s of repeating: {1}", f"{seconds:.0f}", ", ".join(parts[:8]) or "nothing")


def second_round_note(rounds: Sequence[SecondRound], blame: Blame) -> str:
    """What a second round did, to stand behind a verdict; the empty string without one."""
    if not rounds:
        return ""
    calls, tests = sum(done.total for done in rounds), sum(done.groups for done in rounds)
    if not any(done.recurred for done in rounds):
        return filled("; a second round of {0} calls was right throughout", calls)
    if blame.isolated:
        return filled("; found by a second round: {0} tests of parts of the world, {1} calls", tests, calls)
    more = " and did not tell which" if blame.kind == "one of" else ""
    return filled("; a second round of {0} calls was wrong again{1}", calls, more)
