"""Random numbers drawn by the data loaders' workers: the same inside one model, something else for other data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doctor.analysis.values.splits import format_ranges, names_held_alike, split_by_name
from doctor.engine.result import Finding
from doctor.engine.texts import filled
from doctor.facts.smoke.further_stages import LoaderResult
from doctor.smoke.model import SmokePlan
from doctor.smoke.numerics.defect import describe_placement, describe_ranks
from doctor.smoke.numerics.layout_trace import LayoutTrace, build_trace


def loader_findings(plan: SmokePlan, loaded: Mapping[int, LoaderResult]) -> Iterator[Finding]:
    """Findings on all loaders that came to their end."""
    number = min((event.layout for event in loaded.values()), default=0)
    trace = build_trace(plan, number)
    drawn = {
        rank: {name: value for name, value in event.digests.items() if value is not None}
        for rank, event in sorted(loaded.items())
        if not event.text
    }
    for group in trace.models:
        members = [rank for rank in group if rank in drawn]
        # A generator that some ranks lack, as without NumPy, says nothing about seeds.
        split = split_by_name(drawn, members) if members else None
        if split:
            template = "the loader workers of {who} drew other {generators} numbers than those of the rest of the model"
            if split.tie:
                template = (
                    "the loader workers of ranks {group}, which hold one model, drew different {generators} numbers"
                )
            expected = filled("{0}; expected the same", template)
            yield _finding(trace, split.differing, expected, sorted(split.names), group, split.tie)
    yield from _repeated(trace, drawn)


def _repeated(trace: LayoutTrace, drawn: Mapping[int, Mapping[str, int]]) -> Iterator[Finding]:
    firsts = [group[0] for group in trace.models if group[0] in drawn]
    for alike, generators in names_held_alike({rank: drawn[rank] for rank in firsts}).items():
        template = "the loader workers of {who} drew the same numbers ({generators}) for different data"
        yield _finding(trace, alike, template, sorted(generators), alike, False)


def _finding(
    trace: LayoutTrace, ranks: Sequence[int], template: str, generators: Sequence[str], group: Sequence[int], tie: bool
) -> Finding:
    plan = trace.plan
    everybody = len(ranks) >= trace.layout.world
    return Finding(
        template,
        hosts=list(dict.fromkeys(plan.host_of(rank) for rank in ranks)),
        who=filled("ranks {0}", format_ranges(ranks)) if everybody else describe_ranks(trace, ranks),
        ranks=list(ranks),
        places=[describe_placement(trace, rank) for rank in ranks[:8]],
        group=format_ranges(group),
        generators=list(generators),
        layout=trace.layout.name,
        tie=tie,
    )
