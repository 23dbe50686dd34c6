"""Failures of ranks whose interpreters differ from the others in what all must have alike. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from doctor.analysis.collectives.calls import Call, differing
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled, joined
from doctor.facts.smoke.first_stages import TorchImported
from doctor.job.variables import EQUAL_EVERYWHERE
from doctor.smoke.hang.standstill import blame
from doctor.smoke.model import Failure, SmokePlan
from doctor.smoke.results.environments import alike, unlike_interpreters
from doctor.smoke.run.progress import StageProgress

CRASH = re.compile(r"signal (?:4|6|7|8|11)\b")
"""Of native code, as of bytes that it does not expect."""
CRASHING = ("TORCH_GLOO_LAZY_INIT", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER")
"""Variables for which gloo crashes on other hosts than that which sets them: measured with torch 2.13."""
FINGERPRINT = re.compile(
    r"Rank (\d{1,7}) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(\d{1,12}),? ?)?OpType=(\w{1,40})(?:, TensorShape=\[([\d, ]{0,80})\])?"
)
"""Of torch, ProcessGroupWrapper.cpp."""


def with_unlike(failure: Failure, plan: SmokePlan, progress: StageProgress) -> Failure:
    """Bytes that do not arrive between ranks of unlike interpreters: those that differ from most are the cause.

    Not where a connection was found to be cut: then that is why.
    """
    ranks, sentence = unlike(plan, progress)
    if not ranks or failure.links:
        return failure
    return failure.blaming(ranks, evidence=(sentence, *failure.evidence))


def crashed_by_unlike(failure: Failure, plan: SmokePlan, progress: StageProgress) -> Failure:
    """Ranks that crash as they meet ranks of unlike interpreters, whose bytes they may not understand.

    Where all others crashed, or gloo is known to crash by what differs, those that differ are the cause; where one host
    alone or some did for another reason, it may be either. Of a host whose ranks differ, each counts for itself.
    """
    crashing, sentence = unlike(plan, progress, CRASHING)
    ranks, sentence = (crashing, sentence) if crashing else unlike(plan, progress)
    mixed = {place.host for place in plan.places if place.rank not in ranks}.intersection(map(plan.host_of, ranks))
    ends = {place.rank: place.rank if place.host in mixed else place.host for place in plan.places}
    others = {end for rank, end in ends.items() if rank not in ranks}
    crashed = {ends[rank] for rank in failure.culprit_ranks}
    if not (ranks and crashed & others) or failure.stage != "rendezvous" or not CRASH.match(failure.text):
        return failure
    is_cause = bool(crashing) or (others <= crashed and len(others) > 1)
    text = joined("; ", (filled("{0}: {1}", rank_names(failure.culprit_ranks), failure.text), sentence))
    either = [rank for rank, end in ends.items() if rank in ranks or end in crashed]
    return blame(failure, "never-joined", ranks if is_cause else either, text)


def compared_by_torch(failure: Failure, progress: StageProgress) -> Failure:
    """Ranks that ended as torch itself found their calls different: those of another call than most, or all at a tie.

    With TORCH_DISTRIBUTED_DEBUG=DETAIL each of them says what it called, and what another one did.
    """
    calls = {
        int(rank): Call(int(rank), int(number or 0), operation, size)
        for error in progress.errors.values()
        for rank, number, operation, size in FINGERPRINT.findall(error[:2000])
    }
    parts_by_aspect = differing(
        [call for rank, call in calls.items() if rank < progress.plan.world], ("operation", "size")
    )
    if not parts_by_aspect or not FINGERPRINT.search(failure.text):
        return failure
    texts = {rank: f"{call.operation} #{call.sequence} [{call.size}]".lower() for rank, call in calls.items()}
    failure = msgspec.structs.replace(failure, calls={**failure.calls, **texts})
    return blame(failure, "mismatch", [call.member for call in parts_by_aspect[1].differing], failure.text)


def ranks_of(plan: SmokePlan, hosts: Collection[str]) -> list[int]:
    """The ranks on these hosts."""
    return [place.rank for place in plan.places if place.host in hosts]


def unlike(
    plan: SmokePlan, progress: StageProgress, names: Sequence[str] = ("torch", *EQUAL_EVERYWHERE)
) -> tuple[list[int], str]:
    """The ranks that differ from most, and a sentence of it, by what each said when it had imported torch.

    Hosts vote; of a host whose ranks a launcher has started otherwise than each other, each rank does.
    """
    imported: dict[str, list[TorchImported]] = {}
    ranks: dict[str, Sequence[int]] = {}
    for host, events in progress.events.items():
        of_host = [event for event in events if isinstance(event, TorchImported)]
        differ = len({tuple(alike(name, event) for name in names) for event in of_host}) > 1
        for event in of_host:
            place = filled("{0} (rank {1})", host, event.rank) if differ and event.rank >= 0 else host
            imported.setdefault(place, []).append(event)
            ranks[place] = plan.ranks_by_host.get(host, ()) if place == host else [event.rank]
    places, sentence = unlike_interpreters(imported, plan.backend, names)
    return [rank for place in places for rank in ranks[place]], sentence
