"""Wrong numbers on one rank of a training with a sharded optimizer (ZeRO-1), and whom the checks name.

python -m tests.smoke.sharded 40 --seed 1
python -m tests.smoke.sharded 20 --seed 1 --late

A number becomes wrong at one place of the step: in the gradient that the rank computes, in what it gives to the
reduce_scatter, in the shard that it gets, in its update, in what it gives to the all_gather, or in what it gets of it.
Right: the host of that rank alone is named. One of: of two that had the number in hand, both are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from doctor.smoke.model import Layout
from tests.smoke.corrupted import STAGES, outcomes_of
from tests.smoke.ranks import Ranks

PLACES = ("gradient", "given to scatter", "scattered", "mean", "update", "updated", "given to gather", "gathered")
HOW = ("bit", "byte", "element", "row", "shifted", "scaled", "rounded", "negated", "swapped", "nan")
STRUCK = """
import types as _types

_hook = _types.ModuleType("hook")
_hook.__file__ = "/nowhere/hook.py"
exec({hook!r}, _hook.__dict__)
_rank, _first, _last, _place = {rank}, {first}, {last}, {place!r}
_told = {{name: getattr(Model, name) for name in ("forward_backward", "reduce_gradient", "update")}}
_comm = {{name: getattr(TracedComm, name) for name in ("reduce_scatter", "all_gather")}}


def _strikes(place, model_or_comm):
    comm = getattr(model_or_comm, "comm", None) or model_or_comm
    stage = {stage!r} == "" or _stage[0] == {stage!r}
    at = _first <= comm.recorder.step <= _last if hasattr(comm, "recorder") else False
    done = getattr(comm, "answered", -1) >= 0  # what is done again is done right
    return place == _place and at and stage and not done and getattr(comm, "rank", -1) == _rank


_stage = [""]


def _spoil(tensor):
    with torch.no_grad():
        tensor.copy_(_hook.changed(tensor.clone(), {fault!r}))


def _forward_backward(self, batch):
    loss = _told["forward_backward"](self, batch)
    if self.zero and self.comm and _strikes("gradient", self):
        _spoil(self.gradient)
    return loss


def _reduce_gradient(self):
    _training[0] = self.zero
    mean = _told["reduce_gradient"](self)
    _training[0] = False
    if self.zero and _strikes("mean", self):
        _spoil(mean)
    return mean


def _update(self, gradient, optimizer):
    def struck(weights, gradient):
        if self.zero and _strikes("update", self):
            gradient = gradient.clone()
            _spoil(gradient)
        optimizer(weights, gradient)
        if self.zero and _strikes("updated", self):
            _spoil(weights)
    _training[0] = self.zero
    _told["update"](self, gradient, struck)
    _training[0] = False


def _reduce_scatter(self, out, tensor, group):
    if _training[0] and _strikes("given to scatter", self):
        _spoil(tensor)
    _comm["reduce_scatter"](self, out, tensor, group)
    if _training[0] and _strikes("scattered", self):
        _spoil(out)


def _all_gather(self, out, tensor, group):
    if _training[0] and _strikes("given to gather", self):
        tensor = tensor.clone()
        _spoil(tensor)
    _comm["all_gather"](self, out, tensor, group)
    if _training[0] and _strikes("gathered", self):
        _spoil(out)


_training = [False]


def _in(name, function):
    def run(ctx):
        _stage[0] = name
        function(ctx)
    return run


for _name in ("training", "learning"):
    STAGE_FUNCTIONS[_name] = _in(_name, STAGE_FUNCTIONS[_name])
Model.forward_backward, Model.reduce_gradient, Model.update = _forward_backward, _reduce_gradient, _update
TracedComm.reduce_scatter, TracedComm.all_gather = _reduce_scatter, _all_gather
"""
"""Appended to the worker's program; a step of the guilty rank is changed at one place, in layouts that shard alone."""


