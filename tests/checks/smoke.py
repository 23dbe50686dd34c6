"""A healthy smoke run, and what its ranks said, to be made ill in one place.

>>> run = ran(4, 2)
>>> judged("smoke_collective_wrong", run, collectives(run, wrong(3)))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from doctor.analysis.causes import resolve_causes
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Absent, Fact
from doctor.engine.result import Finding, Outcome, Report
from doctor.facts.smoke.collectives import CollectiveChecked, CollectiveTimes, SmokeCollectives
from doctor.facts.smoke.events import RankEvent
from doctor.facts.smoke.first_stages import RankDevice, RankJoined, SmokeStart, TorchImported
from doctor.facts.smoke.further_stages import (
    DeviceMiscomputed,
    DeviceTimes,
    DeviceUntested,
    LearnedParameters,
    LearningStep,
    LoaderResult,
    PaceTimes,
    PairTimes,
    SmokeDevices,
    SmokeLearning,
    SmokeLoader,
    SmokeNative,
    SmokePace,
    SmokePairs,
)
from doctor.facts.smoke.training import (
    CallParts,
    LayoutBegun,
    LayoutEnded,
    ReferenceBlocks,
    ReferenceRepeated,
    ReferenceRun,
    ReferenceUpdate,
    ShardedStep,
    SmokeTraining,
    TrainingStep,
)
from doctor.smoke.model import Failure, Layout, RankPlacement, SmokePlan, SmokeRun
from tests.checks.run_check import Facts, check

BY_HOST = dict[str, Fact]
"""One fact of every host of a run."""


def places(ranks: int = 4, hosts: int = 2, devices: bool = False) -> tuple[RankPlacement, ...]:
    """Ranks on hosts w1, w2, ... in blocks; with ``devices`` each on the device of its local number."""
    each = -(-ranks // hosts)
    return tuple(
        RankPlacement(rank, f"w{rank // each + 1}", rank % each, rank % each if devices else -1)
        for rank in range(ranks)
    )


def ran(ranks: int = 4, hosts: int = 2, *troubles: Failure, devices: bool = False, **more: Any) -> SmokeRun:
    """A run with these troubles; fields of the plan and of the run may be given by name."""
    chosen: dict[str, Any] = {
        "backend": "nccl" if devices else "gloo",
        "places": places(ranks, hosts, devices),
        "layouts": (Layout(dp=ranks),),
    }
    chosen.update({name: more.pop(name) for name in list(more) if name in SmokePlan.__struct_fields__})
    world = {0: ("world", tuple(range(ranks)))}
    ended = "trouble" if troubles else "complete"
    return SmokeRun(**{"plan": SmokePlan(**chosen), "failures": troubles, "ended": ended, "groups": world, **more})


def alter(
    events: Iterable[RankEvent], rank: int | Sequence[int], kind: type[RankEvent], /, **fields: Any
) -> list[RankEvent]:
    """The events, with these fields changed in those of one kind and of these ranks.

    A field of the event that is given as a tuple of two, ``where=("step", 3)``, narrows it down further.
    """
    ranks = {rank} if isinstance(rank, int) else set(rank)
    name, expected = fields.pop("where", ("rank", None))
    return [
        msgspec.structs.replace(event, **fields)
        if isinstance(event, kind) and event.rank in ranks and (expected is None or getattr(event, name) == expected)
        else event
        for event in events
    ]


def _spread(run: SmokeRun, fact: type[Any], fields: dict[type[RankEvent], str], events: Iterable[RankEvent]) -> BY_HOST:
    """The events as each host's fact."""
    hosts: dict[str, dict[str, list[RankEvent]]] = {place.host: {} for place in run.plan.places}
    for event in events:
        hosts[run.plan.host_of(max(event.rank, 0))].setdefault(fields[type(event)], []).append(event)
    return {
        host: fact(**{name: tuple(own_entries) for name, own_entries in rank_event_list.items()})
        for host, rank_event_list in hosts.items()
    }


