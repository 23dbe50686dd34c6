"""Rule "named": the library or the launcher itself names the culprit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    MAX_CULPRITS,
    MAX_EVIDENCE,
    ONE_OF_TWO,
    Cause,
    Confidence,
    Culprit,
    culprit_of,
    culprit_of_rank,
    first_evidence,
    names_of,
)
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.launcher_reports import ended_by_agent, ended_by_launcher, task_failed
from doctor.diagnose.process import Process
from doctor.diagnose.rules.failed_workers import FATAL_SIGNALS, cause_of_block
from doctor.diagnose.rules.scheduler_states import only_node
from doctor.diagnose.signature import ERROR_ROLES
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled, joined

_CONDITIONS = {
    "ERROR CQE": "error CQE (retransmission exhausted)",
    "STUCK": "stuck",
    "LOST": "lost (ended, or its network)",
}
"""HCCL's heartbeat conditions, the one that outranks the others first."""
MAX_PAIRS = 4
"""Pairs of ranks that one sentence names."""
_MANY_RANKS = 1000
"""Ranks that one line says ended alike: then the fault is not one of theirs."""


def named_by_launcher(case: Case) -> list[Cause]:
    """A launcher or scheduler reports a rank that a signal ended. SIGTERM is how launchers end the innocent."""
    causes = [cause for event in case.reports for cause in _reported(case, event)]
    blocks = case.failure_blocks
    for block in blocks:
        if block.exit_code in FATAL_SIGNALS and not ended_by_launcher(block, blocks):
            causes.append(cause_of_block(case, block))
    return _unique(causes)


def _reported(case: Case, event: Event) -> Iterator[Cause]:
    if event.signature in ("mpi-rank-killed", "spawned-process-killed"):
        number = event.values.get("signal", "")
        if number in ("2", "SIGINT", "15", "SIGTERM") or event.values.get("exit_code") == "0":
            return
        if number in ("6", "SIGABRT") and case.aborts_on_others:
            return
        rank = small_number(event.values["culprit_rank"])
        if rank is None:
            return
        code = event.values.get("exit_code")
        ended = filled("signal {0}", number) if number else filled("exit code {0}", code) if code else "a signal"
        culprit = culprit_of_rank(case, rank, event.values.get("culprit_host", ""))
        yield _launcher_cause(case, event, culprit, filled("{0} was ended by {1}", culprit.name, ended))
    elif event.signature == "slurm-task-ended":
        if event.values["condition"] == "Killed" and _ended_by_launcher(case, event):
            return
        if event.values["condition"] == "Aborted" and case.aborts_on_others:
            return
        ranks, host = rank_list(event.values.get("culprit_ranks", "")), event.values.get("culprit_host", "")
        if len(ranks) > _MANY_RANKS:
            return
        for rank in ranks:
            culprit = culprit_of_rank(case, rank, host)
            yield _launcher_cause(
                case, event, culprit, filled("{0} ended: {1}", culprit.name, event.values["condition"])
            )
    else:
        yield from lost_hosts(case, event)


def terminated(case: Case) -> list[Cause]:
    """The first rank that a launcher saw end, by SIGTERM, while the others only lost it: someone else ended it."""
    events = case.events
    failures = [event for event in events if case.role(event) in ERROR_ROLES]
    names = {event.signature for event in failures if not case.has_trait(event, "peer-ended")}
    if names - {"torchrun-sigterm"} or any(event.signature == "exit-zero-on-signal" for event in events):
        return []
    ended: dict[int, tuple[Event, str]] = {}
    for event in case.reports:
        rank = small_number(event.values.get("culprit_rank", ""))
        if rank is not None and event.values.get("signal") in ("15", "SIGTERM"):
            ended[rank] = event, event.values.get("culprit_host", "")
    for block in case.failure_blocks:
        by_agent = ended_by_agent(case.reports, block.event.file)
        from_outside = block.first or (by_agent and block.pid not in by_agent)
        if from_outside and block.exit_code == -15 and block.rank is not None:
            ended[block.rank] = block.event, block.host
    if not ended and failures:
        received = [event for event in failures if "death signal" in event.text]
        return [_launcher_terminated(case, event) for event in received[:1]]
    if len(ended) != 1:
        return []
    ((rank, (event, host)),) = ended.items()
    culprit = culprit_of_rank(case, rank, host)
    summary = filled("{0} ended first, by SIGTERM from outside: an administrator, a scheduler or a limit", culprit.name)
    return [Cause("rank-terminated", "named by the launcher", "likely", (culprit,), summary, (event,))]


