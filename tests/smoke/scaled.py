"""A run of any size, with what real workers say in it.

The data of a step and its random numbers, the reference run and its digests come from the worker's own code, which
needs no other rank for them. What ranks compute together is made up, and has the worker's form: see
`tests.smoke.test_scale`.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from doctor.facts.smoke.events import RankEvent
from doctor.facts.smoke.training import (
    LayoutBegun,
    LayoutEnded,
    ReferenceBlocks,
    ReferenceRun,
    ReferenceUpdate,
    TrainingStep,
)
from doctor.smoke.model import Layout, SmokeRun
from doctor.smoke.plan import default_layouts, plan_as_dict
from doctor.smoke.protocol import parse_event
from tests.checks.smoke import place_in, ran, training_events
from tests.smoke.ranks import worker

STEPS = 3
PER_HOST = 8
GENERATORS = ("python", "numpy", "torch", "device")


def run_of(world: int, layouts: Sequence[Layout] = ()) -> SmokeRun:
    """A complete run on hosts of eight ranks each."""
    return ran(world, max(1, world // PER_HOST), layouts=tuple(layouts) or default_layouts(world), steps=STEPS)


def lone_rank(run: SmokeRun, rank: int) -> tuple[Any, list[RankEvent]]:
    """The worker's context of one rank that never communicates, and what it emits."""
    names, emitted = worker(), list[RankEvent]()
    recorder = types.SimpleNamespace(mark=lambda *values: None, step=0)

    def emit(ev: str, **values: Any) -> None:
        emitted.append(parse_event(msgspec.json.encode({"ev": ev, "rank": rank, **values})))

    events, device = types.SimpleNamespace(emit=emit), names["torch"].device("cpu")
    return names["RankContext"](plan_as_dict(run.plan), rank, device, recorder, events, None), emitted


@cache
def draws(world: int, layer_count: int) -> list[list[dict[str, Any]]]:
    """By step and block: what each generator draws."""
    names = worker()
    rng = names["CounterRng"](1, names["torch"].device("cpu"))
    steps = []
    for step in range(STEPS):
        blocks = []
        for block in range(names["block_count"](world)):
            scores = rng.mask_scores(step, block)
            drawn = {kind: names["struct"].pack(f"{len(numbers)}d", *numbers) for kind, numbers in scores.items()}
            blocks.append({**drawn, "dropout": rng.dropout_mask(step, block, layer_count)})
        steps.append(blocks)
    return steps


@cache
def reference(world: int) -> tuple[RankEvent, ...]:
    """What rank 0 and rank 1 say of their reference runs."""
    run, events = run_of(world), list[RankEvent]()
    for rank in (0, 1):
        ctx, emitted = lone_rank(run, rank)
        worker()["reference_run"](ctx)
        events += emitted
    return tuple(events)


def events_of(run: SmokeRun) -> list[RankEvent]:
    """The training stage of all ranks."""
    world = run.plan.world
    by_kind: dict[Any, list[Any]] = {
        kind: [entry for entry in reference(world) if isinstance(entry, kind)] for kind in REFERENCE
    }
    first, other = by_kind[ReferenceRun]
    references = [first, *(msgspec.structs.replace(other, rank=rank) for rank in range(1, world))]
    steps = step_data(by_kind[ReferenceBlocks])
    layers = max(2, *(layout.pp for layout in run.plan.layouts))
    drawn = draws(world, layers)
    rng = {
        (step, dp, index): digests(drawn[step][slice(*share(world, dp, index))])
        for dp in {layout.dp for layout in run.plan.layouts}
        for step in range(STEPS)
        for index in range(dp)
    }
    events: list[RankEvent] = [*references, *by_kind[ReferenceBlocks], *by_kind[ReferenceUpdate]]
    for event in training_events(run, steps=STEPS):
        if isinstance(event, TrainingStep):
            layout = run.plan.layouts[event.layout]
            index = place_in(layout, event.rank)[1]
            start, stop = share(world, layout.dp, index)
            ids, masks = (row[start:stop][:60] for row in steps[event.step])
            event = msgspec.structs.replace(
                event, ids=ids, masks=masks, blocks=tuple(range(start, stop))[:60],
                rng=rng[event.step, layout.dp, index], **measured(first, event, layout, index),
                **errors(layout, event, len(references[event.rank].losses)), **messages(layout, event, world),
            )  # fmt: skip
        elif isinstance(event, LayoutBegun):
            event = begun(event, first, run.plan.layouts[event.layout])
        elif isinstance(event, REFERENCE):
            continue
        events.append(ended(event, by_kind[ReferenceUpdate][0], run.plan.layouts))
    return events


