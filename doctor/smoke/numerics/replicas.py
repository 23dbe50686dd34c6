"""Parameters that several ranks must hold alike: after the first broadcast, and after every step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.smoke.numerics.defect import Defect, spans
from doctor.smoke.numerics.layout_trace import BEGIN, Course, Split, pick, split

BROADCAST, DIVERGE = "smoke-parameters-not-broadcast", "smoke-parameters-diverge"


def replicas_wrong(course: Course) -> Iterator[Defect]:
    """What is wrong before the first step; and the first step after which replicas differ."""
    began = list(_not_broadcast(course)) or list(_begun_apart(course))
    yield from began
    if not began:
        yield from _diverged(course)


def _not_broadcast(course: Course) -> Iterator[Defect]:
    late: dict[int, str] = {}
    for group in course.replicas:
        after, before = pick(course.begun, group, "params"), pick(course.begun, group, "before")
        for rank in sorted(after):
            if len(group) > 1 and group[0] in before and after[rank] != before[group[0]]:
                late[rank] = _came_from(rank, after[rank], before)
    if not late:
        return
    kind = "kept" if set(late.values()) == {"kept"} else "other" if "other" in late.values() else "swapped"
    end = {
        "kept": "still has the parameters that it made itself",
        "swapped": "has the parameters that another rank made",
        "other": "has parameters that no rank made",
    }[kind]
    roots = [group[0] for group in course.replicas if set(group) & set(late)]
    everybody = set(late) == {rank for group in course.replicas for rank in group[1:]}
    template = (
        "after the first broadcast {who} {end}; expected those of rank {root}, the first of its data-parallel group"
    )
    if everybody and len(late) > 1:
        template = "after the first broadcast every rank but the first of its data-parallel group {end}"
    values = {"end": end, "root": spans(roots)}
    ranks = () if everybody and len(late) > 1 else tuple(late)
    yield Defect(BROADCAST, kind + " all" * (not ranks), course, BEGIN, ranks, template, values, root=True)


def _came_from(rank: int, after: int, before: dict[int, int]) -> str:
    return "kept" if after == before.get(rank) else "swapped" if after in before.values() else "other"


def _begun_apart(course: Course) -> Iterator[Defect]:
    """Tensors that tensor parallelism keeps whole, and that its ranks begin with different values of."""
    for group in course.slices:
        found = split(pick(course.begun, group, "replicated"))
        if found:
            what = "the tensors that tensor parallelism keeps whole"
            template = f"before the first step {{who}} holds other values of {what} than the rest of ranks {{group}}"
            if found.tie:
                template = f"before the first step the ranks {{group}} hold different values of {what}"
            yield _diverge(course, BEGIN, "begin", found, template, group, root=True)
            return


def _diverged(course: Course) -> Iterator[Defect]:
    for step, said in course.after():
        over_data = {group: split(pick(said, group, "params")) for group in course.replicas}
        over_tensor = {group: split(pick(said, group, "replicated")) for group in course.slices}
        for kind, groups in (("data", over_data), ("tensor", over_tensor)):
            parted = {group: found for group, found in groups.items() if found}
            if parted:
                yield _parted(course, step, kind, parted, len(parted) == len(groups))
        if any((*over_data.values(), *over_tensor.values())):
            return


def _parted(course: Course, step: int, kind: str, parted: dict[tuple[int, ...], Split], everywhere: bool) -> Defect:
    """Replicas that no longer agree. From the first step on, in every group and without a majority: the program."""
    clear = {group: found for group, found in parted.items() if not found.tie}
    what = "parameters" if kind == "data" else "values of the tensors that are not cut"
    if everywhere and not clear and not step:
        template = (
            f"after step {{step}} the ranks of each {kind}-parallel group hold different {what}; expected the same"
        )
        return _diverge(course, step, f"{kind} all", Split((), ()), template, next(iter(parted)))
    blamed = clear or parted
    group = next(iter(blamed))
    against = tuple(sorted(rank for found in blamed.values() for rank in found.against))
    agree = tuple(rank for found in clear.values() for rank in found.agree)
    template = f"after step {{step}} {{who}} holds other {what} than the rest of {kind}-parallel group {{group}}"
    if not clear:
        template = (
            f"after step {{step}} the ranks of {kind}-parallel group {{group}} hold different {what}; expected the same"
        )
    return _diverge(course, step, kind, Split(against, agree), template, group)


def _diverge(
    course: Course, step: int, kind: str, found: Split, template: str, group: tuple[int, ...], root: bool = False
) -> Defect:
    return Defect(
        DIVERGE,
        kind,
        course,
        step,
        found.against,
        template + "{likely}",
        {"group": spans(group), "agree": len(found.agree), "likely": _likely(course, kind)},
        root=root,
        tie=found.tie and bool(found.against),
    )


def _likely(course: Course, kind: str) -> str:
    """What does this to a program that is otherwise right."""
    if kind == "tensor all":
        return "; most likely the backward pass lacks an all-reduce over the tensor-parallel group"
    if kind == "data all":
        return "; most likely each rank updates with a gradient of its own"
    return "" if kind == "begin" else "; as all its gradients agreed, look at that rank's device and memory"
