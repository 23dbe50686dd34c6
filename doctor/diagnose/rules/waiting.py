"""Rules over ranks that only waited: divergence, lateness, who gave up last, common target."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from doctor.analysis.collectives.calls import Call, behind, differing
from doctor.analysis.collectives.waits import most_awaited
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    Cause,
    Confidence,
    Culprit,
    Undecidable,
    culprit_of,
    culprit_of_rank,
    first_evidence,
    keeps_waiting,
    names_of,
    sorted_culprits,
)
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.process import Process
from doctor.diagnose.rules.collective_calls import collective_calls
from doctor.diagnose.rules.silent_ranks import known_ranks
from doctor.engine.grouping import sets_by_key
from doctor.engine.texts import filled, joined

_OF_A_PAIR = frozenset({"rank", "srTag"})
"""Arguments of send and receive, which other pairs of ranks have otherwise."""


class Proof(NamedTuple):
    """A line, and the process that wrote it."""

    process: Process
    event: Event


def divergence(case: Case) -> list[Cause] | Undecidable:
    """In one communicator: the rank behind in sequence, else the one in another operation."""
    for _, calls in sorted(last_calls(case).items()):
        verdict = _behind(case, calls) or _different(calls)
        if verdict:
            return verdict
    return []


def unlike_calls(case: Case) -> list[Cause] | Undecidable:
    """Ranks that gave one call different arguments; or that waited for the whole timeout in different calls of one
    number, in a communicator that they name. That ends any job; ranks that report nothing do not matter.
    """
    if arguments := _different_arguments(case):
        return arguments
    for name, calls in sorted(last_calls(case).items()):
        waited = [call for call in calls if str(call.sequence) in _timed_out(case, call.member.process)]
        for number in dict.fromkeys(call.sequence for call in waited if name):
            verdict = _different([call for call in waited if call.sequence == number])
            if verdict:
                return verdict
    return []


def last_calls(case: Case) -> dict[str, list[Call[Proof]]]:
    """The last operation of each process in each communicator."""
    groups: dict[str, dict[int, Call[Proof]]] = defaultdict(dict)
    unnamed: dict[int, set[str]] = defaultdict(set)
    for number, process in enumerate(case.processes):
        for event in process.events:
            values = event.values
            tag = values.get("tag", "")
            group = values.get("group", "") or (tag.partition("_")[2] if "_" in tag else "")
            has_operation = any(values.get(name) for name in ("seq", "op", "tag", "enqueued"))
            if not has_operation or case.role(event) == "evidence":
                continue
            if not group and values.get("seq"):
                unnamed[number].add(values["seq"])
            call = groups[group].setdefault(number, Call(Proof(process, event)))
            position, entered = _position(event)
            call.entered = entered if call.entered is None else call.entered
            call.sequence = position if call.sequence is None else call.sequence
            call.operation = call.operation or values.get("op") or tag.partition("_")[0] or None
            call.size = call.size or values.get("count") or None
    if list(groups) == [""] and any(len(sequences) > 1 for sequences in unnamed.values()):
        return {}  # one rank at several numbers: they are of several communicators, which these lines do not name
    return _joined_groups(groups)


def _position(event: Event) -> tuple[int | None, int | None]:
    """The number of the call in which a rank is, and of the last that it has entered, as far as the line shows them.

    The first that has not ended is not where it is, if it has not entered that.
    """
    entered, completed, number = (
        small_number(event.values.get(name, ""), 1 << 58) for name in ("enqueued", "completed", "seq")
    )
    position = number if completed is None else completed + 1
    return position if entered is None or position is None else min(position, entered), entered


def _joined_groups(groups: dict[str, dict[int, Call[Proof]]]) -> dict[str, list[Call[Proof]]]:
    """Operations whose lines show no communicator belong to the only one of their process, or the only one there is.

    Numbers of different communicators cannot be compared: where there are several, they belong to none.
    """
    nameless = groups.pop("", {})
    names = list(groups)
    for number, call in nameless.items():
        of_process = [name for name in names if number in groups[name]]
        if len(of_process) == 1:
            target = groups[of_process[0]][number]
            target.operation, target.size = target.operation or call.operation, target.size or call.size
            target.sequence = target.sequence if target.sequence is not None else call.sequence
            target.entered = target.entered if target.entered is not None else call.entered
        elif not of_process and len(names) < 2:
            groups[names[0] if names else ""][number] = call
    return {name: list(members.values()) for name, members in groups.items()}


def _behind(case: Case, calls: list[Call[Proof]]) -> list[Cause] | Undecidable:
    """The cause is named after what those report that wait: the line of the rank behind may only show where it is.

    One that timed out in a collective which the others have completed was in time for it: they made different calls
    there, or its data was lost. Of two such halves neither is named.
    """
    result = behind(calls, half=True)
    if result is None:
        return []
    where, late = result
    culprits = tuple(culprit_of(call.member.process) for call in late)
    if not where.named or where.total == 2:
        in_time = [call for call in late if str(call.sequence) in _timed_out(case, call.member.process)]
        if in_time:
            call = in_time[0]
            text = (
                "{0} waited for the whole timeout in {1} (number {2}), which the others have completed: the ranks made "
                "different calls there, or data was lost, and no majority shows whose"
            )
            named = filled(text, names_of(culprits), call.operation or "a collective", call.sequence)
            return Undecidable(named, ("the program's stacks of all ranks: `doctor watch -- <the launch line>`",))
    reached = [call for call in calls if call.sequence == where.highest]
    operation = next((call.operation for call in reached if call.operation), "the others")
    head = keeps_waiting(names_of(culprits), len(late), operation)
    summary = filled("{0}: behind in sequence, at {1} where others are at {2}", head, where.lowest, where.highest)
    events = first_evidence(
        call.member.event for call in (*late, *(call for call in calls if call.sequence is not None))
    )
    proofs = (call.member for call in (*reached, *late))
    signature = next(event.signature for item in proofs for event in (*case.waits(item.process), item.event))
    return [Cause(signature, "behind in sequence", "likely", culprits, summary, events)]


def _timed_out(case: Case, process: Process) -> set[str]:
    """The numbers of the collectives in which a rank says that it waited until the timeout."""
    waits = (event for event in case.waits(process) if case.signatures[event.signature].timeout)
    return {event.values["seq"] for event in waits if event.values.get("seq")}


def _different_arguments(case: Case) -> list[Cause] | Undecidable:
    """HCCL: a rank prints its own argument and that of a rank that it met. Source: rank_consistentcy_checker.cc."""
    own: dict[tuple[str, str], dict[int, Call[Proof]]] = defaultdict(dict)
    for process in case.processes:
        for event in process.events:
            if value := event.values.get("own_value"):
                key = event.values["parameter"], event.values.get("tag", "")
                own[key].setdefault(id(process), Call(Proof(process, event), size=value))
    if not own:
        return []
    parameter, calls = max(((key[0], [*members.values()]) for key, members in own.items()), key=lambda row: len(row[1]))
    if parameter not in _OF_A_PAIR and (verdict := _different(calls, filled("has {0}", parameter))):
        return verdict
    end = calls[0].member
    text = "{0} has {1} {2}, the rank that it compared with {3}; nothing shows which is wrong"
    claim = filled(text, culprit_of(end.process).name, parameter, calls[0].size, end.event.values["peer_value"])
    return Undecidable(claim, ("the logs of the other ranks",))


def _different(calls: list[Call[Proof]], said_of_size: str = "has a count of") -> list[Cause] | Undecidable:
    """Calls of one number; calls without a known number are taken for the same."""
    result = differing(calls) if len({call.sequence for call in calls} - {None}) < 2 else None
    if result is None:
        return []
    aspect, parts = result
    claim = "runs" if aspect == "operation" else said_of_size
    if parts.tie:
        ends = [
            filled("{0} {1} {2}", culprit_of(call.member.process).name, claim, call.value(aspect))
            for call in parts.differing[:4]
        ]
        listed = joined(", ", ends)
        return Undecidable(
            filled("two ends differ and no majority shows which is wrong: {0}", listed),
            ("the logs of the other ranks of this communicator",),
        )
    culprits = tuple(culprit_of(call.member.process) for call in parts.differing)
    first = parts.differing[0]
    differs = (names_of(culprits), claim, first.value(aspect))
    summary = filled("{0} {1} {2} where {3} ranks have {4}", *differs, len(parts.agreeing), parts.common)
    events = first_evidence(call.member.event for call in (*parts.differing, *calls))
    return [Cause(first.member.event.signature, "minority", "likely", culprits, summary, events)]


def lateness(case: Case) -> list[Cause]:
    """All wait in one operation: who reports later than the timeout after the first came too late."""
    return _late_report(case) or _late_entry(case)


def _late_report(case: Case) -> list[Cause]:
    if not case.clocks_comparable:
        return []
    first = [(events[0], item) for item in case.processes if (events := case.waits(item))]
    timed = sorted(((event.time, event, item) for event, item in first if event.time is not None), key=_by_time)
    if len(timed) < 2 or len(timed) < len(first):
        return []
    (start, earliest, _), (before, _, _), (end, event, process) = timed[0], timed[-2], timed[-1]
    timeout = _timeout_of(case, earliest)
    if timeout is None or end - before <= timeout * 0.9:
        return []
    culprit = culprit_of(process)
    summary = filled(
        "{0} came too late: its timeout is {1} s after the first one, and each rank waits only {2} s",
        culprit.name,
        f"{end - start:.0f}",
        f"{timeout:.0f}",
    )
    return [Cause(event.signature, "late", "likely", (culprit,), summary, first_evidence([earliest, event]))]


def _by_time(row: tuple[float, Event, Process]) -> float:
    return row[0]


def _timeout_in_line(event: Event) -> float | None:
    values = event.values
    seconds, milliseconds = (small_number(values.get(name, ""), 1 << 58) for name in ("timeout_s", "timeout_ms"))
    return float(seconds) if seconds is not None else None if milliseconds is None else milliseconds / 1000


def ended_by(case: Case) -> str:
    """The timeout that ended the first wait, with its layer and the value in force; empty where none is shown.

    Empty, too, where a connection was closed before: that ended the wait.
    """
    waits = [event for process in case.processes for event in case.waits(process)]
    by_timeout = (event for event in waits if case.signatures[event.signature].timeout)
    first = min(by_timeout, key=lambda e: (e.time is None, e.time or 0.0, e.file, e.line), default=None)
    closed = [event for event in waits if case.has_trait(event, "peer-ended")]
    if first is None or any(_is_before(event, first) for event in closed):
        return ""
    setting = case.signatures[first.signature].timeout
    seconds = _timeout_in_line(first)
    seconds = case.timeouts.get(setting) if seconds is None else seconds
    if seconds is None:
        return filled("the {0} ended the wait", setting)
    return filled("the {0} ended the wait: {1} s", setting, f"{seconds:g}")


def _is_before(event: Event, other: Event) -> bool:
    """In their file, else by their times, as far as these are known."""
    if event.file == other.file:
        return event.line < other.line
    return event.time is None or other.time is None or event.time <= other.time


def _timeout_of(case: Case, event: Event) -> float | None:
    """Seconds that the waiting rank waited: from the line, else the setting that governs it."""
    seconds = _timeout_in_line(event)
    if seconds is not None:
        return seconds
    signature = case.signatures[event.signature]
    if event.signature.startswith(("ei0002", "hccl-task")):
        return case.timeouts.get("HCCL_EXEC_TIMEOUT", 300.0)
    connects = signature.phase in ("init", "connect") and "hccl" in signature.components
    return case.connect_timeout if connects else None


def _late_entry(case: Case) -> list[Cause]:
    """A rank that entered the creation of a communicator later than the timeout after the others."""
    if not case.clocks_comparable:
        return []
    entries: dict[str, list[tuple[float, Event, Process]]] = defaultdict(list)
    for process in case.processes:
        for event in process.events:
            if event.signature == "late-rank-entry" and event.time is not None:
                # The identifier is printed with a stray digit before it by some versions: its end tells groups apart.
                entries[event.values.get("group", "").rpartition("_")[2]].append((event.time, event, process))
    for rows in entries.values():
        rows.sort(key=_by_time)
        if len(rows) < 2:
            continue
        (before, first, _), (last, event, process) = rows[-2], rows[-1]
        limit = case.timeouts.get("HCCL_CONNECT_TIMEOUT", 120.0)
        if last - before > limit:
            culprit = culprit_of(process)
            text = "{0} entered the communicator {1} s after the others, timeout {2} s"
            summary = filled(text, culprit.name, f"{last - before:.0f}", f"{limit:.0f}")
            return [Cause("late-rank-entry", "late", "likely", (culprit,), summary, first_evidence([first, event]))]
    return []


def gave_up_last(case: Case) -> list[Cause]:
    """gloo: all others report a timeout, and one only that its peers closed: it was busy elsewhere.

    Not where tracebacks show different collectives: then any of them may be the one that no other rank entered.
    """
    if len({call.operation for call in collective_calls(case)}) > 1:
        return []
    timed_out, closed = [], []
    for process in case.processes:
        names = {event.signature for event in process.events}
        if "gloo-timeout" in names:
            timed_out.append(process)
        elif names & {"gloo-conn-closed", "gloo-read-error"}:
            closed.append(process)
    if len(closed) != 1 or not timed_out or closed[0].rank is None or len(known_ranks(case)) > len(timed_out) + 1:
        return []
    culprit = culprit_of(closed[0])
    events = first_evidence(
        event for process in (closed[0], *timed_out) for event in process.events if event.signature.startswith("gloo")
    )
    confidence: Confidence = "likely" if len(timed_out) > 1 else "possible"  # of two, either may wait for the other
    summary = filled(
        "{0} came back last and found its peers gone; the other {1} had timed out on it", culprit.name, len(timed_out)
    )
    return [Cause("gloo-conn-closed", "gave up last", confidence, (culprit,), summary, events)]


class LinkEnds(NamedTuple):
    """Who is named for links that failed."""

    culprits: tuple[Culprit, ...]
    common: bool
    """The one remote that most of them name; else both ends."""


def link_ends(case: Case, links: Sequence[Proof]) -> LinkEnds:
    """The remote that most failed links name; else both ends."""
    named = ((item, named_peer(case, event)) for item, event in links)
    reporters = sets_by_key((target, _reporter(item, target)) for item, target in named if target is not None)
    culprit = most_awaited((target for target, members in reporters.items() for _ in members), least=2, times=2)
    if culprit:
        return LinkEnds((culprit,), True)
    return LinkEnds(sorted_culprits({culprit_of(item) for item, _ in links} | set(reporters)), False)


def common_target(case: Case) -> list[Cause]:
    """Link errors: the remote that most of them name; else both ends."""
    links = [Proof(item, event) for item in case.processes for event in case.with_role(item, "link")]
    if not links:
        return []
    culprits, common = link_ends(case, links)
    events = first_evidence(event for _, event in links)
    signature = links[0].event.signature
    if common:
        summary = filled("most link errors name {0}", culprits[0].name)
        return [Cause(signature, "common target", "likely", culprits, summary, events)]
    if len(culprits) == 1:
        summary = filled("a link failed; one end is {0}, and no line names the other", culprits[0].name)
    else:
        summary = filled("a link failed; its ends are {0}", names_of(culprits))
    return [Cause(signature, "both ends", "possible", culprits, summary, events)]


def _reporter(process: Process, target: Culprit) -> object:
    """Who reports a link: of a target on another host the host, all of whose ranks share its network."""
    if process.host and target.host and process.host != target.host:
        return process.host
    return process.log, process.pid, process.rank, process.device


def named_peer(case: Case, event: Event) -> Culprit | None:
    """The other end of a link, as the line names it: its rank, the process with its address, else its host.

    The address of a device is the host's name only where the line has no other.
    """
    rank = small_number(event.values.get("peer_rank", ""))
    if rank is not None and "group-rank" not in case.signatures[event.signature].traits:
        return culprit_of_rank(case, rank)
    names = ("peer_address", "peer_host", "peer_endpoint", "host_name")
    address = next((event.values[name] for name in names if event.values.get(name)), "")
    if not address:
        return None
    process = next((item for item in case.processes if address in (item.address, item.host)), None)
    host = event.values.get("peer_host") or re.sub(r"<\d+>$", "", address)
    return culprit_of(process) if process else Culprit(host=host)
