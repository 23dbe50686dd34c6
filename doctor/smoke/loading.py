"""What data loaders' workers drew: the same inside one model, something else for other data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doctor.facts.smoke import Loaded
from doctor.model import Finding
from doctor.smoke.course import Course, split
from doctor.smoke.defect import place, spans, who
from doctor.smoke.model import Plan


def loaders_wrong(plan: Plan, loaded: Mapping[int, Loaded]) -> Iterator[Finding]:
    """Findings on all loaders that came to their end."""
    number = min((one.layout for one in loaded.values()), default=0)
    course = Course(plan, number, {}, (), {})
    drawn = {rank: _drawn(one) for rank, one in sorted(loaded.items()) if not one.text}
    for group in course.models:
        found = split({rank: tuple(sorted(drawn[rank].items())) for rank in group if rank in drawn})
        if found:
            template = "the loader workers of {who} drew other {generators} numbers than those of the rest of its model"
            if found.tie:
                template = (
                    "the loader workers of ranks {group}, which hold one model, drew different {generators} numbers"
                )
            norm = drawn[(found.agree or (min(group),))[0]]
            differ = [name for name in norm if any(drawn[rank].get(name) != norm[name] for rank in found.against)]
            yield _finding(course, found.against, template + "; expected the same", differ, group, found.tie)
    yield from _repeated(course, drawn)


def _repeated(course: Course, drawn: Mapping[int, Mapping[str, int]]) -> Iterator[Finding]:
    names = sorted({name for one in drawn.values() for name in one})
    firsts = [group[0] for group in course.models if group[0] in drawn]
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
        yield _finding(course, alike, template, generators, alike, False)


def _drawn(one: Loaded) -> dict[str, int]:
    return {name: value for name, value in one.digests.items() if value is not None}


def _finding(
    course: Course, ranks: Sequence[int], template: str, generators: Sequence[str], group: Sequence[int], tie: bool
) -> Finding:
    plan = course.plan
    return Finding(
        template,
        hosts=list(dict.fromkeys(plan.host_of(rank) for rank in ranks)),
        who=who(course, ranks) if len(ranks) < course.layout.world else f"ranks {spans(ranks)}",
        ranks=list(ranks),
        places=[place(course, rank) for rank in ranks[:8]],
        group=spans(group),
        generators=list(generators),
        layout=course.layout.name,
        tie=tie,
    )
