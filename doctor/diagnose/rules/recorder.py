"""Rules over the dumps of torch's flight recorder: which rank is behind, differs, or left no dump."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from doctor.analysis.collectives.calls import Aspect, Call, behind, differing, few_silent
from doctor.analysis.collectives.waits import ROOTED
from doctor.analysis.majority import Split
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    Cause,
    Confidence,
    Undecidable,
    culprit_of,
    culprit_of_rank,
    first_evidence,
    keeps_waiting,
    one_of_two,
)
from doctor.diagnose.events import Event, RecordedCollective, RecordedGroup
from doctor.diagnose.process import Process
from doctor.diagnose.rules.collective_calls import aborted_ranks, aborted_sender
from doctor.diagnose.rules.named import count_ranks
from doctor.engine.texts import filled, joined

SIGNATURE = "flight-recorder"


class _Member(NamedTuple):
    """One rank in one process group."""

    rank: int
    process: Process
    group: RecordedGroup


def recorded(case: Case) -> list[Cause] | Undecidable:
    """In each process group: the rank with another collective at the first difference, else the rank behind.

    Each rank's dump counts the same: no rank is the reference. A tie is undecidable.
    """
    undecided: Undecidable | None = None
    for members in _groups(case):
        verdict = _difference(case, members) or _behind(case, members) or _without_dump(case, members)
        if isinstance(verdict, Undecidable):
            undecided = undecided or verdict
        elif verdict:
            return verdict
    return undecided or []


def recorded_calls(case: Case) -> Iterator[tuple[list[Call[Process]], int]]:
    """Of each process group the call in which each rank is, the first that has not ended, and the group's size."""
    for members in _groups(case):
        calls = []
        for member in members:
            pending = (item for _, item in sorted(member.group.collectives.items()) if not item.ended)
            call = Call(member.process, entered=member.group.enqueued)
            if item := next(pending, None):
                call.sequence, call.operation, call.size = item.sequence, item.operation, item.sizes or None
            calls.append(call)
        yield calls, len(members[0].group.ranks)


def _groups(case: Case) -> list[list[_Member]]:
    """The members of each process group that left a dump, the largest group first."""
    groups: dict[str, list[_Member]] = defaultdict(list)
    for process in case.processes:
        if process.recording and process.rank is not None:
            for group in process.recording.groups:
                groups[_key(group)].append(_Member(process.rank, process, group))
    return [members for _, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))]


def _key(group: RecordedGroup) -> str:
    """Groups of one name with other members, such as those of tensor parallelism, are not one group."""
    return f"{group.name} {group.ranks}"


def _difference(case: Case, members: list[_Member]) -> list[Cause] | Undecidable | None:
    """The first number at which ranks ran different collectives, or the same with other sizes."""
    for number in sorted({number for member in members for number in member.group.collectives}):
        calls = [
            Call(member, number, item.operation or None, item.sizes or None)
            for member in members
            if (item := member.group.collectives.get(number))
        ]
        if result := differing(calls):
            return _minority(case, number, *result)
    return None


def _tied(case: Case, number: int, aspect: Aspect, calls: Sequence[Call[_Member]]) -> list[Cause] | Undecidable | None:
    """Which of as many ranks on both sides is wrong, where a rank that aborted shows it."""
    group, claim = calls[0].member.group, "ran" if aspect == "operation" else "gave"
    events = first_evidence(_event(call.member, number) for call in calls)
    listed = ", ".join(filled("rank {0} {1} {2}", call.member.rank, claim, call.value(aspect)) for call in calls[:4])
    pair = len(calls) == 2
    sender = aborted_sender(case, len(group.ranks), calls[0].operation or "")
    if pair and sender is not None:
        # The rank that aborted is in the right, as those two differ; and it differs from the one that sends to it.
        wrong = [call.member for call in calls if call.member.rank == sender]
        text = "rank {0} {1} another size than the others to collective {2} of {3}: {4}"
        summary = filled(text, sender, claim, number, group.name, listed)
        return [_cause(case, "minority", wrong, summary, events)] if wrong else None
    if pair and not aborted_ranks(case):
        first, second = (culprit_of(call.member.process) for call in calls)
        text = "collective {0} of process group {1} differs, and nothing shows which is wrong: {2}"
        message = filled(text, number, group.name, listed)
        return [one_of_two(SIGNATURE, (first, second), message, events)]
    text = "collective {0} of process group {1} differs, and no majority shows which is wrong: {2}"
    needed = ("the flight recorder's dumps of the other ranks",)
    return Undecidable(filled(text, number, group.name, listed), needed)


