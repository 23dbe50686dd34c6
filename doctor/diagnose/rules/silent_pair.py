"""Rules over ranks without an error of which a launcher ended the innocent before they could report: one of two."""

from __future__ import annotations

from doctor.diagnose.case import Case, Process
from doctor.diagnose.cause import Cause, Culprit, culprit_of, first_evidence
from doctor.diagnose.events import Event
from doctor.diagnose.launcher_reports import terminated_ranks
from doctor.diagnose.rules.collective_calls import one_of_two
from doctor.diagnose.rules.named import count_ranks
from doctor.diagnose.rules.waiting import known_ranks, waiting_events

_SIGNATURE = "rank-silent"
_WAITS = frozenset({"gloo-timeout", "gloo-conn-closed", "gloo-read-error", "torch-store-clients", "torch-store-lost"})


def silent_pair(case: Case) -> list[Cause]:
    """Two ranks report nothing, and the launcher ended at least one of them: the other is the culprit."""
    waiting = _waiting(case)
    if waiting is None or any(event.signature == "spawn-ended-others" for event in case.reports) or case.unread:
        return []
    silent = sorted(known_ranks(case) - {item.rank for item in waiting})
    logged = {item.rank for item in case.processes} | case.labels | terminated_ranks(case.reports, case.signatures)
    ended_by_launcher = bool(terminated_ranks(case.reports, case.signatures) & set(silent)) or any(
        event.signature in ("mpi-first-exit", "srun-ends-step") for event in case.reports
    )
    if len(silent) != 2 or not ended_by_launcher or not set(silent) <= logged:
        return []
    if any(case.is_incomplete(item) for item in case.processes):
        return []
    claim = f"{count_ranks(silent)} report nothing while others wait: one of them was ended before it could"
    return [one_of_two(_SIGNATURE, _pair(case, silent), claim, _proof(case, waiting))]


def spawned(case: Case) -> list[Cause]:
    """torch.multiprocessing prints the error of one process only, and names those that it ended by their pids.

    A process that had ended before is neither of these.
    """
    waiting = _waiting(case)
    ended = {e.values.get("ended_pid"): e.file for e in case.reports if e.signature == "spawn-ended-others"}
    raised = [event for event in case.reports if event.signature == "spawned-process-raised"]
    if not raised or waiting is None or len(waiting) != 1 or waiting[0].rank is None or case.unread:
        return []
    reporter = waiting[0].rank
    had_ended = all(case.has_trait(event, "peer-ended") for event in waiting_events(case, waiting[0]))
    waits = {event.signature for event in waiting_events(case, waiting[0])} <= _WAITS
    size = max(case.world_size or 0, max(case.labels, default=-1) + 1)
    others = [rank for rank in range(min(size, 3)) if rank != reporter]
    claim = f"torch.multiprocessing shows the error of rank {reporter} alone, which waited for another; "
    proof = _proof(case, waiting)
    if not 1 < size < 4 or len(ended) >= size or reporter >= size or not waits:
        return []
    condition = "had ended" if had_ended else "did not answer"
    claim += f"{' or '.join(f'rank {rank}' for rank in others)} {condition}"
    if len(others) == 1 and not had_ended and not ended:
        claim += ": it ended by itself, as one does that waited too"
        return [one_of_two(_SIGNATURE, _pair(case, [reporter, *others]), claim, proof)]
    if len(others) == 2:
        return [one_of_two(_SIGNATURE, _pair(case, others), claim, proof)]
    return [Cause(_SIGNATURE, "silence", "possible", (_culprit(case, others[0]),), claim, proof)]


def _waiting(case: Case) -> list[Process] | None:
    """The processes that only waited; None where one has no rank, or nobody did."""
    waiting = [item for item in case.processes if waiting_events(case, item)]
    ranks = {item.rank for item in waiting}
    return None if not waiting or None in ranks or len(ranks) < len(waiting) else waiting


def _proof(case: Case, waiting: list[Process]) -> tuple[Event, ...]:
    return first_evidence(waiting_events(case, item)[0] for item in waiting)


def _culprit(case: Case, rank: int) -> Culprit:
    process = case.process_of_rank(rank)
    return culprit_of(process) if process else Culprit(rank)


def _pair(case: Case, ranks: list[int]) -> tuple[Culprit, Culprit]:
    return _culprit(case, ranks[0]), _culprit(case, ranks[1])