def _launcher_terminated(case: Case, event: Event) -> Cause:
    """No rank had ended when torchrun itself received the signal."""
    owner = next((item for item in case.processes if event in item.events and item.host), None)
    culprits = (Culprit(host=owner.host),) if owner else ()
    summary = "torchrun itself received SIGTERM while its ranks ran: a person, a scheduler or a limit ended the job"
    return Cause("rank-terminated", "named by the launcher", "likely", culprits, summary, (event,))


def _ended_by_launcher(case: Case, event: Event) -> bool:
    """Slurm ends all other tasks with SIGKILL once one has ended badly, or the job was cancelled: they are innocent."""
    first = bool(case.launch_failures) or any(task_failed(item) for item in case.reports if item is not event)
    first |= any(
        item.signature == "srun-ends-step" and item.file == event.file and item.line < event.line
        for item in case.reports
    )
    events = (*case.reports, *case.events)
    ended = (item for item in events if case.has_trait(item, "ends-all"))
    return first or any(item.file != event.file or item.line < event.line for item in ended)


def _launcher_cause(case: Case, event: Event, culprit: Culprit, summary: str) -> Cause:
    return Cause(event.signature, "named by the launcher", "certain", (culprit,), summary, (event,))


def _unique(causes: Iterable[Cause]) -> list[Cause]:
    """One cause for each rank: a block with the rank outranks a line with only the local rank."""
    chosen: dict[object, Cause] = {}
    nobody = Culprit()
    for cause in sorted(causes, key=lambda item: next(iter(item.culprits), nobody).rank is None):
        culprit = next(iter(cause.culprits), nobody)
        if culprit.rank is None and not culprit.host and chosen:
            continue
        chosen.setdefault((culprit.rank, culprit.host if culprit.rank is None else ""), cause)
    return list(chosen.values())


def named_by_library(case: Case) -> list[Cause]:
    """HCCL's heartbeat, HCCL's root-info server, monitoredBarrier and their like name the rank."""
    return _heartbeat(case) or _missing_ranks(case) or _pairs(case) or _connect_probe(case)


def _heartbeat(case: Case) -> list[Cause]:
    """The condition that outranks the others; of two devices that report each other as lost, none."""
    by_place: dict[tuple[str, int | None], list[Event]] = {}
    observers: dict[tuple[str, int | None], set[tuple[str, int | None]]] = {}
    for event in case.events_of("hccl-heartbeat-exception"):
        device = event.values.get("culprit_device", "")
        if device.isdecimal():
            place = (event.values.get("culprit_host", ""), int(device))
            by_place.setdefault(place, []).append(event)
            observers.setdefault(place, set()).add(_observer(event))
    if not by_place:
        return []
    mutual = [
        place
        for place in by_place
        if any(observer in by_place and place in observers[observer] for observer in observers[place])
    ]
    if len(mutual) == len(by_place) and len(by_place) == 2:
        culprits = tuple(_place(case, place) for place in sorted(by_place, key=str))
        events = first_evidence(event for place in by_place for event in by_place[place])
        names = joined(" and ", (culprit.name for culprit in culprits))
        summary = filled("{0} report each other as lost: the network between them failed", names)
        return [Cause("hccl-heartbeat-exception", "named by HCCL", "likely", culprits, summary, events)]
    times = {
        place: min((event.time for event in rows if event.time is not None), default=float("inf"))
        for place, rows in by_place.items()
    }
    best = min(by_place, key=lambda place: (_priority(by_place[place]), times[place], str(place)))
    culprit, condition = _place(case, best), [*_CONDITIONS.values()][_priority(by_place[best])]
    summary = filled("HCCL's heartbeat names {0}: {1}", culprit.name, condition)
    proof = first_evidence(by_place[best])
    return [Cause("hccl-heartbeat-exception", "named by HCCL", "certain", (culprit,), summary, proof)]


def _observer(event: Event) -> tuple[str, int | None]:
    host, _, device = event.values.get("discoverer", "").partition("/")
    return (host, int(device)) if device.isdecimal() else (event.host, event.device)


