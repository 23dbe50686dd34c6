"""Rules over the dumps of torch's flight recorder: which rank is behind, differs, or left no dump."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from doctor.diagnose.case import Case, Process
from doctor.diagnose.cause import Cause, Confidence, Undecidable, culprit_of, first_evidence, one_of_two
from doctor.diagnose.events import Event
from doctor.diagnose.recording import RecordedCollective, RecordedGroup
from doctor.diagnose.rules.collective_calls import aborted_ranks, aborted_sender
from doctor.diagnose.rules.named import count_ranks

SIGNATURE = "flight-recorder"
_ROOTED = frozenset({"gather", "scatter", "reduce", "broadcast"})
"""Collectives in which a rank may do its part and leave before the others have begun theirs."""


class _Member(NamedTuple):
    """One rank in one process group."""

    rank: int
    process: Process
    group: RecordedGroup


def recorded(case: Case) -> list[Cause] | Undecidable:
    """In each process group: the rank with another collective at the first difference, else the rank behind.

    Each rank's dump counts the same: no rank is the reference. A tie is undecidable.
    """
    groups: dict[str, list[_Member]] = defaultdict(list)
    for process in case.processes:
        if process.recording and process.rank is not None:
            for group in process.recording.groups:
                groups[_key(group)].append(_Member(process.rank, process, group))
    undecided: Undecidable | None = None
    for _, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        verdict = _difference(case, members) or _behind(case, members) or _without_dump(case, members)
        if isinstance(verdict, Undecidable):
            undecided = undecided or verdict
        elif verdict:
            return verdict
    return undecided or []


def _key(group: RecordedGroup) -> str:
    """Groups of one name with other members, such as those of tensor parallelism, are not one group."""
    return f"{group.name} {group.ranks}"


def _difference(case: Case, members: list[_Member]) -> list[Cause] | Undecidable | None:
    """The first number at which ranks ran different collectives, or the same with other sizes."""
    numbers = sorted({number for member in members for number in member.group.collectives})
    for number in numbers:
        entered = [
            (member, member.group.collectives[number]) for member in members if number in member.group.collectives
        ]
        for name, claim in (("operation", "ran"), ("sizes", "gave")):
            values = [(getattr(item, name), member, item) for member, item in entered if getattr(item, name)]
            counts = Counter(value for value, _, _ in values)
            if len(counts) > 1:
                return _minority(case, number, claim, values, counts)
    return None


def _minority(
    case: Case, number: int, claim: str, values: list[tuple[str, _Member, RecordedCollective]], counts: Counter[str]
) -> list[Cause] | Undecidable | None:
    (common, most), (_, second) = counts.most_common(2)
    group = values[0][1].group.name
    if most == second:
        listed = ", ".join(f"rank {member.rank} {claim} {value}" for value, member, _ in values[:4])
        sender = aborted_sender(case, len(values[0][1].group.ranks), values[0][2].operation)
        if most == 1 and len(values) == 2 and sender is not None:
            # The rank that aborted is in the right, as those two differ; and it differs from the one that sends to it.
            wrong = [(member, item) for _, member, item in values if member.rank == sender]
            summary = f"rank {sender} {claim} another size than the others to collective {number} of {group}: {listed}"
            events = first_evidence(_event(member, item) for _, member, item in values)
            return [_cause(case, "minority", [member for member, _ in wrong], summary, events)] if wrong else None
        if most == 1 and len(values) == 2 and not aborted_ranks(case):
            (_, first_rank, first), (_, other, second_call) = values
            message = (
                f"collective {number} of process group {group} differs, and nothing shows which is wrong: {listed}"
            )
            pair = culprit_of(first_rank.process), culprit_of(other.process)
            events = first_evidence([_event(first_rank, first), _event(other, second_call)])
            return [one_of_two(SIGNATURE, pair, message, events)]
        return Undecidable(
            f"collective {number} of process group {group} differs, and no majority shows which is wrong: {listed}",
            ("the flight recorder's dumps of the other ranks",),
        )
    differing = [(value, member, item) for value, member, item in values if value != common]
    who = count_ranks(member.rank for _, member, _ in differing)
    differs = differing[0][0] if claim == "ran" else f"{differing[0][0]} to {differing[0][2].operation}"
    summary = (
        f"{who} {claim} {differs} as collective {number} of process group {group}, where {most} ranks {claim} {common}"
    )
    examples = [*differing, *(row for row in values if row[0] == common)]
    events = first_evidence(_event(member, item) for _, member, item in examples)
    return [_cause(case, "minority", [member for _, member, _ in differing], summary, events)]


def _behind(case: Case, members: list[_Member]) -> list[Cause] | None:
    """Ranks that entered fewer collectives than the others, unless they are the larger part."""
    ahead = max(member.group.enqueued for member in members)
    behind = [member for member in members if member.group.enqueued < ahead]
    lowest = min(member.group.enqueued for member in members)
    behind = [member for member in behind if member.group.enqueued == lowest]
    if not behind or 2 * len(behind) >= len(members) + (len(members) == 2):
        return None
    first = next(
        member.group.collectives[number]
        for number in range(lowest + 1, ahead + 1)
        for member in members
        if number in member.group.collectives
    )
    if first.operation in _ROOTED and ahead - lowest == 1:
        return None
    who = count_ranks(member.rank for member in behind)
    verb = "has" if len(behind) == 1 else "have"
    joined = len(members) - len(behind)
    others = "1 other rank has" if joined == 1 else f"{joined} other ranks have"
    summary = (
        f"{who} {verb} not joined {first.operation}, collective {first.sequence} of process group "
        f"{members[0].group.name}; {others}"
    )
    waiting = [member for member in members if first.sequence in member.group.collectives]
    last = [_event(member, member.group.collectives[lowest]) for member in behind if lowest in member.group.collectives]
    events = first_evidence([*last, *(_event(member, member.group.collectives[first.sequence]) for member in waiting)])
    return [_cause(case, "behind in sequence", behind, summary, events)]


def _without_dump(case: Case, members: list[_Member]) -> list[Cause] | None:
    """Ranks of the group that left no dump and no error, while the others wait in a collective: they have ended."""
    events = [event for process in case.processes for event in process.events]
    if any(event.signature == "gloo-size-mismatch" for event in events):
        return _aborted(case, members)
    present = {member.rank for member in members}
    absent = set(members[0].group.ranks) - present
    reporting = {item.rank for item in case.processes if case.with_role(item, "victim", "ambiguous", "link", "root")}
    waits = [
        item for member in members if (item := member.group.collectives.get(member.group.enqueued)) and not item.ended
    ]
    if not absent or absent & reporting or len(absent) > max(1, len(present) // 2) or not waits:
        return None
    listed = [Process(rank=rank) for rank in sorted(absent)]
    processes = [case.process_of_rank(process.rank or 0) or process for process in listed]
    summary = f"{count_ranks(absent)} left no dump of the flight recorder; "
    call = waits[0].operation
    summary += f"1 other rank waits in {call}" if len(present) == 1 else f"{len(present)} other ranks wait in {call}"
    proof = first_evidence(
        _event(member, item) for member in members if (item := member.group.collectives.get(member.group.enqueued))
    )
    culprits = tuple(culprit_of(process) for process in processes)
    confidence: Confidence = "likely" if events else "possible"
    return [Cause("rank-silent", "silence", confidence, culprits, summary, proof)]


def _aborted(case: Case, members: list[_Member]) -> list[Cause] | None:
    """gloo: the rank that aborts itself over another size leaves no dump. If all others agree, it is the wrong one."""
    present = {member.rank for member in members}
    aborted = {
        process.rank
        for process in case.processes
        if any(event.signature == "gloo-size-mismatch" for event in process.events)
    }
    last = [member.group.collectives.get(member.group.enqueued) for member in members]
    agreed = {(item.sequence, item.operation, item.sizes) for item in last if item}
    absent = set(members[0].group.ranks) - present
    if len(members) < 2 or len(agreed) != 1 or None in last or absent != aborted or len(absent) != 1:
        return None
    culprits = tuple(culprit_of(process) for process in case.processes if process.rank in absent)
    ((number, operation, sizes),) = agreed
    summary = f"{count_ranks(absent)} gave another size to {operation}, collective {number}, "
    summary += f"than the {sizes} of the other {len(members)} ranks"
    events = first_evidence(
        [
            *(e for process in case.processes for e in process.events if e.signature == "gloo-size-mismatch"),
            *(_event(member, item) for member, item in zip(members, last, strict=True) if item),
        ]
    )
    return [Cause(SIGNATURE, "minority", "likely", culprits, summary, events)]


def _cause(case: Case, rule: str, members: list[_Member], summary: str, events: tuple[Event, ...]) -> Cause:
    """Dumps can be taken of a job that goes on: without a failure in any log, the verdict is only possible."""
    failed = any(
        case.role(event) not in ("evidence", "benign") for process in case.processes for event in process.events
    )
    confidence: Confidence = "likely" if failed else "possible"
    culprits = tuple(culprit_of(member.process) for member in sorted(members))
    return Cause(SIGNATURE, rule, confidence, culprits, summary, events)


def _event(member: _Member, item: RecordedCollective) -> Event:
    """A collective as evidence; its line is its number."""
    sizes = f", {item.sizes}" if item.sizes else ""
    ended = "ended" if item.ended else "not ended"
    text = f"collective {item.sequence} of process group {member.group.name}: {item.operation}{sizes}, {ended}"
    return Event(SIGNATURE, member.process.recording_file, item.sequence, text, {}, rank=member.rank)