def start_events(run: SmokeRun, device: str = "NVIDIA H100 80GB HBM3") -> list[RankEvent]:
    events: list[RankEvent] = []
    for place in run.plan.places:
        cpu = place.device < 0
        rank_device = (
            RankDevice(-1, "cpu", "") if cpu else RankDevice(place.device, device, f"GPU-{place.host}-{place.device}")
        )
        if not place.local:
            events.append(TorchImported(place.rank, 0.8, "2.13.0", "3.11.7", "2.3.4"))
        events.append(RankJoined(place.rank, 0.05, place.host, run.plan.world, rank_device, "2.13.0", "2.3.4"))
    return events


def started(run: SmokeRun, events: Iterable[RankEvent] | None = None) -> BY_HOST:
    from doctor.facts.smoke.first_stages import ConnectFailed, RankExited, RankFailed

    fields: dict[type[RankEvent], str] = {
        TorchImported: "imported",
        ConnectFailed: "connect_failed",
        RankJoined: "joined",
        RankFailed: "failed",
        RankExited: "exited",
    }
    return _spread(run, SmokeStart, fields, start_events(run) if events is None else events)


def collective_events(run: SmokeRun) -> list[RankEvent]:
    ops = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
    events: list[RankEvent] = []
    for gid, (_, members) in run.groups.items():
        for rank in members:
            events += [CollectiveChecked(rank, gid, op, ("float32", "bfloat16", "int64"), 6) for op in ops]
            events.append(CollectiveTimes(rank, gid, "all_reduce", 1 << 20, (0.01, 0.011, 0.01)))
    return events


def collectives(run: SmokeRun, *more: RankEvent, events: Iterable[RankEvent] | None = None) -> BY_HOST:
    from doctor.facts.smoke.collectives import CollectiveWrong, DtypeUnsupported, SecondRound, SoakCounts, SoakInterval

    fields: dict[type[RankEvent], str] = {
        CollectiveChecked: "checked",
        CollectiveWrong: "wrong",
        DtypeUnsupported: "unsupported",
        CollectiveTimes: "speed",
        SoakCounts: "soaked",
        SoakInterval: "intervals",
        SecondRound: "second_rounds",
    }
    return _spread(run, SmokeCollectives, fields, [*(collective_events(run) if events is None else events), *more])


def pairs(run: SmokeRun, events: Iterable[PairTimes]) -> BY_HOST:
    return _spread(run, SmokePairs, {PairTimes: "pairs"}, events)


def pace(
    run: SmokeRun,
    compute: dict[int, Sequence[float]],
    waited: dict[int, Sequence[float]] | None = None,
    attempts: int = 2,
) -> BY_HOST:
    """Times by rank, the same each of the times that they were measured."""
    waits = waited or {}
    events = [
        PaceTimes(rank, tuple(waits.get(rank, ())), tuple(compute.get(rank, ())), attempt)
        for rank in {**compute, **waits}
        for attempt in range(attempts)
    ]
    return _spread(run, SmokePace, {PaceTimes: "paced"}, events)


DEVICE_TESTS = {"product bfloat16": 1.1e12, "memory": 1 << 30, "host to device": 1 << 28}
"""Work of the device test, and what one piece of it amounts to."""


def device_events(
    run: SmokeRun, model: str = "Ascend910B3", slow: Mapping[tuple[int, str], float] = {}, attempts: int = 2
) -> list[RankEvent]:
    """Sound devices that differ by 2 % at most; ``slow``: times as long, by rank and test, in all measurements."""
    events: list[RankEvent] = []
    for place in run.plan.places:
        for test, amount in DEVICE_TESTS.items():
            factor = (1 + 0.005 * (place.rank * 7 % 5)) * slow.get((place.rank, test), 1.0)
            seconds = tuple(0.002 * factor * (1 + 0.001 * (piece * 13 % 11)) for piece in range(40))
            fingerprint = 99 if test.startswith("product") else None
            events += [
                DeviceTimes(place.rank, test, model, amount, seconds, fingerprint, attempt=attempt)
                for attempt in range(attempts)
            ]
    return events


