"""Rules over ranks that only waited: silence, divergence, lateness, wait chain, who gave up last, common target."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from doctor.diagnose.case import Case, Process
from doctor.diagnose.cause import Cause, Confidence, Culprit, Undecidable, culprit_of, first_evidence
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.launcher_reports import ended_well_ranks, failure_blocks, terminated_ranks
from doctor.diagnose.rules.named import aborts_on_others, count_ranks, others_wait

MAX_RANKS = 100_000


def waiting_events(case: Case, process: Process) -> list[Event]:
    """The errors with which a process says that it waited for another, or lost it."""
    return case.with_role(process, "victim", "ambiguous", "link")


def silence(case: Case) -> list[Cause] | Undecidable:
    """Ranks without an error, or without any log, while the others wait; not when they are the larger part."""
    waiting = [item for item in case.processes if waiting_events(case, item)]
    ranks = {item.rank for item in waiting if item.rank is not None}
    if not waiting or len(ranks) < len(waiting):
        return []
    suspects, logged = _silent_ranks(case)
    if any(event.signature in ("spawn-ended-others", "spawned-process-raised") for event in case.reports):
        return []  # torch.multiprocessing prints the error of one rank only
    if all(case.has_trait(event, "peer-ended") for item in waiting for event in waiting_events(case, item)):
        # A process had ended before the launcher ended the others: those were not the first.
        ended_later = terminated_ranks(case.reports, case.signatures)
        suspects = {rank: culprit for rank, culprit in suspects.items() if rank not in ended_later}
    if not suspects or len(suspects) > max(1, len(waiting) // 2):
        return []
    if not_read := _not_read(case, suspects):
        reason = f"{count_ranks(not_read)} may have reported an error in logs that could not be read"
        return Undecidable(reason, tuple(case.unread[:8]) or ("the rest of the logs that were read only in part",))
    culprits = tuple(suspects[rank] for rank in sorted(suspects, key=lambda rank: rank or 0))
    named = [culprit.rank for culprit in culprits if culprit.rank is not None]
    without_log = [rank for rank in named if rank not in logged]
    condition = (
        "left no log" if len(without_log) == len(named) else "reports no error: it hung, was killed, or ended early"
    )
    if len(named) > 1 and not without_log:
        condition = "report no error: they hung, were killed, or ended early"
    summary = f"{count_ranks(named)} {condition}, while {others_wait(len(waiting))}"
    events = first_evidence(waiting_events(case, item)[0] for item in waiting)
    # A rank that the launcher ended after the first timeout may have been about to report its own.
    ended = set(named) <= terminated_ranks(case.reports, case.signatures)
    ended |= any(event.signature in ("mpi-first-exit", "srun-ends-step") for event in case.reports)
    confidence: Confidence = "possible" if ended and len(waiting) == 1 else "likely"
    return [Cause("rank-silent", "silence", confidence, culprits, summary, events)]


def _not_read(case: Case, suspects: Mapping[int | None, Culprit]) -> list[int]:
    """Of these ranks those that may have reported an error in what was not read."""
    partly: set[int | None] = {rank for file in case.files if file.incomplete for rank in file.labels}
    partly |= {item.rank for item in case.processes if case.is_incomplete(item)}
    if case.unread:
        partly |= suspects.keys() - {item.rank for item in case.processes}
    return sorted(rank for rank in partly & suspects.keys() if rank is not None)


def _silent_ranks(case: Case) -> tuple[dict[int | None, Culprit], set[int]]:
    """The ranks of the job that report no waiting; and those of which a log or a launcher shows something."""
    quiet = [item for item in case.processes if item.rank is not None and not waiting_events(case, item)]
    suspects: dict[int | None, Culprit] = {item.rank: culprit_of(item) for item in quiet}
    logged = {item.rank for item in case.processes if item.rank is not None}
    aborted = aborts_on_others(case)
    for block in failure_blocks(case.reports, case.signatures):
        if block.exit_code == _SIGABRT and aborted:
            continue  # the watchdog of NCCL ended it over the same timeout
        if block.rank is not None and block.rank not in logged:
            suspects[block.rank] = Culprit(block.rank, block.host)
    for rank, block in ended_well_ranks(case.reports, case.signatures).items():
        if rank not in logged:
            suspects[rank] = Culprit(rank, block.host)
    for rank in case.labels:
        if rank not in logged:
            suspects[rank] = Culprit(rank)
    logged.update(rank for rank in suspects if rank is not None)
    if case.world_size:
        for rank in range(min(case.world_size, MAX_RANKS)):
            if rank not in logged:
                suspects.setdefault(rank, Culprit(rank))
    return suspects, logged


_SIGABRT = -6
_NOT_JOINED = frozenset({"torch-store-clients", "torch-store-lost"})
"""What ranks print at whose rendezvous another did not arrive."""


def could_not_connect(case: Case) -> list[Cause]:
    """Ranks that could not connect to the store, while others are connected to it and wait for them."""
    unconnected, connected = [], []
    for process in case.processes:
        names = {event.signature for event in waiting_events(case, process)}
        if "torch-client-socket-timeout" in names:
            unconnected.append(process)
        elif names & _NOT_JOINED:
            connected.append(process)
    ranks = {item.rank for item in (*unconnected, *connected)}
    if None in ranks or not unconnected or len(unconnected) > max(1, len(connected) // 2):
        return []
    if not any(event.values.get("joined") for item in connected for event in item.events):
        return []
    culprits = tuple(culprit_of(item) for item in unconnected)
    events = [e for item in unconnected for e in item.events if e.signature == "torch-client-socket-timeout"]
    target = next((f" {e.values['host_name']}:{e.values['port']}" for e in events if e.values.get("port")), "")
    who = count_ranks(culprit.rank for culprit in culprits if culprit.rank is not None)
    summary = f"{who} could not connect to the store{target}; {others_wait(len(connected))} there"
    proof = first_evidence([*events[:2], *(waiting_events(case, item)[0] for item in connected)])
    return [Cause("torch-client-socket-timeout", "not joined", "likely", culprits, summary, proof)]


def divergence(case: Case) -> list[Cause] | Undecidable:
    """In one communicator: the rank behind in sequence, else the one in another operation."""
    for group, members in sorted(_operations(case).items()):
        if len(members) < 2:
            continue
        verdict = _behind(case, group, members) or _minority(case, group, members)
        if verdict:
            return verdict
    return []


class _Operation:
    """The collective in which one process waits."""

    def __init__(self, process: Process, event: Event) -> None:
        self.process, self.event = process, event
        self.seq: int | None = None
        self.op = self.count = ""


def _operations(case: Case) -> dict[str, list[_Operation]]:
    """The last operation of each process in each communicator."""
    groups: dict[str, dict[int, _Operation]] = defaultdict(dict)
    unnamed: dict[int, set[str]] = defaultdict(set)
    for number, process in enumerate(case.processes):
        current: _Operation | None = None
        for event in process.events:
            values = event.values
            tag = values.get("tag", "")
            group = values.get("group", "") or (tag.partition("_")[2] if "_" in tag else "")
            has_operation = any(values.get(name) for name in ("seq", "op", "tag", "enqueued"))
            if not has_operation or case.role(event) == "evidence":
                continue
            current = groups[group].setdefault(number, _Operation(process, event))
            if not group and values.get("seq"):
                unnamed[number].add(values["seq"])
            for name in ("completed", "seq"):
                position = small_number(values.get(name, ""), 1 << 58)
                if position is not None and current.seq is None:
                    current.seq = position + (name == "completed")
            current.op = current.op or values.get("op", "") or (tag.partition("_")[0] if tag else "")
            current.count = current.count or values.get("count", "")
    if list(groups) == [""] and any(len(sequences) > 1 for sequences in unnamed.values()):
        return {}  # one rank at several numbers: they are of several communicators, which these lines do not name
    return _joined_groups(groups)


def _joined_groups(groups: dict[str, dict[int, _Operation]]) -> dict[str, list[_Operation]]:
    """Operations whose lines show no communicator belong to the only one of their process, or the only one there is."""
    for number, operation in list(groups.get("", {}).items()):
        of_process = [name for name in groups if name and number in groups[name]]
        if len(of_process) == 1:
            target = groups[of_process[0]][number]
            target.op, target.count = target.op or operation.op, target.count or operation.count
            target.seq = target.seq if target.seq is not None else operation.seq
        if of_process:
            del groups[""][number]
    if not groups.get("", {}):
        groups.pop("", None)
    names = [name for name in groups if name]
    if len(names) > 1:
        # Numbers of different communicators cannot be compared, and these lines show none.
        groups.pop("", None)
    if len(names) == 1 and "" in groups:
        for number, operation in groups.pop("").items():
            target = groups[names[0]].setdefault(number, operation)
            target.seq = target.seq if target.seq is not None else operation.seq
            target.count = target.count or operation.count
    return {name: list(members.values()) for name, members in groups.items()}


def _behind(case: Case, group: str, members: list[_Operation]) -> list[Cause]:
    sequences = [item for item in members if item.seq is not None]
    if len(sequences) < 2:
        return []
    smallest = min(item.seq or 0 for item in sequences)
    behind = [item for item in sequences if item.seq == smallest]
    if len(behind) == len(sequences) or len(behind) > len(sequences) // 2:
        return []
    culprits = tuple(culprit_of(item.process) for item in behind)
    ahead = max(item.seq or 0 for item in sequences)
    who = ", ".join(culprit.name for culprit in culprits[:4])
    summary = f"{who}: behind in sequence, at {smallest} where others are at {ahead}"
    events = first_evidence([*(item.event for item in behind), *(item.event for item in sequences)])
    return [Cause(behind[0].event.signature, "behind in sequence", "likely", culprits, summary, events)]


def _minority(case: Case, group: str, members: list[_Operation]) -> list[Cause] | Undecidable:
    for name, claim in (("op", "runs"), ("count", "has a count of")):
        values = [(getattr(item, name), item) for item in members if getattr(item, name)]
        counts = Counter(value for value, _ in values)
        if len(counts) < 2:
            continue
        (common, most), (_, second) = counts.most_common(2)
        if most == second:
            operations = ", ".join(f"{item.process.name} {claim} {value}" for value, item in values[:4])
            return Undecidable(
                f"two ends differ and no majority shows which is wrong: {operations}",
                ("the logs of the other ranks of this communicator",),
            )
        differing = [(value, item) for value, item in values if value != common]
        culprits = tuple(culprit_of(item.process) for _, item in differing)
        who = ", ".join(culprit.name for culprit in culprits[:4])
        summary = f"{who} {claim} {differing[0][0]} where {most} ranks have {common}"
        events = first_evidence([*(item.event for _, item in differing), *(item.event for item in members)])
        return [Cause(differing[0][1].event.signature, "minority", "likely", culprits, summary, events)]
    return []


def lateness(case: Case) -> list[Cause]:
    """All wait in one operation: who reports later than the timeout after the first came too late."""
    return _late_report(case) or _late_entry(case)


def _late_report(case: Case) -> list[Cause]:
    if not case.clocks_comparable:
        return []
    first = [(events[0], item) for item in case.processes if (events := waiting_events(case, item))]
    timed = sorted(
        ((event.time, event, item) for event, item in first if event.time is not None), key=lambda row: row[0]
    )
    if len(timed) < 2 or len(timed) < len(first):
        return []
    (start, earliest, _), (before, _, _) = timed[0], timed[-2]
    end, event, process = timed[-1]
    timeout = _timeout_of(case, earliest)
    if timeout is None or end - before <= timeout * 0.9 or end - start <= timeout * 0.9:
        return []
    culprit = culprit_of(process)
    lag = f"{end - start:.0f} s after the first, more than the timeout of {timeout:.0f} s"
    summary = f"{culprit.name} reports {lag}: it came too late"
    return [Cause(event.signature, "late", "likely", (culprit,), summary, first_evidence([earliest, event]))]


def _timeout_of(case: Case, event: Event) -> float | None:
    """Seconds that the waiting rank waited: from the line, else the setting that governs it."""
    values = event.values
    seconds, milliseconds = (small_number(values.get(name, ""), 1 << 58) for name in ("timeout_s", "timeout_ms"))
    if seconds is not None:
        return float(seconds)
    if milliseconds is not None:
        return milliseconds / 1000
    phase = case.signatures[event.signature].phase
    if event.signature.startswith(("ei0002", "hccl-task")):
        return case.timeouts.get("HCCL_EXEC_TIMEOUT", 300.0)
    return case.connect_timeout if phase in ("init", "connect") and "hccl" in _components(case, event) else None


def _components(case: Case, event: Event) -> tuple[str, ...]:
    return case.signatures[event.signature].components


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
        rows.sort(key=lambda row: row[0])
        if len(rows) < 2:
            continue
        (before, first, _), (last, event, process) = rows[-2], rows[-1]
        limit = case.timeouts.get("HCCL_CONNECT_TIMEOUT", 120.0)
        if last - before > limit:
            culprit = culprit_of(process)
            summary = (
                f"{culprit.name} entered the communicator {last - before:.0f} s after the others, timeout {limit:.0f} s"
            )
            return [Cause("late-rank-entry", "late", "likely", (culprit,), summary, first_evidence([first, event]))]
    return []


def gave_up_last(case: Case) -> list[Cause]:
    """gloo: all others report a timeout, and one only that its peers closed: it was busy elsewhere."""
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
    summary = f"{culprit.name} came back last and found its peers gone; the other {len(timed_out)} had timed out on it"
    return [Cause("gloo-conn-closed", "gave up last", confidence, (culprit,), summary, events)]


def known_ranks(case: Case) -> set[int]:
    """The ranks of the job, as far as logs, the launcher's report or the size of the world show them."""
    ranks = {process.rank for process in case.processes} | {
        block.rank for block in failure_blocks(case.reports, case.signatures)
    }
    shown = {rank for rank in ranks if rank is not None} | case.labels
    return shown | set(range(min(case.world_size or 0, MAX_RANKS)))