def digests(blocks: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Of what each generator drew for these blocks together, as a rank emits it."""
    digest, cat = worker()["digest"], worker()["torch"].cat
    drawn: dict[str, int] = {kind: digest(b"".join(block[kind] for block in blocks)) for kind in GENERATORS}
    return {**drawn, "dropout": digest(cat([block["dropout"] for block in blocks], 1))}


REFERENCE = (ReferenceRun, ReferenceBlocks, ReferenceUpdate)


def step_data(rows: Sequence[Any]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """By step: the digests of all blocks' tokens, and of their masks."""
    result = []
    for step in range(STEPS):
        own_steps = [entry for entry in rows if entry.step == step]
        result.append(
            (tuple(n for entry in own_steps for n in entry.ids), tuple(n for entry in own_steps for n in entry.masks))
        )
    return result


def share(world: int, dp: int, index: int) -> tuple[int, int]:
    """The blocks of a data-parallel index: the first, and the one behind the last."""
    count: int = worker()["block_count"](world)
    return index * count // dp, (index + 1) * count // dp


def measured(first: ReferenceRun, event: TrainingStep, layout: Layout, index: int) -> dict[str, Any]:
    """Loss and gradient: shares of the reference run's, with the rounding of a sum over all ranks."""
    loss, grad = first.losses[event.step], first.grads[event.step]
    assert loss is not None and grad is not None
    holders = layout.tp * layout.pp
    off = 0.3 * (2 * index / (layout.dp - 1) - 1) if layout.dp > 1 else 0.0  # the mean over the indices is 0
    stage = place_in(layout, event.rank)[0]
    rounding = 1 + 1e-7 * (event.rank % 5 - 2)
    return {
        "loss": loss + off if stage == layout.pp - 1 else None,
        "grad": grad * (holders * (layout.dp if layout.zero else 1)) ** -0.5 * rounding,
        "grad_local": grad * (1.3 + 0.1 * (event.rank % 7)) * holders**-0.5,
    }


def messages(layout: Layout, event: TrainingStep, world: int) -> dict[str, dict[int, int]]:
    """What a rank sent to the stages beside its own and received from them: the same digests at both ends."""
    stride, stage = world // layout.pp, place_in(layout, event.rank)[0]
    peers = [event.rank + way * stride for way in (-1, 1) if 0 <= stage + way < layout.pp]
    return {"sent": dict.fromkeys(peers, event.rank), "received": {peer: peer for peer in peers}}


def errors(layout: Layout, event: TrainingStep, known: int) -> dict[str, float | None]:
    """How far a healthy rank is from its own reference run, in the steps that it has done of it."""
    last = place_in(layout, event.rank)[0] == layout.pp - 1
    far = 2e-7 if event.step < known else None
    return {"grad_error": far, "params_error": far, "loss_error": far if last else None}


def begun(event: LayoutBegun, first: ReferenceRun, layout: Layout) -> LayoutBegun:
    """Of a layout without tp and pp, the first rank's parameters are the reference run's."""
    event = msgspec.structs.replace(event, error=0.0)
    if layout.tp * layout.pp > 1:
        return event
    return msgspec.structs.replace(event, params=first.init, before=first.init if event.rank == 0 else event.before)


def ended(event: RankEvent, update: Any, layouts: Sequence[Layout]) -> RankEvent:
    """The squared norms of the changes in the rank's pipeline stage: shares of the reference run's."""
    if not isinstance(event, LayoutEnded):
        return event
    layout = layouts[event.layout]
    stage = place_in(layout, event.rank)[0]
    own_steps = {
        name: square / layout.tp for name, square in update.update.items() if stage_of(name, layout.pp) == stage
    }
    return msgspec.structs.replace(event, update=own_steps)


def stage_of(name: str, stages: int) -> int:
    """The pipeline stage, of one or two, that holds a parameter: ``words``, ``places`` and layer 0 are in the first."""
    return 0 if stages == 1 or name in ("words", "places") or name.startswith("0.") else 1