def devices(run: SmokeRun, *more: RankEvent, events: Iterable[RankEvent] | None = None) -> BY_HOST:
    fields: dict[type[RankEvent], str] = {DeviceTimes: "times", DeviceMiscomputed: "wrong", DeviceUntested: "untested"}
    return _spread(run, SmokeDevices, fields, [*(device_events(run) if events is None else events), *more])


BLOCK_NUMBER = 1000
"""Digests of a healthy run are small numbers that tell what they stand for."""


def blocks(world: int) -> int:
    """Blocks of data in a step."""
    return world * -(-8 // world)


def training_events(run: SmokeRun, layouts: Iterable[int] | None = None, steps: int = 4) -> list[RankEvent]:
    """The reference, and every layout equal to it."""
    world = run.plan.world
    losses = tuple(4.6 - 0.3 * step for step in range(steps))
    norms = tuple(1.5 - 0.1 * step for step in range(steps))
    total = blocks(world)
    ids = {step: tuple(BLOCK_NUMBER * (step + 1) + block for block in range(total)) for step in range(steps)}
    masks = {step: tuple(BLOCK_NUMBER * (step + 101) + block for block in range(total)) for step in range(steps)}
    update = {"embed": 1.0, "block0.attention": 2.0, "block0.mlp": 2.0, "head": 1.0}
    events: list[RankEvent] = [ReferenceRun(rank, losses, norms, 7000 + steps, 7000) for rank in range(world)]
    events += [ReferenceBlocks(0, step, ids[step], masks[step]) for step in range(steps)]
    events.append(ReferenceUpdate(0, {**update}))
    for number in range(len(run.plan.layouts)) if layouts is None else layouts:
        layout = run.plan.layouts[number]
        # Squares of norms add up over the ranks that hold one model, or one shard each.
        holders = layout.tp * layout.pp
        part_of_norm, part_of_mean = holders**-0.5, (holders * (layout.dp if layout.zero else 1)) ** -0.5
        for rank in range(world):
            stage, data, part = place_in(layout, rank)
            mine = tuple(range(data * total // layout.dp, (data + 1) * total // layout.dp))
            shard = 10 * stage + part
            fresh = 7000 if data == 0 else 7500 + rank
            events.append(LayoutBegun(rank, number, fresh + shard, 7000 + shard, 7100 + stage))
            for step in range(steps):
                drawn: dict[str, int | None] = {
                    name: 100 * step + 10 * place + data + 1 for place, name in enumerate(GENERATORS)
                }
                events.append(
                    TrainingStep(
                        rank,
                        number,
                        step,
                        losses[step],
                        mine,
                        tuple(ids[step][block] for block in mine),
                        tuple(masks[step][block] for block in mine),
                        drawn,
                        (norms[step] + 0.01 * (rank + 1)) * part_of_norm,
                        norms[step] * part_of_mean,
                        8000 + 100 * step + shard + (10_000 * data if layout.zero else 0),
                        9000 + 100 * step + shard,
                        9500 + 100 * step + stage,
                    )
                )
            events.append(LayoutEnded(rank, number, {name: square / holders for name, square in update.items()}, 0.1))
    return events


GENERATORS = ("python", "numpy", "torch", "device", "dropout")


def place_in(layout: Layout, rank: int) -> tuple[int, int, int]:
    """The rank's pipeline stage, data-parallel index and tensor-parallel index."""
    return rank // (layout.dp * layout.tp), rank // layout.tp % layout.dp, rank % layout.tp


def training(run: SmokeRun, events: Iterable[RankEvent] | None = None) -> BY_HOST:
    fields: dict[type[RankEvent], str] = {
        ReferenceRun: "reference",
        ReferenceRepeated: "reference_repeated",
        ReferenceBlocks: "reference_blocks",
        ReferenceUpdate: "reference_update",
        LayoutBegun: "begun",
        TrainingStep: "steps",
        LayoutEnded: "ended",
        ShardedStep: "sharded",
        CallParts: "parts",
    }
    return _spread(run, SmokeTraining, fields, training_events(run) if events is None else events)


def learned(run: SmokeRun, events: Iterable[RankEvent]) -> BY_HOST:
    return _spread(
        run, SmokeLearning, {LearnedParameters: "learned", ShardedStep: "sharded", CallParts: "parts"}, events
    )


def learning(run: SmokeRun, losses: dict[int, Sequence[float | None]]) -> BY_HOST:
    """Losses by rank, from step 0."""
    events = [
        LearningStep(rank, step, loss) for rank, own_entries in losses.items() for step, loss in enumerate(own_entries)
    ]
    return _spread(run, SmokeLearning, {LearningStep: "steps"}, events)


def loader_events(run: SmokeRun, workers: int = 2, layout: int = 0) -> list[RankEvent]:
    """Loaders that are seeded by the data-parallel index of a layout."""
    names = ("python", "numpy", "torch")
    events: list[RankEvent] = []
    for place in run.plan.places:
        data = place_in(run.plan.layouts[layout], place.rank)[1]
        digests: dict[str, int | None] = {name: 100 * data + number for number, name in enumerate(names)}
        seeds = tuple(1000 * (data + 1) + worker for worker in range(workers))
        events.append(LoaderResult(place.rank, workers, digests, seeds, 0.2, layout=layout, dp=data))
    return events


def loader(run: SmokeRun, events: Iterable[RankEvent] | None = None) -> BY_HOST:
    return _spread(run, SmokeLoader, {LoaderResult: "loaded"}, loader_events(run) if events is None else events)


def native(run: SmokeRun, events: Iterable[RankEvent]) -> BY_HOST:
    from doctor.facts.smoke.further_stages import NativeResult

    return _spread(run, SmokeNative, {NativeResult: "native"}, events)


def run_check(name: str, run: SmokeRun | Absent, *facts: BY_HOST) -> Outcome:
    """The check's outcome on the run and on the facts of its hosts, beside the checks that may explain its findings."""
    hosts: dict[str, list[Fact]] = {}
    if isinstance(run, SmokeRun):
        hosts = {place.host: [] for place in run.plan.places}
    for fact in facts:
        for host, own_value in fact.items():
            hosts.setdefault(host, []).append(own_value)
    outcomes: dict[str, Outcome] = {}
    names = [name]
    for needed in names:
        outcomes[needed] = evaluate_check(check(needed), tuple(hosts), Facts(hosts), {SmokeRun: run})
        causes = (cause for finding in outcomes[needed].findings for cause in finding.explained_by)
        names += [cause for cause in dict.fromkeys(causes) if cause not in names]
    checks = [check(needed) for needed in names]
    return resolve_causes(Report("", tuple(hosts), tuple(outcomes.values())), checks).outcomes[0]


def root_causes(outcome: Outcome) -> set[str]:
    """The checks that explain why hosts, or the fleet, are unknown."""
    return {reason.root_cause for reason in outcome.unknown.values()}


def findings_of(name: str, run: SmokeRun, *facts: BY_HOST) -> tuple[Finding, ...]:
    """What the check finds; a check that broke is a failed test."""
    outcome = run_check(name, run, *facts)
    assert not outcome.crashed, outcome.crashed
    return outcome.findings


def page(name: str, finding: Finding) -> str:
    """What to do, with the finding's values and each of its hosts, as a report fills it."""
    from doctor.engine.result import fill_template

    text = check(name).section("What to do")
    return "\n".join(fill_template(text, {**finding.values, "host": host}) for host in finding.hosts or ("",))
