"""Eight to four thousand ranks: healthy runs without an alarm, faults with the right culprit, linear time and memory.

What the ranks say is the worker's own as far as one process can compute it: see `tests.smoke.scaled`.
"""

from __future__ import annotations

import cProfile
import math
import pstats
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from doctor.engine.result import Finding
from doctor.facts.smoke.collectives import CollectiveWrong
from doctor.facts.smoke.events import RankEvent
from doctor.facts.smoke.further_stages import LoaderResult, PairTimes
from doctor.facts.smoke.training import ReferenceRun, TrainingStep
from doctor.smoke import plan as planning
from doctor.smoke.hang.detector import Detector
from doctor.smoke.model import Layout, RankPlacement, SmokeRun
from doctor.smoke.plan import build_plan
from doctor.smoke.protocol import parse_event
from tests.checks import smoke as judge
from tests.checks.trained import TRAINED
from tests.smoke import simulation
from tests.smoke.ranks import Ranks, worker
from tests.smoke.replay import replay
from tests.smoke.scaled import events_of, run_of
from tests.smoke.simulation import Simulation, faulty, fleet

pytestmark = pytest.mark.torch

FULL = pytest.mark.full
WORLDS = pytest.mark.parametrize(
    "world", [8, pytest.param(64, marks=FULL), 256, pytest.param(1024, marks=FULL), pytest.param(4096, marks=FULL)]
)

FEWER_WORLDS = pytest.mark.parametrize(
    "world", [8, *(pytest.param(world, marks=FULL) for world in (64, 256, 1024, 4096))]
)
"""For faults whose diagnosis takes long."""


@cache
def trained(world: int) -> tuple[SmokeRun, tuple[RankEvent, ...]]:
    run = run_of(world)
    return run, tuple(events_of(run))


def findings_by_check(run: SmokeRun, events: Sequence[RankEvent]) -> dict[str, tuple[Finding, ...]]:
    """By check: what the checks of training find."""
    facts = judge.training(run, events)
    outcomes = {name: judge.run_check(name, run, facts) for name in TRAINED}
    assert not [outcome.crashed for outcome in outcomes.values() if outcome.crashed]
    return {name: outcome.findings for name, outcome in outcomes.items() if outcome.findings}


def altered(world: int, kind: type[RankEvent], change: Callable[[Any], dict[str, Any] | None]) -> tuple[Any, list[Any]]:
    run, events = trained(world)
    return run, [
        msgspec.structs.replace(event, **(change(event) or {})) if isinstance(event, kind) else event
        for event in events
    ]


def test_the_events_have_the_form_that_real_workers_give_them() -> None:
    """Of eight real ranks: as many events of each kind and rank, with fields of the same form, and the same data."""
    run, events = trained(8)
    real = Ranks(8, ("training",), layouts=run.plan.layouts, steps=3, seconds=90)
    observed_events = [parse_event(msgspec.json.encode(event)) for event in real.events if event["ev"] in KINDS]
    assert sorted(map(form, observed_events)) == sorted(map(form, events))
    assert data(observed_events) == data(events)
    (mine, _), (first, *_) = (
        [event for event in some if isinstance(event, ReferenceRun)][:2] for some in (events, observed_events)
    )
    assert (first.init, first.params_step, first.losses) == (mine.init, mine.params_step, pytest.approx(mine.losses))


KINDS = {"reference", "reference-blocks", "reference-update", "begin", "step", "end"}


def data(events: Sequence[RankEvent]) -> dict[tuple[int, int, int], Any]:
    """Of each step of each rank in each layout: the data, the masks and the random numbers."""
    steps = [event for event in events if isinstance(event, TrainingStep)]
    return {(step.layout, step.rank, step.step): (step.ids, step.masks, step.rng) for step in steps}


def form(event: RankEvent) -> tuple[Any, ...]:
    """An event without its numbers: kind, rank, layout, step, and for each field how many values of which types."""
    numbers = [getattr(event, name, -1) for name in ("rank", "layout", "step")]
    fields = [(name, shape(getattr(event, name))) for name in event.__struct_fields__]
    return (type(event).__name__, *numbers, *fields)


def shape(value: Any) -> str:
    if isinstance(value, dict):
        return f"dict of {len(value)}"
    return f"{len(value)} values" if isinstance(value, tuple) else type(value).__name__


# ---- the training


@WORLDS
def test_a_healthy_training(world: int) -> None:
    run, events = trained(world)
    assert not findings_by_check(run, events)


def culprits(findings: Sequence[Finding]) -> set[int]:
    return {rank for finding in findings for rank in finding.values["ranks"]}


