"""The findings of checks that compare one rank's speed with its peers'. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from doctor.analysis.outliers.peers import Straggler
from doctor.engine.quantities import seconds_text
from doctor.engine.result import Finding
from doctor.engine.texts import joined
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import ACCELERATORS, describe_ranks, pressure_note
from doctor.smoke.speed.cpu_quotas import held_back_ranks
from doctor.smoke.speed.rank_speeds import by_host, percent
from doctor.smoke.speed.soak_drift import SlowPart

HELD_TEMPLATES = {
    "shown": "{who}: the CPU quota of the control group was used up in {observed} of its periods, a delay of "
    "{seconds}; expected no more than of the median rank, {norm}",
    "waited": "{who} waited for a CPU for {observed} of the time, although CPUs had nothing to do: by an affinity "
    "to few CPUs, or by a CPU quota that the host does not show; the median rank: {norm}",
    "inferred": "{who} was stopped for {observed} of a loop without a call, each time to the end of the same 100 ms: "
    "by a CPU quota that the host does not show; the median rank: {norm}",
}


def slow_rank_findings(run: SmokeRun, slow_by_rank: Mapping[int, Straggler], template: str) -> Iterator[Finding]:
    """One finding for each host with slow ranks; ``template`` takes who, ratio, seconds, norm and confidence."""
    for host, ranks, all_ranks in by_host(run, slow_by_rank):
        yield _finding(run, template, host, {rank: slow_by_rank[rank] for rank in ranks}, whole=all_ranks)


def _finding(run: SmokeRun, template: str, host: str, slow: Mapping[int, Straggler], **more: object) -> Finding:
    """Of the slow ranks of one host."""
    ranks, worst = list(slow), max(slow.values(), key=lambda late: late.ratio)
    return Finding(
        joined("", (template, "{pressure}")),
        hosts=[host],
        accelerator=ACCELERATORS[run.plan.backend],
        pressure=pressure_note(run, [host]),
        who=describe_ranks(run, ranks),
        ranks=ranks,
        ratio=round(worst.ratio, 2),
        seconds=seconds_text(worst.seconds),
        norm=seconds_text(worst.peer_seconds),
        confidence=percent(min(late.confidence for late in slow.values())),
        peers=worst.peers,
        **more,
    )


def quota_findings(run: SmokeRun, named: Collection[int]) -> Iterator[Finding]:
    """One finding for each host with ranks that a CPU quota holds back, and that are not ``named`` already."""
    held = {rank: share for rank, share in held_back_ranks(run.cpu_quotas).items() if rank not in named}
    for host, ranks, all_ranks in by_host(run, held):
        worst = max(ranks, key=lambda rank: run.cpu_quotas[rank].most)
        quota = run.cpu_quotas[worst]
        template = HELD_TEMPLATES["inferred" if quota.is_inferred else "shown" if quota.periods > 0 else "waited"]
        yield Finding(
            template,
            hosts=[host],
            accelerator=ACCELERATORS[run.plan.backend],
            who=describe_ranks(run, ranks),
            ranks=ranks,
            observed=f"{quota.lost if quota.is_inferred else quota.share or quota.waited:.0%}",
            seconds=seconds_text(quota.seconds),
            norm=f"{held[worst]:.0%}",
            whole=all_ranks,
        )


def soak_findings(run: SmokeRun, parts: Mapping[int, SlowPart], named: Collection[int]) -> Iterator[Finding]:
    """One finding for each host with ranks that were slow in a part of the soak, and are not ``named`` already."""
    slow = {rank: part for rank, part in parts.items() if rank not in named and 0 <= rank < run.plan.world}
    for host, ranks, all_ranks in by_host(run, slow):
        worst = max((slow[rank] for rank in ranks), key=lambda part: part.slow.ratio)
        template = (
            "{who} took {ratio} times the median time of the peers for the same computation from {start} to {end} of "
            "the repetition: {seconds} against {norm} (confidence {confidence})"
        )
        when = {"start": f"{worst.start:.0f} s", "end": f"{worst.end:.0f} s"}
        yield _finding(run, template, host, {rank: slow[rank].slow for rank in ranks}, **when, whole=all_ranks)
