"""The figures of a smoke run, from its ranks' events. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean, median

from doctor.engine.evaluate import FactCache
from doctor.engine.smoke_summary import (
    CollectiveSpeed,
    HostTemperature,
    LayoutResult,
    LinkErrors,
    PairSpeed,
    RankEnvironment,
    SmokeSummary,
    SoakErrors,
    SoakFigures,
    SoakLink,
    SoakMinute,
    StageTime,
)
from doctor.engine.texts import filled
from doctor.facts.smoke.collectives import SmokeCollectives, SoakInterval
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokeDevices, SmokeLearning, SmokePairs
from doctor.facts.smoke.training import SmokeTraining, TrainingStep
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.defect import placement_text
from doctor.smoke.numerics.layout_trace import layout_traces
from doctor.smoke.numerics.learned import mean_losses
from doctor.smoke.numerics.reference_run import majority_reference, relative_error
from doctor.smoke.speed.device_speeds import device_speeds
from doctor.smoke.speed.link_speeds import is_possible, lower_quartile, warmed
from doctor.smoke.speed.soak_drift import intervals_of


def summarise(run: SmokeRun, book: FactCache) -> SmokeSummary:
    """What ran, how far it came, how right and how fast it was."""
    start = dict(book.fleet(SmokeStart))
    training = dict(book.fleet(SmokeTraining))
    learned = [event for fact in dict(book.fleet(SmokeLearning)).values() for event in fact.steps]
    reference = majority_reference(training)
    return SmokeSummary(
        backend=run.plan.backend,
        library=run.plan.library,
        hosts={host: len(ranks) for host, ranks in run.plan.ranks_by_host.items()},
        ended=run.ended,
        seconds=run.seconds,
        import_seconds=run.import_seconds,
        stages=tuple(_stages(run)),
        unfinished_stages=tuple(name for name in run.plan.stages if name not in run.reached),
        layouts=tuple(_layouts(run, training)),
        environments=rank_environments(start.values()),
        collective_speeds=collective_speeds(run, dict(book.fleet(SmokeCollectives))),
        failures=run.failures,
        placements=tuple(placement_text(place, run.plan.backend) for place in run.plan.places),
        notes=run.notes,
        device_speeds=device_speeds(dict(book.fleet(SmokeDevices)), run.plan.world),
        soak=soak_figures(run, dict(book.fleet(SmokeCollectives))),
        reference_losses=_finite(reference.losses) if reference else (),
        learning_losses=_finite(mean_losses((event.step, event.loss) for event in learned)),
        pair_speeds=pair_speeds(dict(book.fleet(SmokePairs)), run.plan.world),
        watched=run.watched,
    )


def _finite(losses: Iterable[float | None]) -> tuple[float | None, ...]:
    return tuple(loss if loss is not None and math.isfinite(loss) else None for loss in losses)


def pair_speeds(pairs: Mapping[str, SmokePairs], world: int) -> tuple[PairSpeed, ...]:
    """Of each pair, over its first measurement on both sides; a second one, of suspects, is left out.

    ``world``: number of ranks; times of other ranks are left out.
    """
    times: dict[tuple[int, int, int], list[float]] = {}
    for event in (event for fact in pairs.values() for event in fact.pairs):
        ends = sorted((event.rank, event.peer))
        if event.confirm or event.control or event.after or not 0 <= ends[0] < ends[1] < world or event.bytes <= 0:
            continue
        times.setdefault((ends[0], ends[1], event.bytes), []).extend(filter(is_possible, warmed(event.seconds)))
    return tuple(
        PairSpeed(*key, round(lower_quartile(measured), 9)) for key, measured in sorted(times.items()) if measured
    )


def soak_figures(run: SmokeRun, collectives: Mapping[str, SmokeCollectives]) -> SoakFigures | None:
    """What the soak stage counted: by rank and collective, by pair of ranks, and by minute; None without that stage.

    Counts of ranks that are not in the plan are left out.
    """
    world = run.plan.world
    soaked = sorted((event for fact in collectives.values() for event in fact.soaked), key=lambda event: event.rank)
    if not soaked:
        return None
    calls: dict[str, int] = {}
    for event in soaked:
        for op, count in event.counts.items():
            calls[op] = max(calls.get(op, 0), count)
    return SoakFigures(
        seconds=max(0.0, *(event.seconds for event in soaked)),
        calls=calls,
        errors=tuple(
            SoakErrors(event.rank, op, wrong, max(event.counts.get(op, 0), 0))
            for event in soaked
            for op, wrong in sorted(event.wrong.items())
            if wrong > 0 and 0 <= event.rank < world
        ),
        links=tuple(
            SoakLink(source, event.rank, wrong)
            for event in soaked
            for source, wrong in sorted(event.sources.items())
            if wrong > 0 and 0 <= source < world and 0 <= event.rank < world
        ),
        minutes=tuple(
            _minute(run, {rank: event for rank, event in by_rank.items() if 0 <= rank < world})
            for by_rank in intervals_of(collectives).values()
            if any(0 <= rank < world for rank in by_rank)
        ),
    )


def _stages(run: SmokeRun) -> Iterator[StageTime]:
    """Each stage's own seconds, from the moments at which the last rank was done with it."""
    before = 0.0
    for name in run.plan.stages:
        if name in run.reached:
            yield StageTime(name, round(max(run.reached[name] - before, 0.0), 6))
            before = run.reached[name]


