"""Rules over the collective in which each rank was, as its traceback shows it, and over gloo's ring.

Source of the ring: facebookincubator/gloo gloo/allreduce.cc and gloo/allgather.cc. In all_reduce each rank receives
from the next rank and sends to the one before it; in all_gather it is the other way round.
"""

from __future__ import annotations

from typing import NamedTuple

from doctor.analysis.collectives.calls import OPERATIONS
from doctor.analysis.collectives.waits import most_awaited
from doctor.analysis.majority import split
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    NEEDED_CALLS,
    Cause,
    Confidence,
    Undecidable,
    culprit_of,
    culprit_of_rank,
    first_evidence,
    one_of_two,
)
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.process import Process
from doctor.diagnose.rules.named import rank_list
from doctor.diagnose.rules.silent_ranks import known_ranks
from doctor.engine.texts import filled

SIGNATURE = "torch-collective-call"
_TRACEBACK_LINES = 80
"""Lines between a frame of a traceback and its exception."""
_OF_ALL = frozenset(
    f"{name}{suffix}"
    for name in ("all_reduce", "all_gather", "barrier", "all_to_all", "reduce_scatter")
    for suffix in ("", "_coalesced", "_into_tensor", "_single", "_tensor")
)
"""Collectives that no rank can leave before all have entered: a rank that is further on shows that all were there."""
_OF_SOME = frozenset({"broadcast", "gather", "reduce", "scatter"})
"""Collectives that a rank can leave while another one still waits in them, for a message that its network lost."""
_RECEIVES_FROM = {"all_reduce": 1, "all_gather": -1}
"""How far from a rank in gloo's ring the one is that it receives from; it sends to the other neighbor."""
_SIZES = "gloo-size-mismatch"


class TracebackCall(NamedTuple):
    """The collective in which a rank waited when it failed."""

    process: Process
    operation: str
    frame: Event
    waiting: Event


def collective_calls(case: Case) -> list[TracebackCall]:
    """Of each rank whose error stands in a traceback that shows it."""
    calls = []
    for process in case.processes:
        frames = [event for event in process.events if event.signature == SIGNATURE]
        for waiting in case.waits(process):
            before = [
                event
                for event in frames
                if event.file == waiting.file and 0 <= waiting.line - event.line <= _TRACEBACK_LINES
            ]
            if before and process.rank is not None:
                frame = max(before, key=lambda event: event.line)
                function = frame.values.get("op", "")
                calls.append(TracebackCall(process, OPERATIONS.get(function, function), frame, waiting))
                break
    return calls


def different_calls(case: Case) -> list[Cause]:
    """Ranks timed out in different collectives: the one in another than all others. Of two, either may be wrong."""
    calls = [call for call in collective_calls(case) if call.operation in _OF_ALL | _OF_SOME]
    if not any(call.waiting.signature == "gloo-timeout" for call in calls):
        return []
    parts = split(calls, lambda call: call.operation)
    if parts is None or parts.kinds != 2 or len(parts.differing) != 1 + (parts.tie and len(calls) == 2):
        return []
    must_meet = (*parts.agreeing, *(parts.differing if parts.tie else ()))
    if any(call.operation not in _OF_ALL for call in must_meet):
        return []
    events = first_evidence(call.frame for call in (*parts.differing, *parts.agreeing))
    if parts.tie:
        first, second = calls
        culprits = culprit_of(first.process), culprit_of(second.process)
        names = [culprit.name for culprit in culprits]
        claim = filled("{0} was in {1}, {2} in {3}", names[0], first.operation, names[1], second.operation)
        return [one_of_two(SIGNATURE, culprits, filled("{0}; nothing shows which is wrong", claim), events)]
    culprit = culprit_of(parts.differing[0].process)
    all_report = case.world_size == len(calls) or known_ranks(case) <= {call.process.rank for call in calls}
    other, most = parts.differing[0].operation, len(parts.agreeing)
    confidence: Confidence = "likely" if all_report and other in _OF_ALL else "possible"
    summary = filled("{0} was in {1} where {2} ranks were in {3}", culprit.name, other, most, parts.common)
    return [Cause(SIGNATURE, "minority", confidence, (culprit,), summary, events)]


def world(case: Case) -> int | None:
    """The number of ranks: as the logs show it, else as all ranks that they show suggest."""
    ranks = known_ranks(case)
    if case.world_size:
        return case.world_size
    return len(ranks) if len(ranks) > 1 and ranks == set(range(len(ranks))) else None


def ring_target(case: Case, rank: int, call: TracebackCall) -> int | None:
    """The rank for which a rank that timed out in gloo's ring waited."""
    step, size = _RECEIVES_FROM.get(call.operation), world(case)
    if call.waiting.signature != "gloo-timeout" or step is None or not size or rank >= size:
        return None
    return (rank + (step if call.waiting.values.get("direction") == "recv" else -step)) % size


