"""Rule over the fingerprints of collectives that torch compares with TORCH_DISTRIBUTED_DEBUG=DETAIL.

Source: pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp: each rank prints its own collective and
that of one rank that differs from it. Of the latter it prints a wrong name and number where one of both has no tensor,
as in a barrier; a comma between the two tells that it is whole.
"""

from __future__ import annotations

from collections import Counter

from doctor.diagnose.case import Case, Process
from doctor.diagnose.cause import Cause, Confidence, Culprit, Undecidable, culprit_of, first_evidence
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.rules.collective_calls import one_of_two
from doctor.diagnose.rules.named import count_ranks

SIGNATURE = "torch-collective-mismatch"
_ASPECTS = (("op", "runs {}"), ("seq", "is at collective {}"), ("shape", "gives a tensor of shape [{}]"))
"""What is compared, in this order, and how it is said."""


def different_fingerprints(case: Case) -> list[Cause] | Undecidable:
    """The rank whose collective differs from that of all others; of two, either may be wrong."""
    prints, proof = _fingerprints(case)
    for aspect, claim in _ASPECTS:
        values = {rank: fields[aspect] for rank, fields in prints.items() if fields.get(aspect) is not None}
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        (common, most), (_, second) = counts.most_common(2)
        listed = ", ".join(f"rank {rank} {claim.format(value)}" for rank, value in sorted(values.items())[:4])
        if most > second:
            ranks = sorted(rank for rank, value in values.items() if value != common)
            confidence: Confidence = "likely" if len(counts) == 2 else "possible"
            summary = f"{count_ranks(ranks)}: another collective than the other {most} ranks: {listed}"
            culprits = tuple(_culprit(case, rank) for rank in ranks)
            return [Cause(SIGNATURE, "minority", confidence, culprits, summary, first_evidence(proof))]
        if len(values) == 2:
            first, last = sorted(values)
            pair = _culprit(case, first), _culprit(case, last)
            return [one_of_two(SIGNATURE, pair, f"{listed}; nothing shows which is wrong", first_evidence(proof))]
        needed = ("the logs of the other ranks",)
        return Undecidable(f"collectives differ and no majority shows which is wrong: {listed}", needed)
    return []


def _fingerprints(case: Case) -> tuple[dict[int, dict[str, str | None]], list[Event]]:
    """The last collective of each rank: by its own line, else as another prints it, as far as that is whole."""
    by_itself: dict[int, dict[str, str | None]] = {}
    by_others: dict[int, dict[str, str | None]] = {}
    proof: list[Event] = []
    for process in case.processes:
        for event in process.events:
            values = event.values
            rank = _rank(process, event)
            if event.signature != SIGNATURE or rank is None or rank in by_itself:
                continue
            proof.append(event)
            by_itself[rank] = {aspect: values.get(aspect) for aspect, _ in _ASPECTS}
            other = small_number(values.get("other_rank", ""))
            if other is not None and values.get("other_whole"):
                by_others[other] = {aspect: values.get(f"other_{aspect}") for aspect, _ in _ASPECTS}
    return {**by_others, **by_itself}, proof


def _rank(process: Process, event: Event) -> int | None:
    rank = small_number(event.values.get("rank", ""))
    return rank if rank is not None else process.rank


def _culprit(case: Case, rank: int) -> Culprit:
    process = case.process_of_rank(rank)
    return culprit_of(process) if process else Culprit(rank)