def silent_server(case: Case) -> list[Cause]:
    """HCCL's agents are connected and get no answer: the root-info server, where its host left no log."""
    requests: dict[str, list[Event]] = defaultdict(list)
    for process in case.processes:
        server = next((event.values["server"] for event in process.events if event.values.get("server")), "")
        requests[server] += [event for event in process.events if event.signature == "hccl-recv-timeout-firewall"][:1]
    servers = {server: events for server, events in requests.items() if events}
    server = next(iter(servers), "")
    if len(servers) != 1 or not server or server in {item.host for item in case.processes if item.events}:
        return []
    if case.unread:
        return []
    culprit = Culprit(host=server)
    summary = f"the root-info server on {culprit.name} did not answer: its process or one of its ranks is missing"
    events = first_evidence(servers[server])
    return [Cause("hccl-recv-timeout-firewall", "common target", "possible", (culprit,), summary, events)]


def common_target(case: Case) -> list[Cause]:
    """Link errors: the remote that most of them name; else both ends."""
    links = [(event, item) for item in case.processes for event in case.with_role(item, "link")]
    if not links:
        return []
    reporters: dict[Culprit, set[object]] = {}
    for event, item in links:
        if _peer(event):
            target = _process_with_address(case, _peer(event))
            reporters.setdefault(target, set()).add(_reporter(item, target))
    events = first_evidence(event for event, _ in links)
    signature = links[0][0].signature
    ranked = sorted(((len(members), target) for target, members in reporters.items()), key=lambda row: -row[0])
    if ranked and ranked[0][0] > 1 and (len(ranked) == 1 or ranked[0][0] > 2 * ranked[1][0]):
        culprit = ranked[0][1]
        summary = f"most link errors name {culprit.name}"
        return [Cause(signature, "common target", "likely", (culprit,), summary, events)]
    ends = {culprit_of(item) for _, item in links} | set(reporters)
    culprits = tuple(sorted(ends, key=lambda end: (end.rank is None, end.rank or 0, end.host, end.device or 0)))[:8]
    if len(culprits) == 1:
        summary = f"a link failed; one end is {culprits[0].name}, and no line names the other"
    else:
        summary = f"a link failed; its ends are {', '.join(end.name for end in culprits[:4])}"
    return [Cause(signature, "both ends", "possible", culprits, summary, events)]


def _reporter(process: Process, target: Culprit) -> object:
    """Who reports a link: of a target on another host the host, all of whose ranks share its network."""
    if process.host and target.host and process.host != target.host:
        return process.host
    return process.log, process.pid, process.rank, process.device


def _peer(event: Event) -> str:
    return event.values.get("peer_address") or event.values.get("peer_host") or event.values.get("peer_endpoint", "")


def _process_with_address(case: Case, address: str) -> Culprit:
    process = next((item for item in case.processes if address and address in (item.address, item.host)), None)
    return culprit_of(process) if process else Culprit(host=re.sub(r"<\d+>$", "", address))
