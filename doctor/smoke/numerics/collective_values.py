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
from doctor.facts.smoke.training import CallParts

Groups = Mapping[int, tuple[str, tuple[int, ...]]]
HostOf = Callable[[int], object]
PASSED_ON = ("all_reduce", "all_gather")
"""Each rank gives on to the next what it has received."""
BLOCK_OPS = ("all_gather", "all_to_all")
"""Results made of one block for each member, in the group's order."""
IN_PLACE = ("broadcast", "reduce", "all_reduce")
LONE_RANKS = 64
UNTOUCHED_OFFSET = 13
"""Room for a result holds what is expected, and this more, until it is written."""
CHANGED = {
    "input": "what the rank gave to the call has changed in its memory",
    "result": "the same memory gave two values when it was read twice",
}
"""Two readings of one rank differ: no other rank has a part in that."""


BY_CHANCE = 0.05
"""The fault of a sender looks like that of a receiver no more often."""


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
    isolated = list(_isolated(second_rounds))
    named = {rank for _, ranks in isolated for rank in ranks}
    unexplained = []
    for call, members in wrong_calls:
        # What they had, those have given on to others, maybe several times in one call.
        passes = backend == "gloo" and call[0].op.split()[0] in PASSED_ON and not call[0].reread
        given_on = named.intersection(members if passes else ())
        unexplained.append((call, _candidates(call, members, lone, host_of, backend) | given_on))
    blames: list[Blame] = []
    for kind, ranks in isolated:
        explained = [entry for entry in unexplained if entry[1] & set(ranks)] or unexplained
        blames.append(Blame(ranks, tuple(event for call, _ in explained for event in call), kind, True))
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
    for call in (repeat for calls in events_by_call.values() for repeat in _repeats(calls)):
        members = groups.get(call[0].gid, ("", everyone))[1]
        if len(members) < 2 or {event.rank for event in call if event.reread == "input"} < set(members):
            yield call, members


def _repeats(events: list[CollectiveWrong]) -> Iterable[list[CollectiveWrong]]:
    """The same call, made several times: what is wrong alike is of one time. A rank tells of each time once."""
    if len({event.rank for event in events}) == len(events) or events[0].reread:
        return [events]
    return lists_by_key(((event.index, event.wrong, str(event.got)), event) for event in events).values()


def without_part(events: Sequence[CollectiveWrong], groups: Groups, world: int) -> dict[int, str]:
    """By rank that left a call with the result untouched, while others of its group have the right one: the operation.

    Where another rank has a wrong one of the same call, what lies there may have come from a wrong root.
    """
    return {
        event.rank: event.op
        for call, members in _wrong_calls(events, groups, tuple(range(world)))
        if len(call) < len(members) and all(is_untouched(event, members) for event in call)
        for event in call
    }


def _most_explaining(
    unexplained: Sequence[tuple[Sequence[CollectiveWrong], Collection[int]]],
) -> tuple[Collection[int], list[Sequence[CollectiveWrong]]]:
    """The ranks that explain most calls, and these calls; ``unexplained``: each call's events, and its candidates."""
    reach = lists_by_key(
        (rank, number) for number, (_, ranks_of_call) in enumerate(unexplained) for rank in ranks_of_call
    )
    explained_calls = max((reach[rank] for rank in sorted(reach)), key=len)
    # Of ranks that explain the same events, the one that has all of what is wrong is named.
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
    summed: list[CollectiveWrong] = []
    for gid, averages in lists_by_key((event.gid, event) for event in events if event.op == AVERAGE).items():
        members = groups.get(gid, ("", tuple(range(world))))[1]
        sums = [event for event in averages if _is_times(event, len(members))]
        if len(members) > 1 and {event.rank for event in sums} == set(members):
            summed += sums
    return summed, [event for event in events if event not in summed]


def _is_times(event: CollectiveWrong, factor: int) -> bool:
    """Whether the result is so many times what it should be. The worker sends Inf and NaN as text."""
    got, expected = event.got, event.expected
    if not isinstance(got, int | float) or not isinstance(expected, int | float):
        return False
    return math.isclose(got, expected * factor, rel_tol=0.01)


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
    givers = {event.giver for event in events}
    if len(givers) == 1 and givers <= set(members):
        return givers | _first_added(events, members, backend)
    if _is_of_its_host(events, op, members, host_of):
        return observers
    passed = _passed_on(events, op, members) if backend == "gloo" else set[int]()
    if op in BLOCK_OPS or op in ("send_recv", "broadcast"):
        sources = {source_of(event, members) for event in events}
        # The others have the right values of the same source where one host alone has wrong ones.
        elsewhere = len({host_of(rank) for rank in observers}) > 1 or set(members) - sources <= observers
        return passed or (sources if len(observers) > 1 and elsewhere else sources | observers)
    if op in ("all_reduce", "barrier") and len(observers) == 1 and len(members) > 1:
        # The others have the right sum: what it gave was right. One element, once, may have changed on its way to it.
        return passed or (set(members) if lone and events[0].wrong == 1 else observers)
    return passed or set(members)