def rank_environments(starts: Iterable[SmokeStart]) -> tuple[RankEnvironment, ...]:
    """The ranks by what they run on, the most common first."""
    ranks_by_environment: dict[tuple[str, str, str, str], list[int]] = {}
    for start in starts:
        pythons = {imported.rank: imported.python for imported in start.imported}
        hosts_own = pythons.get(-1) or next(iter(pythons.values()), "")
        for joined in start.joined:
            python = pythons.get(joined.rank, hosts_own)
            key = (
                joined.torch,
                joined.numpy or "",
                python.split(" ")[0],
                joined.device.name if joined.device.index >= 0 else "CPU",
            )
            ranks_by_environment.setdefault(key, []).append(joined.rank)
    environments = [RankEnvironment(*key, ranks=tuple(sorted(ranks))) for key, ranks in ranks_by_environment.items()]
    return tuple(sorted(environments, key=lambda environment: (-len(environment.ranks), environment.ranks)))


def _layouts(run: SmokeRun, training: Mapping[str, SmokeTraining]) -> Iterator[LayoutResult]:
    """Every layout of the plan; what some rank did not say is not compared."""
    reference = majority_reference(training)
    began = {trace.number: trace for trace in layout_traces(run.plan, training)}
    for number, layout in enumerate(run.plan.layouts):
        complete_steps = [step for step in began[number].steps if len(step) == layout.world] if number in began else []
        pairs = list(zip(map(_loss, complete_steps), reference.losses if reference else (), strict=False))
        error = max((relative_error(*pair) for pair in pairs), default=None)
        yield LayoutResult(layout.name, len(pairs), error, _finite(map(_loss, complete_steps)))


def _loss(step: Mapping[int, TrainingStep]) -> float | None:
    """Of the whole batch: each data-parallel rank reports that of its own share. None when one is not finite."""
    losses = [event.loss for event in step.values() if event.loss is not None]
    broken = any(event.bad for event in step.values())
    return None if broken or not losses else fmean(losses)


_SINGLE_PASS = {"all_gather", "reduce_scatter", "all_to_all"}


def collective_speeds(run: SmokeRun, collectives: Mapping[str, SmokeCollectives]) -> tuple[CollectiveSpeed, ...]:
    """By group, operation and size; of a rank's repeats the median, of the ranks the slowest."""
    slowest: dict[tuple[int, str, int], float] = {}
    for fact in collectives.values():
        for measurement in fact.speed:
            if measurement.seconds:
                key = (measurement.gid, measurement.op, measurement.bytes)
                slowest[key] = max(slowest.get(key, 0.0), median(measurement.seconds))
    return tuple(_collective_speed(run, *key, seconds) for key, seconds in sorted(slowest.items()))


def _collective_speed(run: SmokeRun, gid: int, op: str, size: int, seconds: float) -> CollectiveSpeed:
    name, ranks = run.groups.get(gid, (filled("group {0}", gid), ()))
    if gid == 0 and not ranks:
        name, ranks = "world", tuple(range(run.plan.world))
    number = len(ranks)
    share = (number - 1) / number if number else 0.0
    factor = 2 * share if op == "all_reduce" else share if op in _SINGLE_PASS else 1.0
    algbw = size / seconds if seconds > 0 else 0.0
    return CollectiveSpeed(op, name, number, size, seconds, algbw, algbw * factor)


MOST_ENTRIES = 64
"""Hosts, and counters, that one interval has."""


def _minute(run: SmokeRun, by_rank: Mapping[int, SoakInterval]) -> SoakMinute:
    events, world = by_rank.values(), len(by_rank)
    work = {rank: median(event.compute) for rank, event in by_rank.items() if event.compute}
    reduce = max((median(event.reduce) for event in events if event.reduce), default=0.0)
    slowest = max(work, key=lambda rank: work[rank], default=-1)
    host_events = [(run.plan.host_of(rank), event) for rank, event in sorted(by_rank.items())]
    heat = [
        HostTemperature(host, max(event.temperatures.values())) for host, event in host_events if event.temperatures
    ]
    errors = [LinkErrors(host, name[:80], count) for host, event in host_events for name, count in event.errors.items()]
    size = max(event.bytes for event in events)
    return SoakMinute(
        start=min(event.start for event in events),
        seconds=max(event.seconds for event in events),
        calls=max(event.calls for event in events),
        wrong=sum(max(0, event.wrong) for event in events),
        work=median(work.values()) if work else 0.0,
        slowest_rank=slowest,
        slowest_work=work.get(slowest, 0.0),
        busbw=2 * (world - 1) / world * size / reduce if reduce > 0 else 0.0,
        temperatures=tuple(heat[:MOST_ENTRIES]),
        link_errors=tuple(errors[:MOST_ENTRIES]),
    )