def _priority(events: list[Event]) -> int:
    text = " ".join(event.values.get("condition", "") + event.text for event in events).upper()
    return next((number for number, word in enumerate(_CONDITIONS) if word in text), len(_CONDITIONS) - 1)


def _place(case: Case, place: tuple[str, int | None]) -> Culprit:
    host, device = place
    process = case.process_at(host, device)
    if process is None and (not host or "*" in host):
        process = next((item for item in case.processes if item.device == device), None)
    return culprit_of(process) if process else Culprit(None, host, device)


_RANK_LISTS = ("ei0015-rootinfo-missing-ranks", "torch-monitored-barrier")


def _missing_ranks(case: Case) -> list[Cause]:
    """Ranks that never connected, as the server of HCCL or the barrier lists them."""
    for signature in _RANK_LISTS:
        events = case.events_of(signature)
        ranks = sorted({rank for event in events for rank in rank_list(event.values.get("culprit_ranks", ""))})
        if not ranks:
            present = [event.values["connected_ranks"] for event in events if event.values.get("connected_ranks")]
            ranks = absent_ranks(present, case.world_size)
        reached = _reached(case) if signature == "torch-monitored-barrier" else {}
        if ranks and set(ranks) <= set(reached):
            return [_cannot_be_heard(case, ranks, reached, events)]
        ranks = [rank for rank in ranks if rank not in reached]
        if ranks:
            culprits = tuple(culprit_of_rank(case, rank) for rank in ranks)
            named = count_ranks(ranks)
            if signature == "torch-monitored-barrier":
                summary = filled("{0} did not reach the barrier", named)
            else:
                summary = filled("{0} never connected to the root-info server", named)
            return [Cause(signature, "named by the library", "certain", culprits, summary, first_evidence(events))]
    return []


def _reached(case: Case) -> dict[int, Event]:
    """The ranks that say that they reached the barrier: the rank that counts did not hear them, or gave up."""
    events = case.events_of("torch-barrier-reached")
    ranks = {small_number(event.values["rank"]): event for event in events}
    return {rank: event for rank, event in ranks.items() if rank is not None}


def _cannot_be_heard(case: Case, ranks: list[int], reached: dict[int, Event], events: list[Event]) -> Cause:
    """All ranks that the barrier misses had come: the network of the rank that counts, if it hears no other rank."""
    awaited = small_number(reached[ranks[0]].values["awaited"]) or 0
    counting, proof = culprit_of_rank(case, awaited), first_evidence([*events[:1], *(reached[rank] for rank in ranks)])
    summary = filled(
        "{0} misses {1} at the barrier, which had come: its network failed", counting.name, count_ranks(ranks)
    )
    others = {process.rank for process in case.processes if process.rank is not None} - {awaited}
    if others - set(ranks):
        culprits = tuple(culprit_of_rank(case, rank) for rank in ranks)
        text = "{0} had come to the barrier, and rank {1}, which hears others, did not hear it"
        summary = filled(text, count_ranks(ranks), awaited)
        return Cause("torch-monitored-barrier", "common target", "likely", culprits, summary, proof)
    if len(ranks) > 1:
        return Cause("torch-monitored-barrier", "common target", "likely", (counting,), summary, proof)
    text = "rank {0} and {1} do not hear each other at the barrier: one of their networks failed"
    summary = filled(text, awaited, count_ranks(ranks))
    pair = counting, culprit_of_rank(case, ranks[0])
    return Cause("torch-monitored-barrier", ONE_OF_TWO, "possible", pair, summary, proof)


def absent_ranks(present: Iterable[str], size: int | None) -> list[int]:
    """The ranks that are in none of these lists, of ``size`` ones; without it, of those below the highest in them.

    >>> absent_ranks(["5, 1, 4, 2"], None)
    [0, 3]
    """
    numbers = " ".join(present).translate(str.maketrans("[],", "   ")).split()
    ranks = {int(number) for number in numbers if number.isdecimal()}
    return sorted(set(range(min(size or max(ranks) + 1, 100_000))) - ranks) if ranks else []


_PAIRS_OF_EQUALS = "nccl-duplicate-gpu"
_PAIRS = {
    "nccl-version-mismatch": "NCCL's versions differ between",
    _PAIRS_OF_EQUALS: "two ranks use one GPU:",
    "torch-models-differ": "the models differ between",
    "zero3-ranks-disagree": "ZeRO-3 runs different modules on",
}