def _passed_on(events: Sequence[CollectiveWrong], op: str, members: Sequence[int]) -> set[int]:
    """Of damage that gloo's ranks gave on to each other: who had it first, and who sent it there.

    The first one alone where it has given the right values on to another rank: its memory changed behind that. Empty
    where no rank is known to be the first, or all that receive the same values have them wrong.
    """
    observers, root = {event.rank for event in events}, source_of(events[0], members)
    alike = {(event.index, event.wrong, str(event.got)) for event in events}
    if op == "all_reduce":  # each block of the sum goes on from the member that was the last to add to it
        length = 2 * math.ceil(events[0].numel / (2 * len(members)))
        root = members[events[0].index // length]
        if len(observers) == 1 and events[0].wrong > length:
            return observers  # and no rank is the last to get several blocks
    senders = _gloo_senders(op, members, root)
    receivers = senders.keys() if op != "all_reduce" else set(members)
    if op not in (*PASSED_ON, "broadcast") or len(alike) > 1 or observers >= receivers:
        return set()
    first = {rank for rank in observers if senders.get(rank) not in observers}
    had_right = first & {senders[rank] for rank in senders.keys() - observers}
    if had_right and (had_right == first or op == "broadcast"):  # what others have wrong as well did not come by it
        return had_right
    ways = [{rank, senders[rank]} for rank in first if rank in senders]
    return set() if root in observers or not ways else set.intersection(*ways)


def _first_added(events: Sequence[CollectiveWrong], members: Sequence[int], backend: str) -> set[int]:
    """Who is the first to add to the part of a rank, and had it alone in hand; all members where that is not known.

    Of gloo's all_reduce, each block goes from member to member, down to the one that is the last to add to it.
    """
    first, count = events[0], len(members)
    if backend != "gloo" or first.op != "all_reduce":
        return set(members)
    last = first.index // (2 * math.ceil(first.numel / (2 * count)))
    return {members[(last - 2) % count]} if first.giver == members[(last - 1) % count] else set()


def _gloo_senders(op: str, members: Sequence[int], root: int) -> dict[int, int]:
    """Who gives each member what it has at the end; not of the root, where there is one.

    The next rank in gloo/allreduce.cc, the one before in allgather.cc, the parent in the tree of broadcast.cc.
    """
    first, count = members.index(root) if root in members else 0, len(members)
    senders: dict[int, int] = {}
    for place, rank in enumerate(members):
        turn = (place - first) % count
        steps = {"all_reduce": -1, "all_gather": 1}.get(op, 1 << turn.bit_length() >> 1)
        senders[rank] = members[(place - steps) % count]
    senders.pop(root, None)
    return senders


def senders_to(
    ranks: Collection[int], op: str, members: Sequence[int], backend: str, parts: Iterable[CallParts] = ()
) -> set[int]:
    """Other members that can have sent these what is wrong on them alone: of gloo the next ones, else any.

    ``parts``: of the stage. Who gave a part on to the next one, which has it otherwise, has changed it behind that.

    >>> senders_to([2], "all_reduce", range(5), "gloo"), senders_to([2], "all_reduce", range(4), "nccl")
    ({3}, {0, 1, 3})
    >>> parts = [CallParts(rank, 0, (0, 1, 2), "all_reduce", (5, 6 + (rank == 2), 7)) for rank in range(3)]
    >>> senders_to([2], "all_reduce", range(3), "gloo", parts)
    {0}
    """
    others = set(members) - set(ranks)
    if backend != "gloo" or op not in (*PASSED_ON, "broadcast"):
        return others
    senders = _gloo_senders(op, members, members[0] if op == "broadcast" else -1)
    held = {event.rank: event.parts for event in parts if (event.group, event.op) == (tuple(members), op)}
    gave_on = {
        giver
        for rank, giver in senders.items()
        if rank in others
        for member, *values in zip(members, held.get(giver, ()), held.get(rank, ()), strict=False)
        if member != rank and values[0] != values[1]
    }
    return others & {sender for rank, sender in senders.items() if rank in ranks and rank not in gave_on}


def is_receivers(size: int, times: int) -> bool:
    """Whether numbers that came wrong to one member alone, so often, are its own fault.

    Each goes from rank to rank: what a sender spoils is on one rank alone in one of ``size - 1`` cases.

    >>> is_receivers(4, 2), is_receivers(4, 3), is_receivers(2, 99)
    (False, True, False)
    """
    return float(size - 1) ** -times <= BY_CHANCE


def _is_of_its_host(events: Sequence[CollectiveWrong], op: str, members: Sequence[int], host_of: HostOf) -> bool:
    """Whether ranks of one host alone have wrong values that no rank of another one can have given, or passed on.

    They have equally many, each others; or more elements than any one host gave; or all sums of all ranks of the host,
    which would have to be wrong from the first element for that host to the last.
    """
    observers, sizes = {event.rank for event in events}, Counter(map(host_of, members))
    hosts = {host_of(rank) for rank in observers}
    if len(hosts) > 1:
        return False
    apart = len({event.wrong for event in events}) == 1 < len({event.index for event in events}) == len(events)
    more = all(event.wrong * len(members) > event.numel * max(sizes.values()) for event in events)
    all_wrong = len(observers) == sizes[hosts.pop()] > 1 and all(event.wrong >= event.numel for event in events)
    by_place = (op in PASSED_ON and apart) or (op == "reduce_scatter" and all_wrong)
    return (len(sizes) > 2 and by_place) or (op in BLOCK_OPS and more)


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


def describe_damage(event: CollectiveWrong, group: Sequence[int]) -> str:
    """The damage as text; empty when it matches no known pattern."""
    if event.reread:
        return CHANGED[event.reread]
    got, expected = event.got, event.expected
    if isinstance(got, str) or isinstance(expected, str) or got is None or expected is None:
        return ""
    if got - expected == UNTOUCHED_OFFSET:
        return "nothing was written there"
    if event.giver >= 0:
        return filled("all that differs is how much it has of what rank {0} gave", event.giver)
    other = _sender(event, group)
    if other >= 0:
        return filled("it is the data of rank {0}: ranks or devices are swapped", other)
    if event.wrong == 1 and event.numel > 1:
        return "a single element: a flipped bit"
    if event.index and event.wrong == event.numel - event.index:
        return "all elements from there on: an incomplete transfer"
    return ""


def is_untouched(event: CollectiveWrong, group: Sequence[int]) -> bool:
    """Whether the whole result is what lay there before the call: of one in place, what the rank gave to it."""
    if event.wrong < event.numel or not isinstance(event.got, int | float) or event.dtype == "bool":
        return False
    if event.op == "all_reduce" and event.numel == 1 and max(group, default=0) < LONE_RANKS:
        return lone_value(event.rank) == event.got
    if event.op in IN_PLACE:
        return sent_value(max(group, default=0) + 1, event.rank, event.offset + event.index) == event.got
    return isinstance(event.expected, int | float) and event.got - event.expected == UNTOUCHED_OFFSET


def source_of(event: CollectiveWrong, group: Sequence[int]) -> int:
    """The rank whose values lie at the first wrong place; -1 where they come from several."""
    if event.op == "broadcast" or (event.op == "send_recv" and event.root >= 0):
        return event.root
    if event.op in BLOCK_OPS:
        return group[min(event.index * len(group) // max(event.numel, 1), len(group) - 1)]
    return group[group.index(event.rank) - 1] if event.op == "send_recv" else -1


def _sender(event: CollectiveWrong, group: Sequence[int]) -> int:
    """Another member, if a whole block is wrong and its first element is what that one sends there; or -1."""
    blocks = event.op in BLOCK_OPS
    count = event.numel // len(group) if blocks and group else event.numel
    between_two = event.op == "send_recv" and event.root >= 0  # they exchange other numbers than `sent_value`
    if event.rank not in group or between_two or event.dtype == "bool" or event.wrong < count:
        return -1
    start = event.offset + (group.index(event.rank) * count if event.op == "all_to_all" else 0)
    index = event.index % count if blocks else event.index
    source = source_of(event, group)
    held = [
        rank for rank in group if rank != source >= 0 and sent_value(max(group) + 1, rank, start + index) == event.got
    ]
    return held[0] if len(held) == 1 else -1


def lone_value(rank: int) -> int:
    """What a rank gives to a sum of one element in the collectives stage, in worlds of up to `LONE_RANKS`."""
    return 4099 + 2 * (138 * (rank + 1) ** 3 % 6007)


def sent_value(world: int, rank: int, index: int) -> int:
    """Element `index` of what a rank sends in the collectives stage, in worlds of up to 11 ranks; else -1."""
    return (7 * index + 3 * rank) % 11 + 1 if world <= 11 else -1