def _minority(case: Case, number: int, aspect: Aspect, parts: Split[Call[_Member]]) -> list[Cause] | Undecidable | None:
    calls, claim = (*parts.differing, *parts.agreeing), "ran" if aspect == "operation" else "gave"
    group = calls[0].member.group
    events = first_evidence(_event(call.member, number) for call in calls)
    if parts.tie:
        return _tied(case, number, aspect, calls)
    first_call = parts.differing[0]
    differs = joined(
        "", (f"{first_call.value(aspect)}", "" if aspect == "operation" else filled(" to {0}", first_call.operation))
    )
    who, most = count_ranks(call.member.rank for call in parts.differing), len(parts.agreeing)
    text = "{0} {1} {2} as collective {3} of process group {4}, where {5} ranks {6} {7}"
    summary = filled(text, who, claim, differs, number, group.name, most, claim, parts.common)
    return [_cause(case, "minority", [call.member for call in parts.differing], summary, events)]


def _behind(case: Case, members: list[_Member]) -> list[Cause] | None:
    """Ranks that entered fewer collectives than the others, unless they are the larger part."""
    result = behind([Call(member, member.group.enqueued) for member in members])
    if result is None:
        return None
    where, late = result
    first = next(
        member.group.collectives[number]
        for number in range(where.lowest + 1, where.highest + 1)
        for member in members
        if number in member.group.collectives
    )
    if first.operation in ROOTED and where.highest - where.lowest == 1:
        return None
    who = count_ranks(call.member.rank for call in late)
    entered = len(members) - len(late)
    others = "1 other rank has entered it" if entered == 1 else filled("{0} other ranks have entered it", entered)
    head = keeps_waiting(who, len(late), first.operation)
    text = "{0}, collective {1} of process group {2}: {3}"
    summary = filled(text, head, first.sequence, members[0].group.name, others)
    last = [(call.member, where.lowest) for call in late]
    proof = [*last, *((member, first.sequence) for member in members)]
    events = first_evidence(_event(member, number) for member, number in proof if number in member.group.collectives)
    return [_cause(case, "behind in sequence", [call.member for call in late], summary, events)]


def _without_dump(case: Case, members: list[_Member]) -> list[Cause] | None:
    """Ranks of the group that left no dump and no error, while the others wait in a collective: they have ended."""
    last = [(member, item) for member in members if (item := member.group.collectives.get(member.group.enqueued))]
    absent = set(members[0].group.ranks) - {member.rank for member in members}
    proof = [_event(member, item.sequence) for member, item in last]
    if aborts := case.events_of("gloo-size-mismatch"):
        calls = [item for _, item in last] if len(last) == len(members) else []
        return _aborted(case, absent, calls, [*aborts, *proof])
    reporting = {item.rank for item in case.processes if case.waits(item) or case.with_role(item, "root")}
    waits = [item for _, item in last if not item.ended]
    if absent & reporting or not few_silent(absent, len(members)) or not waits:
        return None
    call = waits[0].operation
    summary = filled("{0} left no dump of the flight recorder; ", count_ranks(absent))
    others = filled("{0} other ranks wait in {1}", len(members), call)
    if len(members) == 1:
        others = filled("1 other rank waits in {0}", call)
    summary = joined("", (summary, others))
    culprits = tuple(culprit_of_rank(case, rank) for rank in sorted(absent))
    confidence: Confidence = "likely" if case.events else "possible"
    return [Cause("rank-silent", "silence", confidence, culprits, summary, first_evidence(proof))]


def _aborted(case: Case, absent: set[int], last: list[RecordedCollective], proof: list[Event]) -> list[Cause] | None:
    """gloo: the rank that aborts itself over another size leaves no dump. If all others agree, it is the wrong one."""
    aborted = {item.rank for item in case.processes if any(e.signature == "gloo-size-mismatch" for e in item.events)}
    agreed = {(item.sequence, item.operation, item.sizes) for item in last}
    if len(last) < 2 or len(agreed) != 1 or absent != aborted or len(absent) != 1:
        return None
    ((number, operation, sizes),) = agreed
    summary = filled("{0} gave another size to {1}, collective {2}, ", count_ranks(absent), operation, number)
    summary = joined("", (summary, filled("than the {0} of the other {1} ranks", sizes, len(last))))
    culprits = tuple(culprit_of_rank(case, rank) for rank in absent)
    return [Cause(SIGNATURE, "minority", "likely", culprits, summary, first_evidence(proof))]


def _cause(case: Case, rule: str, members: list[_Member], summary: str, events: tuple[Event, ...]) -> Cause:
    """Dumps can be taken of a job that goes on: without a failure in any log, the verdict is only possible."""
    failed = any(case.role(event) not in ("evidence", "benign") for event in case.events)
    confidence: Confidence = "likely" if failed else "possible"
    culprits = tuple(culprit_of(member.process) for member in sorted(members))
    return Cause(SIGNATURE, rule, confidence, culprits, summary, events)


def _event(member: _Member, number: int) -> Event:
    """A collective as evidence; its line is its number."""
    item = member.group.collectives[number]
    sizes = f", {item.sizes}" if item.sizes else ""
    ended = "ended" if item.ended else "not ended"
    text = "collective {0} of process group {1}: {2}{3}, {4}"
    text = filled(text, item.sequence, member.group.name, item.operation, sizes, ended)
    return Event(SIGNATURE, member.process.recording_file, item.sequence, text, {}, rank=member.rank)
