"""The figures of a smoke run, from what its ranks said. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean, median

from doctor.engine.evaluate import Book
from doctor.engine.smoke_summary import Figure, Seat, Stage, Summary, Trained
from doctor.facts.smoke import SmokeCollectives, SmokeStart, SmokeTraining, Stepped
from doctor.smoke.model import Place, SmokeRun
from doctor.smoke.numerics.layout_trace import courses
from doctor.smoke.numerics.reference_run import relative, twins


def summarise(run: SmokeRun, book: Book) -> Summary:
    """What ran, how far it came, how right and how fast it was."""
    start = dict(book.fleet(SmokeStart))
    training = dict(book.fleet(SmokeTraining))
    hosts: dict[str, int] = {}
    for place in run.plan.places:
        hosts[place.host] = hosts.get(place.host, 0) + 1
    return Summary(
        backend=run.plan.backend,
        hosts=hosts,
        ended=run.ended,
        seconds=run.seconds,
        import_seconds=run.import_seconds,
        stages=tuple(_stages(run)),
        not_reached=tuple(name for name in run.plan.stages if name not in run.reached),
        layouts=tuple(_layouts(run, training)),
        seats=_seats(list(start.values())),
        figures=_figures(run, dict(book.fleet(SmokeCollectives))),
        troubles=run.troubles,
        places=tuple(_words(place, run.plan.backend) for place in run.plan.places),
        notes=run.notes,
    )


def _stages(run: SmokeRun) -> Iterator[Stage]:
    """Each stage's own seconds, from the moments at which the last rank was done with it."""
    before = 0.0
    for name in run.plan.stages:
        if name in run.reached:
            yield Stage(name, round(max(run.reached[name] - before, 0.0), 6))
            before = run.reached[name]


def _words(place: Place, backend: str) -> str:
    if place.device < 0:
        return place.host
    return f"{place.host}, {'NPU' if backend == 'hccl' else 'GPU'} {place.device}"


def _seats(starts: list[SmokeStart]) -> tuple[Seat, ...]:
    """The ranks by what they run on, the most common first."""
    seats: dict[tuple[str, str, str, str], list[int]] = {}
    for start in starts:
        pythons = {one.rank: one.python for one in start.imported}
        hosts_own = pythons.get(-1) or next(iter(pythons.values()), "")
        for one in start.joined:
            python = pythons.get(one.rank, hosts_own)
            key = (
                one.torch,
                one.numpy or "",
                python.split(" ")[0],
                one.device.name if one.device.index >= 0 else "CPU",
            )
            seats.setdefault(key, []).append(one.rank)
    found = [Seat(*key, ranks=tuple(sorted(ranks))) for key, ranks in seats.items()]
    return tuple(sorted(found, key=lambda seat: (-len(seat.ranks), seat.ranks)))


def _layouts(run: SmokeRun, training: Mapping[str, SmokeTraining]) -> Iterator[Trained]:
    """Every layout of the plan; what some rank did not say is not compared."""
    twin = twins(training)
    began = {course.number: course for course in courses(run.plan, training)}
    for number, layout in enumerate(run.plan.layouts):
        told = [step for step in began[number].steps if len(step) == layout.world] if number in began else []
        pairs = list(zip(map(_loss, told), twin.losses if twin else (), strict=False))
        yield Trained(layout.name, len(pairs), max((relative(*pair) for pair in pairs), default=None))


def _loss(step: Mapping[int, Stepped]) -> float | None:
    """Of the whole batch: each data-parallel rank tells that of its own share. None when one is not finite."""
    losses = [one.loss for one in step.values() if one.loss is not None]
    broken = any(one.bad for one in step.values())
    return None if broken or not losses else fmean(losses)


_ONCE = {"all_gather", "reduce_scatter", "all_to_all"}


def _figures(run: SmokeRun, collectives: dict[str, SmokeCollectives]) -> tuple[Figure, ...]:
    """By group, operation and size; of a rank's repeats the median, of the ranks the slowest."""
    slowest: dict[tuple[int, str, int], float] = {}
    for fact in collectives.values():
        for one in fact.speed:
            if one.seconds:
                key = (one.gid, one.op, one.bytes)
                slowest[key] = max(slowest.get(key, 0.0), median(one.seconds))
    return tuple(_figure(run, *key, seconds) for key, seconds in sorted(slowest.items()))


def _figure(run: SmokeRun, gid: int, op: str, size: int, seconds: float) -> Figure:
    name, ranks = run.groups.get(gid, (f"group {gid}", ()))
    if gid == 0 and not ranks:
        name, ranks = "world", tuple(range(run.plan.world))
    number = len(ranks)
    share = (number - 1) / number if number else 0.0
    factor = 2 * share if op == "all_reduce" else share if op in _ONCE else 1.0
    algbw = size / seconds if seconds > 0 else 0.0
    return Figure(op, name, number, size, seconds, algbw, algbw * factor)
