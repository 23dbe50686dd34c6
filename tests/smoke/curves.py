"""The loss rule on real trainings: the worker's own model, in one process, many seeds of seven kinds.

    python -m tests.smoke.curves [--seeds 1000] [--first 0] [--processes 2]

Two kinds learn, and must be called falling; five do not, and must not.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

from doctor.smoke.numerics.learned import MIN_STEPS, false_alarm_rate, final_level, stall_reason
from tests.smoke.ranks import worker

LEARNING = ("learns", "learns slowly")
"""Slowly: with a quarter of the learning rate."""
STUCK = ("frozen", "a hundredth of the rate", "labels at random", "no context", "ascent")
"""No context: every place of a row has a topic of its own, so that no other word tells anything."""
RATES = {"learns slowly": 0.25, "frozen": 0.0, "a hundredth of the rate": 0.01, "ascent": -1.0}


def curve(kind: str, seed: int, steps: int = MIN_STEPS) -> list[float]:
    """The losses of one training."""
    names = worker()
    torch = names["torch"]
    torch.set_num_threads(1)
    recorder = SimpleNamespace(mark=lambda state: None, step=0)
    device = torch.device("cpu")
    ctx = SimpleNamespace(plan={"layouts": [{}]}, world_size=1, rank=0, device=device, recorder=recorder)
    model, rng, adam = names["Model"](ctx, {}, seed), names["CounterRng"](seed, device), names["Adam"]()
    chance = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(steps):
        batch = names["make_batch"](ctx, model, rng, step, False)
        spoil(kind, batch, chance, names)
        losses.append(float(model.forward_backward(batch)))
        before = model.flat.clone()
        model.update(model.reduce_gradient(), adam)
        model.flat.copy_(before + RATES.get(kind, 1.0) * (model.flat - before))
    return losses


def spoil(kind: str, batch: Any, chance: Any, names: dict[str, Any]) -> None:
    """Other labels, or other words, for the kinds that are wrong in their data."""
    torch, vocabulary, topics = names["torch"], names["VOCABULARY"], names["TOPICS"]
    if kind == "labels at random":
        batch.targets = torch.eye(vocabulary)[torch.randint(1, vocabulary, batch.targets.shape[:2], generator=chance)]
    if kind == "no context":
        places = names["SEQUENCE_LENGTH"]
        rows = torch.arange(places) * topics + 1
        rows = rows + torch.randint(0, topics, (len(batch.inputs), places), generator=chance)
        masked = batch.selectors.argmax(-1)
        batch.inputs = torch.eye(vocabulary)[rows.scatter(1, masked, 0)]
        batch.targets = torch.eye(vocabulary)[rows.gather(1, masked)]


def levels(seeds: Sequence[int], kinds: Sequence[str] = (*LEARNING, *STUCK)) -> Iterator[tuple[str, int, list[float]]]:
    """Every kind with every seed."""
    for seed in seeds:
        for kind in kinds:
            yield kind, seed, curve(kind, seed)


def mistakes(curves: Sequence[tuple[str, int, list[float]]]) -> list[str]:
    """Where the rule is wrong."""
    return [
        f"{kind}, seed {seed}: ends at {final_level(losses):.2f}, called {stall_reason(losses) or 'falling'}"
        for kind, seed, losses in curves
        if bool(stall_reason(losses)) != (kind in STUCK)
    ]


def chunk(seeds: Sequence[int]) -> list[tuple[str, int, list[float]]]:
    return list(levels(seeds))


def main() -> int:
    expected = argparse.ArgumentParser(description=__doc__)
    expected.add_argument("--seeds", type=int, default=1000)
    expected.add_argument("--first", type=int, default=0)
    expected.add_argument("--processes", type=int, default=2)
    options = expected.parse_args()
    events: list[tuple[str, int, list[float]]] = []
    end = options.first + options.seeds
    parts = [range(start, min(start + 10, end)) for start in range(options.first, end, 10)]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("forkserver")) as pool:
        for number, part in enumerate(pool.map(partial(chunk), parts)):
            events += part
            if number % 10 == 9:
                print(f"{len(events)} trainings, {len(mistakes(events))} mistakes", flush=True)
    ends = defaultdict(list)
    for kind, _, losses in events:
        ends[kind].append(final_level(losses))
    for kind, values in ends.items():
        values.sort()
        print(f"{kind:24s} ends at {values[0]:.2f} .. {values[len(values) // 2]:.2f} .. {values[-1]:.2f}")
    wrong = mistakes(events)
    print("\n".join(wrong))
    print(
        f"{len(wrong)} mistakes in {len(events)} trainings;"
        f" with none, under {false_alarm_rate(options.seeds):.1%} of runs (95 %)"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
