"""What data loaders' workers drew: the same inside one model, something else for other data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doctor.engine.result import Finding
from doctor.facts.smoke import Loaded
from doctor.smoke.model import Plan
from doctor.smoke.numerics.defect import place, spans, who
from doctor.smoke.numerics.layout_trace import Course, course, split


def loaders_wrong(plan: Plan, loaded: Mapping[int, Loaded]) -> Iterator[Finding]:
    """Findings on all loaders that came to their end."""
    number = min((one.layout for one in loaded.values()), default=0)
    layout = course(plan, number)
    drawn = {rank: _drawn(one) for rank, one in sorted(loaded.items()) if not one.text}
    for group in layout.models:
        found = split({rank: tuple(sorted(drawn[rank].items())) for rank in group if rank in drawn})
        if found:
            template = "the loader workers of {who} drew other {generators} numbers than those of the rest of its model"
            if found.tie:
                template = (
                    "the loader workers of ranks {group}, which hold one model, drew different {generators} numbers"
                )
            norm = drawn[(found.agree or (min(group),))[0]]
            used = sorted({name for rank in group for name in drawn.get(rank, ())})
            differ = [name for name in used if any(drawn[rank].get(name) != norm.get(name) for rank in found.against)]
            yield _finding(layout, found.against, template + "; expected the same", differ, group, found.tie)
    yield from _repeated(layout, drawn)


def _repeated(layout: Course, drawn: Mapping[int, Mapping[str, int]]) -> Iterator[Finding]:
    names = sorted({name for one in drawn.values() for name in one})
    firsts = [group[0] for group in layout.models if group[0] in drawn]
    repeated: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        holders: dict[int, list[int]] = {}
        for rank in firsts:
            if name in drawn[rank]:
                holders.setdefault(drawn[rank][name], []).append(rank)
        for ranks in holders.values():
            if len(ranks) > 1:
                repeated.setdefault(tuple(ranks), []).append(name)
    for alike, generators in repeated.items():
        template = "the loader workers of {who} drew the same numbers ({generators}) for different data"
        yield _finding(layout, alike, template, generators, alike, False)


def _drawn(one: Loaded) -> dict[str, int]:
    return {name: value for name, value in one.digests.items() if value is not None}


def _finding(
    layout: Course, ranks: Sequence[int], template: str, generators: Sequence[str], group: Sequence[int], tie: bool
) -> Finding:
    plan = layout.plan
    return Finding(
        template,
        hosts=list(dict.fromkeys(plan.host_of(rank) for rank in ranks)),
        who=who(layout, ranks) if len(ranks) < layout.layout.world else f"ranks {spans(ranks)}",
        ranks=list(ranks),
        places=[place(layout, rank) for rank in ranks[:8]],
        group=spans(group),
        generators=list(generators),
        layout=layout.layout.name,
        tie=tie,
    )
