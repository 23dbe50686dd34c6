"""The culprits of collectives that gave wrong values: the fewest ranks that explain them all. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.facts.smoke.collectives import CollectiveWrong, SmokeCollectives

Groups = Mapping[int, tuple[str, tuple[int, ...]]]
SEGMENTED = ("all_gather", "all_to_all")
"""Each member's values come to lie in a segment of their own."""


class Blame(msgspec.Struct, frozen=True):
    """Wrong values that the same ranks explain."""

    ranks: tuple[int, ...]
    """More than one: it is one of them, and these values do not tell which."""
    events: tuple[CollectiveWrong, ...]


def blame_ranks(events: Iterable[CollectiveWrong], groups: Groups, world: int) -> list[Blame]:
    """Every event is explained once, by the rank that explains the most of them first."""
    events_by_call: dict[tuple[int, str, str], list[CollectiveWrong]] = defaultdict(list)
    for event in events:
        events_by_call[event.gid, event.op, event.dtype].append(event)
    lone = sum(map(len, events_by_call.values())) == 1
    unexplained = [
        (call_events, _candidates(call_events, groups.get(gid, ("", tuple(range(world))))[1], lone))
        for (gid, _, _), call_events in events_by_call.items()
    ]
    blames: list[Blame] = []
    while unexplained:
        reach: dict[int, list[int]] = defaultdict(list)
        for number, (_, ranks) in enumerate(unexplained):
            for rank in ranks:
                reach[rank].append(number)
        explained = max((reach[rank] for rank in sorted(reach)), key=len)
        # Ranks that explain the same events cannot be told apart.
        worst = tuple(sorted(rank for rank, numbers in reach.items() if numbers == explained))
        blames.append(Blame(worst, tuple(event for number in explained for event in unexplained[number][0])))
        unexplained = [entry for number, entry in enumerate(unexplained) if number not in explained]
    return blames


def _candidates(events: Sequence[CollectiveWrong], members: Sequence[int], lone: bool) -> set[int]:
    """The ranks that one collective's wrong values can come from. ``lone``: there are no others in the whole run."""
    first, observers = events[0], {event.rank for event in events}
    op = first.op.split()[0]
    if op in SEGMENTED or op == "send_recv":
        sources = {_source(event, op, members) for event in events}
        return sources if len(observers) > 1 else sources | observers
    if op == "broadcast":
        roots = {event.root for event in events}
        return roots if len(observers) > 1 or len(members) == 2 else roots | observers
    if op in ("all_reduce", "barrier") and len(observers) == 1 and len(members) > 1:
        # The others have the right sum: what it gave was right. One element, once, may have changed on its way to it.
        return set(members) if lone and events[0].wrong == 1 else observers
    return set(members)


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
        f"rank {event.rank} {wrong} of {event.counts.get(op, 0)} {op}"
        for event in sorted(counted, key=lambda event: event.rank)
        for op, wrong in sorted(event.wrong.items())
        if wrong
    ]
    seconds = max(event.seconds for event in counted)
    return f"; wrong in {seconds:.0f} s of repeating: {', '.join(parts[:8]) or 'nothing'}"