def _pairs(case: Case) -> list[Cause]:
    for signature, claim in _PAIRS.items():
        pairs: dict[frozenset[int], Event] = {}
        for event in case.events_of(signature):
            numbers = (small_number(event.values.get(name, "")) for name in ("culprit_rank", "culprit_rank_b"))
            pairs.setdefault(frozenset(rank for rank in numbers if rank is not None), event)
        pairs.pop(frozenset(), None)
        if pairs:
            ranks = sorted({rank for pair in pairs for rank in pair})
            named = joined("; ", (count_ranks(pair) for pair in list(pairs)[:MAX_PAIRS]))
            deviant = _differs_from_most(case, pairs) if signature != _PAIRS_OF_EQUALS else []
            culprits = tuple(culprit_of_rank(case, rank) for rank in (deviant or ranks)[:MAX_CULPRITS])
            summary = filled("{0} {1}", claim, named)
            certainty: Confidence = "likely" if deviant else "certain"
            events = first_evidence(pairs.values())
            return [Cause(signature, "named by the library", certainty, culprits, summary, events)]
    return _tls(case)


def _differs_from_most(case: Case, pairs: Iterable[frozenset[int]]) -> list[int]:
    """The rank of all pairs, where it differs from more than half of the ranks that the logs show. Ranks that are
    compared with rank 0 alone may be the fewer ones, which differ from it and from all others.
    """
    shared, members = frozenset.intersection(*pairs), frozenset.union(*pairs)
    ranks = {process.rank for process in case.processes} - {None}
    is_deviant = len(shared) == 1 and 2 * len(members - shared) > max(len(ranks), case.world_size or 0)
    return sorted(shared) if is_deviant else []


def _tls(case: Case) -> list[Cause]:
    """The shorter of HCCL's two lists of devices, with TLS on and off."""
    for event in case.events_of("ei0016-tls"):
        on = [word for word in event.values.get("tls_on", "").split(",") if "/" in word]
        off = [word for word in event.values.get("tls_off", "").split(",") if "/" in word]
        if not on and not off:
            continue
        fewer = min((on, off), key=len) if len(on) != len(off) else on + off
        culprits = []
        for word in sorted(set(fewer or on + off)):
            host, _, device = word.strip(" []").partition("/")
            culprits.append(_place(case, (host, int(device) if device.isdecimal() else None)))
        summary = filled("the TLS switch of {0} differs from the others", names_of(culprits))
        confidence = "certain" if len(on) != len(off) else "possible"
        return [Cause("ei0016-tls", "named by HCCL", confidence, tuple(culprits), summary, (event,))]  # type: ignore[arg-type]
    return []


def _connect_probe(case: Case) -> list[Cause]:
    """HCCL's probe after a timed-out link: the destination that most failing pairs share."""
    targets: dict[tuple[str, int | None], list[Event]] = {}
    for event in case.events_of("hccl-connect-detect"):
        device = event.values.get("culprit_device", "")
        if device.isdecimal():
            targets.setdefault((event.values.get("culprit_host", ""), int(device)), []).append(event)
    if not targets:
        return []
    most = max(len(events) for events in targets.values())
    chosen = sorted((place for place, events in targets.items() if len(events) == most), key=str)
    culprits = tuple(_place(case, place) for place in chosen)
    summary = filled("HCCL's connection probe cannot reach {0}", names_of(culprits))
    events = first_evidence(event for place in chosen for event in targets[place])
    confidence = "likely" if len(chosen) == 1 else "possible"
    return [Cause("hccl-connect-detect", "named by HCCL", confidence, culprits, summary, events)]  # type: ignore[arg-type]


def processes_of(case: Case, cause: Cause) -> list[Process]:
    """The processes in the logs that a cause names."""
    ranks = {culprit.rank for culprit in cause.culprits if culprit.rank is not None}
    places = {(culprit.host, culprit.device) for culprit in cause.culprits if culprit.rank is None}
    return [item for item in case.processes if item.rank in ranks or (item.host, item.device) in places]


