"""The findings of checks that compare one rank's speed with its peers'. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from doctor.engine.result import Finding
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import ACCELERATORS, describe_ranks, pressure_note
from doctor.smoke.speed.rank_speeds import by_host, duration, percent
from doctor.smoke.speed.stragglers import Straggler


def slow_rank_findings(run: SmokeRun, slow_by_rank: Mapping[int, Straggler], template: str) -> Iterator[Finding]:
    """One finding for each host with slow ranks; ``template`` takes who, ratio, seconds, norm and confidence."""
    for host, some, all_ranks in by_host(run, slow_by_rank):
        worst = max((slow_by_rank[rank] for rank in some), key=lambda slow: slow.ratio)
        yield Finding(
            template + "{pressure}",
            hosts=[host],
            accelerator=ACCELERATORS[run.plan.backend],
            pressure=pressure_note(run, [host]),
            who=describe_ranks(run, some),
            ranks=some,
            ratio=round(worst.ratio, 2),
            seconds=duration(worst.seconds),
            norm=duration(worst.peer_seconds),
            confidence=percent(min(slow_by_rank[rank].confidence for rank in some)),
            peers=worst.peers,
            whole=all_ranks,
        )