@WORLDS
def test_one_wrong_device(world: int) -> None:
    for guilty in (0, world // 2 + 1):
        run, events = altered(
            world, ReferenceRun, lambda entry, rank=guilty: {"params": 1} if entry.rank == rank else None
        )
        findings = findings_by_check(run, events)
        assert set(findings) == {"smoke_reference_differs"}
        assert culprits(findings["smoke_reference_differs"]) == {guilty}


@FEWER_WORLDS
def test_one_gradient_that_is_not_synchronised(world: int) -> None:
    guilty = world // 2 + 1
    run, events = altered(
        world,
        TrainingStep,
        lambda entry: (
            {"grad_digest": 1, "grad_error": 0.3, "params": 10 + entry.step}
            if (entry.rank, entry.layout) == (guilty, 0)
            else None
        ),
    )
    findings = findings_by_check(run, events)
    assert set(findings) == {"smoke_gradient_not_synchronised"}
    assert culprits(findings["smoke_gradient_not_synchronised"]) == {guilty}


@FEWER_WORLDS
def test_one_rank_whose_parameters_drift_away(world: int) -> None:
    guilty = world - 1
    run, events = altered(
        world,
        TrainingStep,
        lambda entry: {"params": 10 + entry.step} if (entry.rank, entry.layout) == (guilty, 0) else None,
    )
    findings = findings_by_check(run, events)
    assert set(findings) == {"smoke_parameters_diverge"}
    assert culprits(findings["smoke_parameters_diverge"]) == {guilty}


@WORLDS
def test_one_rank_that_computes_nan(world: int) -> None:
    guilty = world // 2 + 1

    def broken(entry: Any) -> dict[str, Any] | None:
        if entry.layout or entry.step == 0:
            return None
        if entry.rank == guilty and entry.step == 1:
            return {"bad": "activations", "loss": None, "grad": None, "grad_local": None, "grad_digest": 1, "params": 2}
        return {"bad": "parameters" if entry.step == 1 else "input", "loss": None, "grad": None}

    run, events = altered(world, TrainingStep, broken)
    findings = findings_by_check(run, events)
    assert set(findings) == {"smoke_not_finite"}
    assert culprits(findings["smoke_not_finite"]) == {guilty}


@WORLDS
def test_one_rank_whose_loss_is_off_by_a_hundredth(world: int) -> None:
    """The mean over all ranks is off by less than the tolerance, from a hundred ranks on."""
    guilty = world // 2 + 1
    run, events = altered(
        world,
        TrainingStep,
        lambda entry: (
            {"loss": entry.loss * 1.01, "loss_error": 1e-2}
            if (entry.rank, entry.layout, entry.step) == (guilty, 0, 0)
            else None
        ),
    )
    findings = findings_by_check(run, events)
    assert set(findings) == {"smoke_loss_differs"}
    assert culprits(findings["smoke_loss_differs"]) == {guilty}


@WORLDS
def test_one_rank_that_draws_other_numbers(world: int) -> None:
    """In the layout with the largest tensor-parallel groups, whose ranks must draw alike."""
    guilty, number = world // 2 + 1, max(range(5), key=lambda index: run_of(world).plan.layouts[index].tp)

    def other(entry: Any) -> dict[str, Any] | None:
        if (entry.rank, entry.layout) != (guilty, number):
            return None
        return {"masks": tuple(mask ^ 1 for mask in entry.masks), "rng": {**entry.rng, "python": 1}}

    run, events = altered(world, TrainingStep, other)
    findings = findings_by_check(run, events)
    assert set(findings) == {"smoke_mask_differs"}
    assert culprits(findings["smoke_mask_differs"]) == {guilty}


# ---- the other stages


@WORLDS
def test_one_wrong_element_of_a_collective(world: int) -> None:
    run = run_of(world)
    wrong = CollectiveWrong(world - 1, 0, "broadcast", "float32", 1021, 0, 5, 3.0, 4.0, 1)
    assert not judge.findings_of("smoke_collective_wrong", run, judge.collectives(run))
    (finding,) = judge.findings_of("smoke_collective_wrong", run, judge.collectives(run, wrong))
    assert run.plan.host_of(world - 1) in finding.hosts


def times(ratio: float, seed: int) -> tuple[float, ...]:
    noise = Random(seed)
    return tuple(0.002 * ratio * noise.lognormvariate(0, 0.03) for _ in range(60))


@WORLDS
def test_one_slow_rank(world: int) -> None:
    run, guilty = run_of(world), world // 2 + 1
    healthy = {rank: times(1.0, rank) for rank in range(world)}
    assert not judge.findings_of("smoke_rank_slow", run, judge.pace(run, healthy))
    (finding,) = judge.findings_of("smoke_rank_slow", run, judge.pace(run, {**healthy, guilty: times(1.5, guilty)}))
    assert finding.values["ranks"] == [guilty]


def exchanges(run: SmokeRun, slow_host: int = -1) -> list[PairTimes]:
    """The first ranks of all hosts, paired as the worker pairs them."""
    hosts, noise, events = len({place.host for place in run.plan.places}), Random(1), list[PairTimes]()
    for number, pairs in enumerate(worker()["round_robin"](hosts)):
        for low, high in pairs:
            factor = 3.0 if slow_host in (low, high) else 1.0
            seconds = tuple(0.002 * factor * noise.lognormvariate(0, 0.03) for _ in range(5))
            ends = (low * 8, high * 8)
            for repeat in (False, True) if factor > 1 else (False,):
                events += [PairTimes(rank, peer, number, 1 << 20, seconds, repeat) for rank, peer in (ends, ends[::-1])]
    return events


@WORLDS
def test_one_slow_host(world: int) -> None:
    run = run_of(world)
    if world == 8:
        pytest.skip("one host has no link to another")
    for name in ("smoke_host_slow", "smoke_link_slow"):
        assert not judge.findings_of(name, run, judge.pairs(run, exchanges(run)))
    (finding,) = judge.findings_of("smoke_host_slow", run, judge.pairs(run, exchanges(run, 3)))
    assert finding.hosts == (run.plan.host_of(24),)


@WORLDS
def test_one_failed_loader(world: int) -> None:
    run, guilty = run_of(world), world // 2 + 1
    events = judge.loader_events(run)
    for name in ("smoke_loader_failed", "smoke_loader_seed_differs"):
        assert not judge.findings_of(name, run, judge.loader(run, events))
    failed = judge.alter(events, guilty, LoaderResult, text="No space left on device", digests={}, seeds=())
    (finding,) = judge.findings_of("smoke_loader_failed", run, judge.loader(run, failed))
    assert finding.hosts == (run.plan.host_of(guilty),)


# ---- hangs

HANGS = {
    "stop": (simulation.stop, "stopped"),
    "kill": (simulation.kill, "dead"),
    "sleep": (simulation.sleep, "blocked"),
    "shape": (simulation.shape, "mismatch"),
}
SIMULATED = pytest.mark.parametrize("world", [64, 256, pytest.param(1024, marks=FULL), pytest.param(4096, marks=FULL)])


def simulated(world: int, fault: simulation.Fault | None = None, guilty: int = -1) -> Any:
    layouts = [Layout(dp=world // 8, tp=8), Layout(dp=world // 2, pp=2)]
    groups, programs = fleet(world, layouts, 1, steps=3)
    if fault:
        programs[guilty] = faulty(programs[guilty], fault, 2, 1, [0], Random(1))
    hosts = tuple(f"w{rank // 8}" for rank in range(world))
    return Simulation(world, groups, programs, Random(1), per_host=8).watch(Detector(world, hosts=hosts), 60)


@SIMULATED
def test_no_alarm_in_virtual_time(world: int) -> None:
    assert simulated(world) is None


@SIMULATED
@pytest.mark.parametrize("name", HANGS)
def test_one_rank_that_hangs_or_dies(world: int, name: str) -> None:
    fault, kind = HANGS[name]
    failure = simulated(world, fault, world // 2 + 1)
    assert (failure.kind, failure.culprit_ranks) == (kind, (world // 2 + 1,))


# ---- time and memory


def cost(world: int) -> tuple[float, float]:
    """CPU seconds and bytes per rank of what the judge does with a healthy training."""
    run, events = trained(world)
    tracemalloc.start()
    started = time.process_time()
    facts = judge.training(run, events)
    for name in TRAINED:
        judge.run_check(name, run, facts)
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return seconds / world, peak / world


@pytest.mark.full
def test_time_and_memory_of_the_judge_are_linear() -> None:
    """Four times the ranks cost no more than twice as much a rank: the noise of a loaded machine is within that."""
    cost(64)
    small, large = cost(64), cost(256)
    assert large[0] < 2 * small[0] + 0.002
    assert large[1] < 2 * small[1]
    assert math.isfinite(large[0])


def calls(world: int) -> float:
    """Function calls per rank of what the judge does with a healthy training: a measure without any noise."""
    run, events = trained(world)
    profile = cProfile.Profile()
    with profile:
        facts = judge.training(run, events)
        for name in TRAINED:
            judge.run_check(name, run, facts)
    total: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return total / world


def test_the_judge_makes_no_more_calls_for_a_rank_of_a_larger_world() -> None:
    calls(64)
    assert calls(256) < 1.2 * calls(64)


class CountedPlaces(tuple[RankPlacement, ...]):
    """The places of a plan, and how often somebody has gone through all of them."""

    __slots__ = ()
    walks = 0

    def __iter__(self) -> Iterator[RankPlacement]:
        CountedPlaces.walks += 1
        return super().__iter__()


def test_the_supervisor_goes_through_the_plan_as_often_for_many_hosts_as_for_few(monkeypatch: Any) -> None:
    """For each order, message or record of a host it would be hosts times ranks: 4,096 ranks took minutes."""

    def counted(*settings: Any) -> Any:
        plan = build_plan(*settings)
        return msgspec.structs.replace(plan, places=CountedPlaces(plan.places))

    monkeypatch.setattr(planning, "build_plan", counted)
    walks = []
    for world in (16, 128):
        CountedPlaces.walks = 0
        assert replay(world).run.ended == "complete"
        walks.append(CountedPlaces.walks)
    assert walks[0] == walks[1] < 20


@FULL
def test_the_time_of_the_supervisor_is_linear_to_4096_ranks() -> None:
    def seconds(world: int) -> float:
        started = time.process_time()
        assert replay(world).run.ended == "complete"
        return (time.process_time() - started) / world

    seconds(256)
    assert seconds(4096) < 2 * seconds(256) + 0.002


@FULL
def test_the_time_of_the_judge_is_linear_to_4096_ranks() -> None:
    assert calls(4096) < 1.2 * calls(256)