def rank_list(text: str) -> list[int]:
    """The ranks of ``1,3,5-7``; at most 100,000.

    >>> rank_list("1, 3-5")
    [1, 3, 4, 5]
    """
    ranks: set[int] = set()
    for word in text.replace(" ", ",").split(","):
        first, sign, last = word.partition("-")
        if first.isdecimal() and len(first) < 7:
            end = int(last) if sign and last.isdecimal() and len(last) < 7 else int(first)
            ranks.update(range(int(first), min(end, int(first) + 100_000) + 1))
    return sorted(ranks)


def count_ranks(ranks: Iterable[int]) -> str:
    """``rank 3``; ``ranks 1, 3 and 7``; ``ranks 1, 3, 5 and 9 more``."""
    if len(ordered := sorted(set(ranks))) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) <= 8:
        return filled("ranks {0} and {1}", ", ".join(map(str, ordered[:-1])), ordered[-1])
    return filled("ranks {0} and {1} more", ", ".join(map(str, ordered[:6])), len(ordered) - 6)


def name_all(culprits: Sequence[Culprit]) -> str:
    """Their ranks, or their names where these are few and differ, else how many there are."""
    ranks = [culprit.rank for culprit in culprits if culprit.rank is not None]
    if len(ranks) == len(culprits) > 1:
        return count_ranks(ranks)
    few = len({culprit.name for culprit in culprits}) == len(culprits) <= MAX_EVIDENCE
    return names_of(culprits) if few else filled("{0} processes", len(culprits))


def too_many_clients(case: Case) -> list[Cause]:
    """The job as a whole: its store has processes of another start, so that all ranks are there and none is at fault.

    torch counts joined processes in the store. A file of ``init_method=file://`` that was left over, ranks that were
    started again against a store that lives on, and two jobs with one MASTER_PORT make it count more than there are.
    """
    events = [
        event
        for event in case.events_of("torch-store-clients")
        if (small_number(event.values.get("joined", "")) or 0) > (small_number(event.values.get("world_size", "")) or 0)
        and event.values.get("world_size")
    ]
    if not events:
        return []
    joined = small_number(events[0].values["joined"]) or 0
    size = count_noun(small_number(events[0].values["world_size"]) or 0, "rank")
    summary = filled("{0} processes joined the store of a job of {1}: it holds those of another start", joined, size)
    return [Cause("torch-store-too-many", "named by the library", "certain", (), summary, first_evidence(events))]


def truncated_messages(case: Case) -> list[Cause]:
    """Ranks disagree on the size of a message, and the one that prints it may be the one that is right."""
    events = case.events_of("nccl-truncated")
    if not events:
        return []
    summary = "ranks disagree on the size of a message: their settings, versions or collectives differ"
    return [Cause("nccl-truncated", "named by the library", "likely", (), summary, first_evidence(events))]


def lost_hosts(case: Case, event: Event) -> Iterator[Cause]:
    """The host that this report of a launcher is about, if it is one of these.

    Slurm's controller decides that a host is lost, so its report is certain. mpirun reports that it lost its daemon,
    which the network may have cut off as well.
    """
    host = event.values.get("culprit_host", "")
    if event.signature == "slurm-node-failure":
        # The one on which a step was cancelled for it is not the one that failed.
        if host:
            yield _cause(event, host, "certain", filled("Slurm lost host {0} during the job", host))
        elif not _names_lost_host(case, event.signature):
            text = "Slurm lost a host of the job, which the logs do not name: its controller's log does"
            yield _cause(event, "", "certain", text)
    elif event.signature == "ompi-daemon-lost" and (host or not _names_lost_host(case, event.signature)):
        where = filled("host {0}", host) if host else "another host"
        summary = filled("mpirun lost its daemon on {0}: that host ended, or the network to it failed", where)
        yield _cause(event, host, "likely", summary)


def _cause(event: Event, host: str, confidence: Confidence, summary: str) -> Cause:
    culprits = (Culprit(host=host),) if host else ()
    return Cause(event.signature, "named by the launcher", confidence, culprits, summary, (event,))


def _names_lost_host(case: Case, signature: str) -> bool:
    """Whether another line names it; of a host that is down, `named_by_scheduler` speaks where the job ended for it."""
    named = case.host_reports
    ended = case.has_report("slurm-job-node-failed")
    return signature in named or (ended and bool("slurm-node-down" in named or only_node(case)))