def ring_neighbors(case: Case) -> list[Cause]:
    """Both neighbors in gloo's ring waited for one rank, and for no other rank more than one did. Of two that waited
    for each other, as where what one sends does not reach the other, either may be the culprit.
    """
    calls = {call.process.rank: call for call in collective_calls(case) if call.process.rank is not None}
    targets = {rank: ring_target(case, rank, call) for rank, call in calls.items() if rank is not None}
    awaited = most_awaited((target for target in targets.values() if target is not None), least=2)
    if len({call.operation for call in calls.values()}) > 1:
        return []
    mutual = [(rank, target) for rank, target in targets.items() if target is not None and targets.get(target) == rank]
    if len(mutual) == 2:  # one pair, from both sides
        low, high = sorted(rank for rank, _ in mutual)
        claim = filled(
            "ranks {0} and {1} wait for each other: one of them, or the network between them, did not answer", low, high
        )
        pair = culprit_of_rank(case, low), culprit_of_rank(case, high)
        return [one_of_two("gloo-timeout", pair, claim, first_evidence(calls[rank].waiting for rank in (low, high)))]
    if awaited is None:
        return []
    culprit = culprit_of_rank(case, awaited)
    waiting = [calls[rank].waiting for rank, target in targets.items() if target == awaited]
    summary = filled(
        "both neighbors of {0} in gloo's ring waited for it: it, or its network, did not answer", culprit.name
    )
    return [Cause("gloo-timeout", "common target", "possible", (culprit,), summary, first_evidence(waiting))]


def different_sizes(case: Case) -> Undecidable | list[Cause]:
    """gloo: the rank that aborts has the smaller buffer; it, or the one that sends to it, has the wrong size."""
    events = case.events_of(_SIZES)
    if not events:
        return []
    sizes = next((event.values for event in events if event.values.get("count")), {})
    bytes_text = filled(" ({0} and {1} bytes)", sizes["count"], sizes["peer_count"]) if sizes else ""
    claim = filled("two ranks gave tensors of different sizes{0} to one collective", bytes_text)
    aborted = aborted_ranks(case)
    sender = _sender(case, aborted.pop()) if len(aborted) == 1 else None
    if sender is not None:
        rank, other = sender
        culprits = culprit_of_rank(case, rank), culprit_of_rank(case, other)
        claim = filled(
            "{0}: rank {1}, or rank {2}, which sends to it; nothing shows which is wrong", claim, rank, other
        )
        return [one_of_two(_SIZES, culprits, claim, first_evidence(events))]
    return Undecidable(filled("{0}, and no line shows which is wrong", claim), NEEDED_CALLS)


def aborted_ranks(case: Case) -> set[int]:
    """The ranks that aborted themselves over a size: the launcher reports SIGABRT, else their own logs show it."""
    if not case.events_of(_SIZES):
        return set()
    ranks: set[int | None] = set()
    for block in case.failure_blocks:
        ranks |= {block.rank} if block.exit_code == -6 else set()
    for event in case.reports:
        if event.values.get("signal") in ("6", "SIGABRT"):
            ranks.add(small_number(event.values.get("culprit_rank", "")))
        elif event.signature == "slurm-task-ended" and event.values.get("condition") == "Aborted":
            ranks |= set(rank_list(event.values.get("culprit_ranks", "")))
    if not ranks - {None}:
        ranks = {item.rank for item in case.processes if any(event.signature == _SIZES for event in item.events)}
    return {rank for rank in ranks if rank is not None}


def aborted_sender(case: Case, size: int, operation: str) -> int | None:
    """The rank that sends to the one that aborted itself, in the ring of a collective of so many ranks."""
    aborted = aborted_ranks(case)
    step = _RECEIVES_FROM.get(operation)
    return (aborted.pop() + step) % size if len(aborted) == 1 and step is not None and size > 2 else None


def _sender(case: Case, rank: int) -> tuple[int, int] | None:
    """The rank, and the one from which it receives: the other of two, or its neighbor in the ring of the collective."""
    size = world(case)
    if size is None:
        ended = {event.values.get("ended_pid") for event in case.reports if event.signature == "spawn-ended-others"}
        size = 2 if len(ended) == 1 and rank < 2 else None
    if size is None or rank >= size:
        return None
    if size == 2:
        return rank, 1 - rank
    operations = {call.operation for call in collective_calls(case)}
    step = _RECEIVES_FROM.get(operations.pop()) if len(operations) == 1 else None
    return (rank, (rank + step) % size) if step is not None else None
