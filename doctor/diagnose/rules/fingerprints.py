"""Rules over the fingerprints of collectives that torch compares with TORCH_DISTRIBUTED_DEBUG=DETAIL.

Source: pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp: each rank prints its own collective and
that of one rank that differs from it. Of the latter it prints a wrong name and number where one of both has no tensor,
as in a barrier; a comma between the two tells that it is whole.

Where all ranks are in one collective that none has ended, no rank holds up the others, as far as they know.
"""

from __future__ import annotations

from collections.abc import Iterator

from doctor.analysis.collectives.calls import Aspect, Call, common_call, differing
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Confidence, Undecidable, culprit_of_rank, first_evidence, one_of_two
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.process import Process
from doctor.diagnose.rules.collective_calls import world
from doctor.diagnose.rules.named import count_ranks
from doctor.diagnose.rules.recorder import recorded_calls
from doctor.diagnose.rules.waiting import last_calls
from doctor.engine.texts import filled, joined

SIGNATURE = "torch-collective-mismatch"
_CLAIMS: dict[Aspect, str] = {
    "operation": "runs {0}",
    "sequence": "is at collective {0}",
    "size": "gives a tensor of shape [{0}]",
}
"""What is compared, in this order, and how it is said."""


def different_fingerprints(case: Case) -> list[Cause] | Undecidable:
    """The rank whose collective differs from that of all others; of two, either may be wrong."""
    calls, proof = _fingerprints(case)
    result = differing(calls, _CLAIMS)
    if result is None:
        return _unlike(case, calls, proof)
    aspect, parts = result
    claim = _CLAIMS[aspect]
    compared = sorted((*parts.differing, *parts.agreeing), key=lambda call: call.member)
    listed = joined(
        ", ", (filled("rank {0} {1}", call.member, filled(claim, call.value(aspect))) for call in compared[:4])
    )
    if not parts.tie:
        culprits = tuple(culprit_of_rank(case, call.member) for call in parts.differing)
        confidence: Confidence = "likely" if parts.kinds == 2 else "possible"
        who, most = count_ranks(call.member for call in parts.differing), len(parts.agreeing)
        summary = filled("{0}: another collective than the other {1} ranks: {2}", who, most, listed)
        return [Cause(SIGNATURE, "minority", confidence, culprits, summary, first_evidence(proof))]
    if len(compared) == 2:
        first, last = (culprit_of_rank(case, call.member) for call in compared)
        claim = filled("{0}; nothing shows which is wrong", listed)
        return [one_of_two(SIGNATURE, (first, last), claim, first_evidence(proof))]
    needed = ("the logs of the other ranks",)
    return Undecidable(filled("collectives differ and no majority shows which is wrong: {0}", listed), needed)


def _unlike(case: Case, calls: list[Call[int]], proof: list[Event]) -> list[Cause]:
    """Of one rank alone that speaks: it and the one that it finds in another collective, whose name it cannot print."""
    numbers = {small_number(event.values.get("other_rank", "")) for event in proof}
    others = [culprit_of_rank(case, rank) for rank in numbers if rank is not None]
    if len(calls) != 1 or len(others) != 1:
        return []
    culprit, call = culprit_of_rank(case, calls[0].member), calls[0].operation
    claim = filled(
        "{0} runs {1}, {2} another collective; nothing shows which is wrong", culprit.name, call, others[0].name
    )
    return [one_of_two(SIGNATURE, (culprit, others[0]), claim, first_evidence(proof))]


def _fingerprints(case: Case) -> tuple[list[Call[int]], list[Event]]:
    """The last collective of each rank: by its own line, else as another prints it, as far as that is whole."""
    by_itself: dict[int, Call[int]] = {}
    by_others: dict[int, Call[int]] = {}
    proof: list[Event] = []
    for process in case.processes:
        for event in process.events:
            rank = _rank(process, event)
            if event.signature != SIGNATURE or rank is None or rank in by_itself:
                continue
            proof.append(event)
            by_itself[rank] = _call(rank, event, ("op", "seq", "shape", "dtype"))
            other = small_number(event.values.get("other_rank", ""))
            if other is not None and event.values.get("other_whole"):
                by_others[other] = _call(other, event, ("other_op", "other_seq", "other_shape", "other_dtype"))
    return [call for _, call in sorted({**by_others, **by_itself}.items())], proof


def _call(rank: int, event: Event, names: tuple[str, str, str, str]) -> Call[int]:
    """``names``: of the rank's values. The type of its elements is named where the two differ."""
    operation, sequence, shape, kind = map(event.values.get, names)
    kinds = {event.values.get("dtype"), event.values.get("other_dtype")}
    if operation and None not in kinds and len(kinds) == 2:
        operation = filled("{0} of {1}", operation, kind)
    return Call(rank, small_number(sequence or "", 1 << 58), operation, shape)


def _rank(process: Process, event: Event) -> int | None:
    rank = small_number(event.values.get("rank", ""))
    return rank if rank is not None else process.rank


def all_in_one_call(case: Case) -> Undecidable | None:
    """The verdict where all ranks have entered the same collective, of the same size, and none has ended it.

    A call is entered when its kernel is queued: whether that runs, or waits behind another kernel of its device, or for
    a message, no rank writes down. So one of the devices or links may be the cause, and the logs are the same for each.
    """
    call = next((call for calls, size in _calls(case) if (call := common_call(calls, size))), None)
    if call is None:
        return None
    reason = filled(
        "all ranks that the logs show are in {0}, collective {1}, and none has ended it: a device, or the network"
        " between them, does not do its part, and which one no rank knows",
        call.operation,
        call.sequence,
    )
    needed = (
        "the state of the devices and of the network between them: doctor check and doctor net on the hosts of the job",
        "which device works and which waits, when it hangs again: doctor watch --attach on the hosts of the job",
    )
    return Undecidable(reason, needed)


def _calls(case: Case) -> Iterator[tuple[list[Call], int]]:  # type: ignore[type-arg]
    """What dumps show, then what lines show; with the number of ranks that have to be in the call."""
    yield from recorded_calls(case)
    for _, calls in sorted(last_calls(case).items()):
        yield calls, world(case) or 0
