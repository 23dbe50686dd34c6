"""Rules over ranks without an error or any log, while others wait; of two of them, either may be the culprit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from doctor.analysis.collectives.calls import few_silent
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    Cause,
    Confidence,
    Culprit,
    Undecidable,
    culprit_of,
    culprit_of_rank,
    first_evidence,
    one_of_two,
    others_wait,
)
from doctor.diagnose.events import Event
from doctor.diagnose.launcher_reports import ended_by_agent, ended_well_ranks, terminated_ranks
from doctor.diagnose.process import Process
from doctor.diagnose.rules.named import count_ranks
from doctor.diagnose.signature import ERROR_ROLES
from doctor.engine.texts import enumerated, filled, joined

MAX_RANKS = 100_000
_SIGABRT = -6
_SIGNATURE = "rank-silent"
_PEER_LOST = "python-peer-lost"
_OWN_SOCKET = re.compile(
    r"(?<![\w.'\"])(?:ConnectionReset|ConnectionAborted|ConnectionRefused|BrokenPipe)Error: \[Errno \d{2,3}\] "
)
"""Of a connection that the program opened itself. Servers raise "Cannot write to closing transport", without a number,
over a client that has gone."""
_ERRORS = (*ERROR_ROLES, "wrapper")
_WAITS = frozenset({"gloo-timeout", "gloo-conn-closed", "gloo-read-error", "torch-store-clients", "torch-store-lost"})


def silence(case: Case) -> list[Cause] | Undecidable:
    """Ranks without an error, or without any log, while the others wait; not when they are the larger part."""
    waiting = _waiting(case)
    if waiting is None or case.has_report("spawn-ended-others", "spawned-process-raised"):
        return []  # torch.multiprocessing prints the error of one rank only
    suspects, without_log = _silent_ranks(case)
    ended_by_launcher = terminated_ranks(case.reports)
    if _peers_had_ended(case, waiting):
        suspects = {rank: culprit for rank, culprit in suspects.items() if rank not in ended_by_launcher}
    if not few_silent(suspects, len(waiting)):
        return []
    ranks = sorted(suspects)
    if not_read := _not_read(case, ranks):
        reason = filled("{0} may have reported an error in logs that could not be read", count_ranks(not_read))
        return Undecidable(reason, tuple(case.unread[:8]) or ("the rest of the logs that were read only in part",))
    condition = "left no log" if without_log >= set(ranks) else "reports no error: it hung, was killed, or ended early"
    if len(ranks) > 1 and not without_log & set(ranks):
        condition = "report no error: they hung, were killed, or ended early"
    summary = filled("{0} {1}, while {2}", count_ranks(ranks), condition, others_wait(len(waiting)))
    # A rank that the launcher ended after the first timeout may have been about to report its own.
    ended = set(ranks) <= ended_by_launcher or _launcher_ends_all(case)
    confidence: Confidence = "possible" if ended and len(waiting) == 1 else "likely"
    culprits = tuple(suspects[rank] for rank in ranks)
    return [Cause(_SIGNATURE, "silence", confidence, culprits, summary, _proof(case, waiting))]


def own_connection(case: Case) -> list[Cause]:
    """One rank reports a socket of Python's, over which no ranks reach each other, and no later than the others report
    that they lost a rank. Clients of HTTP, as of a rollout server, raise exceptions of their own behind that of the
    socket, and whom these wait for is another process of the job.
    """
    waiting = _waiting(case)
    if waiting is None or case.unread or known_ranks(case) - {item.rank for item in waiting}:
        return []
    own = [item for item in waiting if all(map(_OWN_SOCKET.search, (e.text for e in case.with_role(item, *_ERRORS))))]
    lost = [case.waits(item)[0] for item in waiting if item not in own]
    if len(own) != 1 or not lost or any(event.signature == _PEER_LOST for event in lost):
        return []
    event = case.waits(own[0])[0]
    times = [item.time for item in lost if item.time is not None and not item.inferred_time]
    if event.time is not None and times and event.time > min(times):
        return []
    culprit = culprit_of(own[0])
    claim = filled(
        "{0} lost a connection of its own, to what is no rank, while {1}", culprit.name, others_wait(len(lost))
    )
    return [Cause(_PEER_LOST, "minority", "likely", (culprit,), claim, first_evidence([event, *lost]))]


def _not_read(case: Case, ranks: Sequence[int]) -> list[int]:
    """Of these ranks those that may have reported an error in what was not read."""
    partly: set[int | None] = {rank for file in case.files if file.incomplete for rank in file.labels}
    partly |= {item.rank for item in case.processes if case.is_incomplete(item)}
    logged = {item.rank for item in case.processes}
    return [rank for rank in ranks if rank in partly or (case.unread and rank not in logged)]


def _silent_ranks(case: Case) -> tuple[dict[int, Culprit], set[int]]:
    """The ranks of the job that report no waiting; and those of them that neither a log nor a launcher shows."""
    ranks = {item.rank: item for item in case.processes if item.rank is not None}
    suspects = {
        rank: culprit_of(item)
        for rank, item in ranks.items()
        if not case.with_role(item, *_ERRORS)
        and not any(case.signatures[event.signature].decides == "job" for event in item.events)
    }
    blocks = case.failure_blocks
    if case.aborts_on_others:  # the watchdog of NCCL ended it over the same timeout
        blocks = tuple(block for block in blocks if block.exit_code != _SIGABRT)
    hosts = {block.rank: block.host for block in blocks if block.rank is not None}
    hosts |= {rank: block.host for rank, block in ended_well_ranks(case.reports).items()}
    hosts |= dict.fromkeys(case.labels, "")
    suspects |= {rank: Culprit(rank, host) for rank, host in hosts.items() if rank not in ranks}
    unseen = set(range(min(case.world_size or 0, MAX_RANKS))) - ranks.keys() - suspects.keys()
    return suspects | {rank: Culprit(rank) for rank in unseen}, unseen


def silent_pair(case: Case) -> list[Cause]:
    """Two ranks report nothing, and the launcher ended at least one of them: the other is the culprit."""
    waiting = _waiting(case)
    if waiting is None or case.has_report("spawn-ended-others") or case.unread:
        return []
    silent = sorted(known_ranks(case) - {item.rank for item in waiting})
    logged = {item.rank for item in case.processes} | case.labels | terminated_ranks(case.reports)
    ended_by_launcher = bool(terminated_ranks(case.reports) & set(silent)) or _launcher_ends_all(case)
    if len(silent) != 2 or not ended_by_launcher or not set(silent) <= logged:
        return []
    if any(case.is_incomplete(item) for item in case.processes):
        return []
    claim = filled("{0} report nothing while others wait: one of them was ended before it could", count_ranks(silent))
    return [one_of_two(_SIGNATURE, _pair(case, silent), claim, _proof(case, waiting))]


def absent_ranks(case: Case) -> list[Cause]:
    """Ranks start at 0: those below the largest that the logs show exist as well, and few may be silent."""
    waiting = _waiting(case)
    if waiting is None or case.world_size or case.unread or case.has_report("spawn-ended-others"):
        return []
    present = known_ranks(case)
    absent = sorted(set(range(max(present))) - present) if max(present) < 2 * len(present) else []
    if _peers_had_ended(case, waiting) and len(absent) <= _alive_without_label(case):
        return []
    if len(waiting) < 2 or not few_silent(absent, len(waiting)):
        return []
    culprits = tuple(culprit_of_rank(case, rank) for rank in absent)
    summary = filled("the logs show nothing of {0}, while {1}", count_ranks(absent), others_wait(len(waiting)))
    return [Cause(_SIGNATURE, "silence", "possible", culprits, summary, _proof(case, waiting))]


def _peers_had_ended(case: Case, waiting: Sequence[Process]) -> bool:
    """A process had ended before these reported it: none that a launcher ended later was the first."""
    return all(case.has_trait(case.waits(item)[0], "peer-ended") for item in waiting)


def _alive_without_label(case: Case) -> int:
    """How many processes torchrun ended while they lived, beyond the ranks that its files show."""
    labels = Counter(file for item in case.processes if item.rank is not None for file in item.files)
    files = {event.file for event in case.reports}
    return sum(max(len(ended_by_agent(case.reports, file)) - labels[file], 0) for file in files)


def spawned(case: Case) -> list[Cause]:
    """torch.multiprocessing prints the error of one process only, and names those that it ended by their pids.

    A process that had ended before is neither of these.
    """
    waiting = _waiting(case)
    ended = {e.values.get("ended_pid"): e.file for e in case.reports if e.signature == "spawn-ended-others"}
    if (
        not case.has_report("spawned-process-raised")
        or waiting is None
        or len(waiting) != 1
        or waiting[0].rank is None
        or case.unread
    ):
        return []
    reporter = waiting[0].rank
    had_ended = _peers_had_ended(case, waiting)
    waits = {event.signature for event in case.waits(waiting[0])} <= _WAITS
    size = max(case.world_size or 0, max(case.labels, default=-1) + 1)
    others = [rank for rank in range(min(size, 3)) if rank != reporter]
    claim = filled("torch.multiprocessing shows the error of rank {0} alone, which waited for another; ", reporter)
    proof = _proof(case, waiting)
    if not 1 < size < 4 or len(ended) >= size or reporter >= size or not waits:
        return []
    condition = "had ended" if had_ended else "did not answer"
    names = enumerated((f"rank {rank}" for rank in others), " or ")
    claim = joined("", (claim, filled("{0} {1}", names, condition)))
    if len(others) == 1 and not had_ended and not ended:
        claim = joined("", (claim, ": it ended by itself, as one does that waited too"))
        return [one_of_two(_SIGNATURE, _pair(case, [reporter, *others]), claim, proof)]
    if len(others) == 2:
        return [one_of_two(_SIGNATURE, _pair(case, others), claim, proof)]
    return [Cause(_SIGNATURE, "silence", "possible", (culprit_of_rank(case, others[0]),), claim, proof)]


def _pair(case: Case, ranks: list[int]) -> tuple[Culprit, Culprit]:
    return culprit_of_rank(case, ranks[0]), culprit_of_rank(case, ranks[1])


def _waiting(case: Case) -> list[Process] | None:
    """The processes that only waited; None where one has no rank, or no process waited."""
    waiting = [item for item in case.processes if case.waits(item)]
    return waiting if waiting and None not in {item.rank for item in waiting} else None


def _proof(case: Case, waiting: list[Process]) -> tuple[Event, ...]:
    return first_evidence(case.waits(item)[0] for item in waiting)


def _launcher_ends_all(case: Case) -> bool:
    """A launcher ended all ranks when the first ended."""
    return case.has_report("mpi-first-exit", "srun-ends-step")


def known_ranks(case: Case) -> set[int]:
    """The ranks of the job, as far as logs, the launcher's report or the size of the world show them."""
    ranks = {process.rank for process in case.processes} | {block.rank for block in case.failure_blocks}
    numbers = {rank for rank in ranks if rank is not None} | case.labels
    return numbers | set(range(min(case.world_size or 0, MAX_RANKS)))


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
    summary = filled(
        "the root-info server on {0} did not answer: its process or one of its ranks is missing", culprit.name
    )
    events = first_evidence(servers[server])
    return [Cause("hccl-recv-timeout-firewall", "common target", "possible", (culprit,), summary, events)]