class Fault(NamedTuple):
    """Where, how and when one rank's number becomes wrong."""

    place: str
    how: str
    hosts: int
    per_host: int
    rank: int
    first: int
    last: int
    stage: str
    """Empty: in both."""
    at: int
    """Of the number."""
    others: bool
    """Layouts without shards are trained, too."""


def faults(count: int, seed: int, late: bool = False) -> list[Fault]:
    """Seeded; every place as often as every other. ``late``: in the learning stage, behind the steps that are kept."""
    rng, made = Random(seed), []
    for number in range(count):
        hosts, per_host = rng.choice([(3, 1), (4, 1), (5, 1), (7, 1), (2, 2), (3, 2), (4, 2), (8, 1)])
        first = rng.choice([0, 1, 2])
        last = rng.choice([first, 99])
        place = PLACES[number % len(PLACES)]
        rank = rng.randrange(hosts * per_host)
        stage = rng.choice(["training", "training", "learning", ""])
        if late:
            first, stage = rng.randrange(17, 30), "learning"
            last = rng.choice([first, 99])
        made.append(Fault(place, rng.choice(HOW), hosts, per_host, rank, first, last, stage, rng.randrange(9000),
                          stage != "learning" and rng.random() < 0.5))  # fmt: skip
    return made


class Judged(NamedTuple):
    verdict: str
    failed: dict[str, list[str]]
    messages: tuple[str, ...]
    seconds: float


def carry_out(fault: Fault, seed: int) -> Judged:
    began, world = time.monotonic(), fault.hosts * fault.per_host
    hosts = [f"w{number}" for number in range(fault.hosts) for _ in range(fault.per_host)]
    hook = (Path(__file__).parent / "outside_hook.py").read_text("utf-8")
    damage = {"how": fault.how, "place": fault.at, "bit": 6}
    text = STRUCK.format(hook=hook, rank=fault.rank, first=fault.first, last=fault.last, place=fault.place,
                         stage=fault.stage, fault=damage)  # fmt: skip
    layouts = [*([Layout(dp=world)] if fault.others else []), Layout(dp=world, zero=True)]
    ranks = Ranks(world, STAGES, text, seconds=200, layouts=layouts, hosts=hosts, seed=seed,
                  learn_steps=max(10, fault.first + 3))  # fmt: skip
    outcomes = outcomes_of(ranks, hosts)
    failed = {name: sorted({host for finding in some for host in finding[0]}) for name, some in outcomes.items()}
    named, guilty = {host for some in failed.values() for host in some}, hosts[fault.rank]
    verdict = "missed" if not failed else "right" if named == {guilty} else "one of" if guilty in named else "wrong"
    if verdict == "one of" and len(named) == fault.hosts > 2:
        verdict = "vague"
    errors = tuple(str(event)[:300] for event in ranks.of("error"))
    messages = tuple(text for some in outcomes.values() for _, text in some)
    return Judged(verdict, failed, messages + errors, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, default=-1)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault, to go on with")
    parser.add_argument("--late", action="store_true", help="behind the steps of which all is kept")
    requested = parser.parse_args()
    verdicts: Counter[str] = Counter()
    for number, fault in enumerate(faults(requested.count, requested.seed, requested.late)):
        if number < requested.first or requested.only not in (-1, number):
            continue
        judged = carry_out(fault, requested.seed * 1000 + number)
        verdicts[judged.verdict] += 1
        where = f"{fault.hosts}x{fault.per_host}, rank {fault.rank}, step {fault.first}-{fault.last} {fault.stage}"
        print(f"{number:3} {judged.verdict:7} {fault.place}, {fault.how} ({where}{', other layouts' * fault.others}): "
              f"{judged.failed}, {judged.seconds:.0f} s", flush=True)  # fmt: skip
        for text in judged.messages if judged.verdict != "right" else ():
            print(f"      {text[:400]}", flush=True)
    print(json.dumps(verdicts))
    return 0 if verdicts.keys() <= {"right", "one of"} else 1


if __name__ == "__main__":
    sys.exit(main())
