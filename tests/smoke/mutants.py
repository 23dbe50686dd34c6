"""Programs that train wrongly, each in one way: what they are, which check catches them, and why.

    python -m tests.smoke.mutants [--ranks 2 4] [--seeds 3] [NAME ...]

runs all of them on real processes, with guilty ranks drawn at random, and says how many were told rightly.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from doctor.analysis.causes import resolve_causes
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Fact
from doctor.engine.result import Finding, Outcome, Report
from doctor.facts.smoke.events import events_of_type
from doctor.facts.smoke.first_stages import RankJoined, SmokeStart, TorchImported
from doctor.facts.smoke.further_stages import (
    LearningStep,
    LoaderResult,
    NativeResult,
    SmokeLearning,
    SmokeLoader,
    SmokeNative,
)
from doctor.facts.smoke.training import (
    LayoutBegun,
    LayoutEnded,
    ReferenceBlocks,
    ReferenceRun,
    ReferenceUpdate,
    SmokeTraining,
    TrainingStep,
)
from doctor.smoke.model import Layout, SmokeRun
from doctor.smoke.numerics.analyze import analyze_training
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.losses import loss_of
from doctor.smoke.numerics.reference_run import MajorityReference, majority_reference, relative_error
from doctor.smoke.plan import default_layouts
from doctor.smoke.run import programs
from tests.checks.run_check import Facts
from tests.smoke.ranks import Event, Ranks

ZERO, MICRO = "zero", "accumulate"


@dataclass(frozen=True)
class Mutant:
    """One wrong program."""

    name: str
    check: str
    """The one that must lead."""
    why: str
    """Why that check catches it."""
    text: str
    """Appended to the worker's source, after ``GUILTY = ...`` and ``STEP = ...``."""
    ranks: str = "all"
    """Whom the finding must name: ``all``; ``guilty``; ``guilty or tie``: both, where nobody is there to side with;
    ``any``."""
    where: str = "all"
    """In which layouts, as `applies` reads it."""
    stages: tuple[str, ...] = ("training",)
    says: str = ""
    """What the message must hold."""
    least: int = 2
    """Ranks that it takes."""
    sample: bool = False
    """It is among those that every test run tries."""


DRAWS = """
seed_as_told, batch_as_told = CounterRng.seed_of, make_batch

def seed_of(self, kind, step, block):
    number = seed_as_told(self, kind, step, block)
    return number + 1 if kind == getattr(self, "spoilt", "") and step >= FROM else number

def make_batch(ctx, model, rng, step, dropout):
    if model.comm and ctx.rank == GUILTY:
        rng.spoilt = KIND
    return batch_as_told(ctx, model, rng, step, dropout)

CounterRng.seed_of = seed_of
"""

NUMBERS = """
def spoil(method, rank_of=lambda self: self.comm.rank if self.comm else -1):
    '''Replaces a method of Model on the guilty rank, once it trains in parallel.'''
    told = getattr(Model, method.__name__)
    setattr(Model, method.__name__, lambda self, *rest: (method(self, told, *rest)
            if rank_of(self) == GUILTY and recorded_step(self) == STEP else told(self, *rest)))

def recorded_step(self):
    return self.comm.recorder.step
"""


def draws(kind: str, since: str = "0") -> str:
    return f"KIND, FROM = {kind!r}, {since}\n{DRAWS}"


MUTANTS = [
    Mutant(
        "sum for mean",
        "smoke-gradient-summed",
        "the reduced gradient is dp times as long as the reference run's",
        "REDUCE = Model.reduce_gradient\nModel.reduce_gradient = lambda self: REDUCE(self).mul_(self.mesh.dp)",
        where="dp",
        says="times the reference run's: a sum over",
        sample=True,
    ),
    Mutant(
        "sum over ranks and micro-batches",
        "smoke-gradient-summed",
        "the gradient is as many times too long as there are ranks and micro-batches",
        "REDUCE = Model.reduce_gradient\n"
        "def reduce_gradient(self):\n"
        "    return REDUCE(self).mul_(self.mesh.dp * (self.micro_batch_count if self.mesh.pp == 1 else 1))\n"
        "Model.reduce_gradient = reduce_gradient",
        where="dp",
    ),
    Mutant(
        "sum over micro-batches",
        "smoke-gradient-summed",
        "the gradient is as many times too long as there are micro-batches",
        "LEARN = Model.forward_backward\n"
        "def forward_backward(self, batch):\n"
        "    loss = LEARN(self, batch)\n"
        "    self.gradient.mul_(self.micro_batch_count if self.mesh.pp == 1 else 1)\n"
        "    return loss\n"
        "Model.forward_backward = forward_backward",
        where=MICRO,
        says="micro-batches",
        sample=True,
    ),
    Mutant(
        "no sync",
        "smoke-gradient-not-synchronised",
        "each rank's gradient is the same number before and after the reduction, and another on every rank",
        "REDUCE = Model.reduce_gradient\n"
        "Model.reduce_gradient = lambda self: REDUCE(self) if self.zero else self.gradient",
        where="dp, not zero",
        says="was not reduced",
        sample=True,
    ),
    Mutant(
        "no sync of a ZeRO shard",
        "smoke-loss-differs",
        "shards are pieces of local gradients, whose norms do not add up to the reference run's",
        "REDUCE = Model.reduce_gradient\n"
        "Model.reduce_gradient = lambda self: self.gradient[self.owned_slice].clone() if self.zero else REDUCE(self)",
        where=ZERO,
    ),
    Mutant(
        "one rank keeps its own gradient",
        "smoke-gradient-not-synchronised",
        "its gradient alone is the same number before and after the reduction",
        NUMBERS
        + "def reduce_gradient(self, told):\n"
        + "    mine, mean = self.gradient.clone(), told(self)\n"
        + "    return mean if self.zero else self.gradient.copy_(mine)\n"
        + "spoil(reduce_gradient)",
        ranks="guilty",
        where="dp, not zero",
    ),
    Mutant(
        "other init of the first rank",
        "smoke-loss-differs",
        "all ranks agree, the loss of step 0 is off, and the parameters have another digest than the reference run's",
        "model_as_told = Model.__init__\n"
        "def init(self, ctx, layout, seed, comm=None):\n"
        "    model_as_told(self, ctx, layout, seed + (comm is not None), comm)\n"
        "Model.__init__ = init",
        where="dp alone",
        says="begins with other parameters",
        sample=True,
    ),
    Mutant(
        "other init of one tp rank",
        "smoke-parameters-diverge",
        "tensors that are not cut differ inside the tensor-parallel group before the first step",
        "model_as_told = Model.__init__\n"
        "def init(self, ctx, layout, seed, comm=None):\n"
        "    model_as_told(self, ctx, layout, seed + (comm is not None and ctx.rank == GUILTY), comm)\n"
        "Model.__init__ = init",
        ranks="guilty or tie",
        where="tp alone",
        says="before the first step",
        sample=True,
    ),
    Mutant(
        "no broadcast",
        "smoke-parameters-not-broadcast",
        "the other data-parallel ranks have the same digest before and after it",
        "Model.broadcast_params = lambda self: None",
        ranks="any",
        where="dp",
        says="has the same parameters as before it",
        sample=True,
    ),
    Mutant(
        "broadcast of another root",
        "smoke-parameters-not-broadcast",
        "the digest after the broadcast is what the second rank had before",
        "def broadcast_params(self):\n"
        "    if self.mesh.dp > 1:\n"
        "        self.comm.broadcast(self.flat, self.mesh.dp_group.ranks[1], self.mesh.dp_group)\n"
        "Model.broadcast_params = broadcast_params",
        ranks="any",
        where="dp",
    ),
    Mutant(
        "duplicate shard",
        "smoke-shards-wrong",
        "block numbers and tokens are those of the first rank's blocks",
        "blocks_as_told = Mesh.blocks\n"
        "def blocks(self, count):\n"
        "    share = count // self.dp\n"
        "    return range(share) if self.dp_rank == self.dp - 1 else blocks_as_told(self, count)\n"
        "Mesh.blocks = blocks",
        ranks="any",
        where="dp",
        says="are read twice",
        sample=True,
    ),
    Mutant(
        "overlapping shard",
        "smoke-shards-wrong",
        "one block of its share is its neighbour's",
        "blocks_as_told = Mesh.blocks\n"
        "def blocks(self, count):\n"
        "    mine = blocks_as_told(self, count)\n"
        "    return range(mine.start - 1, mine.stop - 1) if mine.start and self.dp_rank == self.dp - 1 else mine\n"
        "Mesh.blocks = blocks",
        ranks="any",
        where="dp",
        says="are read twice",
    ),
    Mutant(
        "missing shard",
        "smoke-shards-wrong",
        "one block of the last share is read by nobody",
        "blocks_as_told = Mesh.blocks\n"
        "def blocks(self, count):\n"
        "    mine = blocks_as_told(self, count)\n"
        "    return mine[:-1] if self.dp > 1 and self.dp_rank == self.dp - 1 and len(mine) > 1 else mine\n"
        "Mesh.blocks = blocks",
        ranks="any",
        where="dp, shares of several blocks",
        says=" are not read",
        sample=True,
    ),
    Mutant(
        "shards swapped",
        "smoke-shards-wrong",
        "every block is read once, but not by the rank that it is meant for; no loss would show it",
        "blocks_as_told = Mesh.blocks\n"
        "def blocks(self, count):\n"
        "    if self.dp > 1 and self.dp_rank < 2:\n"
        "        share = count // self.dp\n"
        "        return range((1 - self.dp_rank) * share, (2 - self.dp_rank) * share)\n"
        "    return blocks_as_told(self, count)\n"
        "Mesh.blocks = blocks",
        ranks="any",
        where="dp",
        says="by the wrong rank",
        sample=True,
    ),
    Mutant(
        "another order of the data on one rank",
        "smoke-shards-wrong",
        "its tokens have the digests of other blocks than it says",
        "samples_as_told = block_samples\n"
        "batch_as_told = make_batch\n"
        "shift = [0]\n"
        "def block_samples(seed, step, count):\n"
        "    drawn = samples_as_told(seed, step, count)\n"
        "    return drawn[shift[0]:] + drawn[:shift[0]]\n"
        "def make_batch(ctx, model, rng, step, dropout):\n"
        "    shift[0] = int(model.comm is not None and ctx.rank == GUILTY)\n"
        "    return batch_as_told(ctx, model, rng, step, dropout)\n",
        ranks="guilty",
    ),
    *[
        Mutant(
            f"mask: {kind} alone",
            "smoke-mask-differs",
            f"the digest of what {kind} drew differs inside one model, and with it the mask's",
            draws(kind),
            ranks="guilty",
            says=f"{kind}'s draws",
            sample=kind == "numpy",
        )
        for kind in ("python", "numpy", "torch", "device")
    ],
    Mutant(
        "mask: late",
        "smoke-mask-differs",
        "until step 1 the digests agree, from step 2 on they do not",
        draws("torch", "2"),
        ranks="guilty",
        says="from step 2 on",
        sample=True,
    ),
    Mutant(
        "dropout under tensor parallelism",
        "smoke-mask-differs",
        "what dropout kept has another digest inside one model; the masks agree",
        draws("dropout"),
        ranks="guilty or tie",
        where="model",
        says="dropout numbers",
        sample=True,
    ),
    Mutant(
        "no NumPy on one rank",
        "smoke-mask-differs",
        "the mask lacks one generator's say; the reference run differs too, and is explained by it",
        "load_as_told = load_libraries\n"
        "run_as_told = run_rank\n"
        "def run_rank(orders, rank, events, recorder):\n"
        "    global numpy\n"
        "    numpy = None if rank == GUILTY else numpy\n"
        "    run_as_told(orders, rank, events, recorder)\n",
        ranks="guilty or tie",
        where="model",
    ),
    Mutant(
        "equal seeds on all dp ranks",
        "smoke-mask-repeated",
        "every generator's draws have the digests of the first data-parallel rank's",
        "seed_as_told = CounterRng.seed_of\n"
        "batch_as_told = make_batch\n"
        "def seed_of(self, kind, step, block):\n"
        "    return seed_as_told(self, kind, step, block - getattr(self, 'origin', 0))\n"
        "def make_batch(ctx, model, rng, step, dropout):\n"
        "    if model.comm:\n"
        "        rng.origin = model.mesh.blocks(block_count(ctx.world_size)).start\n"
        "    return batch_as_told(ctx, model, rng, step, dropout)\n"
        "CounterRng.seed_of = seed_of",
        ranks="any",
        where="dp",
        says="for other data",
    ),
    Mutant(
        "equal NumPy seeds on all dp ranks",
        "smoke-mask-repeated",
        "NumPy's draws alone have the digests of the first data-parallel rank's",
        "seed_as_told = CounterRng.seed_of\n"
        "batch_as_told = make_batch\n"
        "def seed_of(self, kind, step, block):\n"
        "    return seed_as_told(self, kind, step, block - (getattr(self, 'origin', 0) if kind == 'numpy' else 0))\n"
        "def make_batch(ctx, model, rng, step, dropout):\n"
        "    if model.comm:\n"
        "        rng.origin = model.mesh.blocks(block_count(ctx.world_size)).start\n"
        "    return batch_as_told(ctx, model, rng, step, dropout)\n"
        "CounterRng.seed_of = seed_of",
        ranks="any",
        where="dp",
        says="numpy's draws",
        sample=True,
    ),
    Mutant(
        "shifted ZeRO shard",
        "smoke-loss-differs",
        "the gradient is right in step 0, the loss off in step 1, with ZeRO alone",
        "reduce_as_told = Model.reduce_gradient\n"
        "def reduce_gradient(self):\n"
        "    if self.zero:\n"
        "        self.gradient.copy_(self.gradient.view(self.mesh.dp, -1).roll(1, 0).reshape(-1))\n"
        "    return reduce_as_told(self)\n"
        "Model.reduce_gradient = reduce_gradient",
        where=ZERO,
        says="another shard of the parameters",
        sample=True,
    ),
    Mutant(
        "no all-reduce in the forward pass",
        "smoke-loss-differs",
        "the loss of step 0 is off, and tensors that are not cut part in the same step",
        "def tp_exit(self, part):\n"
        "    self.nonfinite.record_output('activations', part)\n"
        "    return part\n"
        "Model.tp_exit = tp_exit",
        where="tp",
        says="the forward pass lacks an all-reduce",
        sample=True,
    ),
    Mutant(
        "no all-reduce in the backward pass",
        "smoke-loss-differs",
        "the loss of step 0 is right, its gradient is not; tensors that are not cut part in the same step",
        "Model.tp_enter_backward = lambda self, gradient: gradient",
        where="tp",
        says="the backward pass lacks an all-reduce",
        sample=True,
    ),
    Mutant(
        "permuted tensor-parallel shard",
        "smoke-loss-differs",
        "the loss of step 0 is off, and tensors that are not cut stay alike: a whole model, but another one",
        "share_as_told = Model.tp_share\n"
        "def tp_share(self, name, weight):\n"
        "    other = weight.roll(len(weight) // self.mesh.tp, 0)\n"
        "    return share_as_told(self, name, other if name == '0.up' else weight)\n"
        "Model.tp_share = tp_share",
        where="tp",
        says="permuted shards",
        sample=True,
    ),
    Mutant(
        "learning rate 0",
        "smoke-update-missing",
        "no tensor changed while the gradient was not zero",
        "update_as_told = Model.update\n"
        "Model.update = lambda self, gradient, optimizer: (\n"
        "    None if self.comm else update_as_told(self, gradient, optimizer))",
        says="changed no parameter",
        sample=True,
    ),
    Mutant(
        "frozen tensor",
        "smoke-update-missing",
        "its change has the norm 0, the reference run's has not",
        "update_as_told = Model.update\n"
        "def update(self, gradient, optimizer):\n"
        "    before = self.flat.clone()\n"
        "    update_as_told(self, gradient, optimizer)\n"
        "    if self.comm and '1.up' in self.spans:\n"
        "        self.flat[self.spans['1.up']] = before[self.spans['1.up']]\n"
        "Model.update = update",
        ranks="any",
        says="1.up did not move",
        sample=True,
    ),
    Mutant(
        "learning rate too high",
        "smoke-loss-differs",
        "the gradient of step 0 is right, all updates are larger by one factor",
        "sgd_as_told = sgd\n"
        "train_as_told = train_layout\n"
        "rate = [0.5]\n"
        "def sgd(weights, gradient):\n"
        "    weights.add_(gradient, alpha=-rate[0])\n"
        "def train_layout(ctx, index, layout):\n"
        "    rate[0] = 0.55\n"
        "    return train_as_told(ctx, index, layout)\n",
    ),
    Mutant(
        "NaN in one rank's activations",
        "smoke-not-finite",
        "that rank's part is bad before the others' is added to it",
        NUMBERS + "def tp_exit(self, told, part):\n    return told(self, part * float('nan'))\nspoil(tp_exit)",
        ranks="guilty",
        says="activations",
        sample=True,
    ),
    Mutant(
        "Inf in one rank's gradient",
        "smoke-not-finite",
        "its local norm is not finite before the reduction",
        NUMBERS
        + "def reduce_gradient(self, told):\n    return told(self)\n"
        + "trained_as_told = train_step\n"
        + "norm_as_told = Model.norm_share\n"
        + "def forward_backward(self, told, batch):\n"
        + "    loss = told(self, batch)\n"
        + "    self.gradient[3] = float('inf')\n"
        + "    return loss\n"
        + "spoil(forward_backward)",
        ranks="guilty",
        says="gradient",
    ),
    Mutant(
        "bit flip in a reduced gradient",
        "smoke-gradient-not-synchronised",
        "one rank's digest differs from its data-parallel group's",
        NUMBERS
        + "def reduce_gradient(self, told):\n"
        + "    mean = told(self)\n"
        + "    mean.view(torch.int32)[7] ^= (1 << 3) * (self.mesh.dp > 1)\n"
        + "    return mean\n"
        + "spoil(reduce_gradient)",
        ranks="guilty or tie",
        where="dp, not zero",
        says="another gradient than",
        sample=True,
    ),
    Mutant(
        "wrong sum on one rank",
        "smoke-gradient-not-synchronised",
        "one rank's digest differs from its data-parallel group's",
        NUMBERS
        + "def reduce_gradient(self, told):\n"
        + "    return told(self).mul_(1 if self.zero or self.mesh.dp == 1 else 1.001)\n"
        + "spoil(reduce_gradient)",
        ranks="guilty or tie",
        where="dp, not zero",
    ),
    Mutant(
        "bit flip in a parameter",
        "smoke-parameters-diverge",
        "all gradients agree, the parameters of one rank do not",
        NUMBERS
        + "def update(self, told, gradient, optimizer):\n"
        + "    told(self, gradient, optimizer)\n"
        + "    self.flat.view(torch.int32)[11] ^= 1 << 5\n"
        + "spoil(update)",
        ranks="guilty or tie",
        where="dp",
        sample=True,
    ),
    Mutant(
        "wrong arithmetic on one rank",
        "smoke-reference-differs",
        "the rank's own reference run is another one than the others'",
        "embed_as_told = Model.embed\n"
        "guilty = [False]\n"
        "run_as_told = run_rank\n"
        "def run_rank(orders, rank, events, recorder):\n"
        "    guilty[0] = rank == GUILTY\n"
        "    run_as_told(orders, rank, events, recorder)\n"
        "def embed(self, words):\n"
        "    return embed_as_told(self, words) * (1.01 if guilty[0] else 1)\n"
        "Model.embed = embed",
        ranks="guilty or tie",
        sample=True,
    ),
    Mutant(
        "arithmetic that is wrong once",
        "smoke-reference-differs",
        "the rank's own reference run, computed twice, gives two gradients",
        "embed_as_told, calls, guilty = Model.embed, [0], [False]\n"
        "run_as_told = run_rank\n"
        "def run_rank(orders, rank, events, recorder):\n"
        "    guilty[0] = rank == GUILTY\n"
        "    run_as_told(orders, rank, events, recorder)\n"
        "def embed(self, words):\n"
        "    calls[0] += 1\n"
        "    x = embed_as_told(self, words)\n"
        "    return x + 3 * torch.eye(*x.shape[1:]) if guilty[0] and calls[0] == 2 else x\n"
        "Model.embed = embed",
        ranks="guilty",
        says="does not repeat",
        sample=True,
    ),
    Mutant(
        "a loss that is off by a hundredth on one rank",
        "smoke-loss-differs",
        "its loss is not the reference run's of the same blocks, and that of all others is",
        NUMBERS
        + "def forward_backward(self, told, batch):\n"
        + "    loss = told(self, batch)\n"
        + "    return None if loss is None else loss * 1.01\n"
        + "spoil(forward_backward)",
        ranks="guilty",
        where="dp alone",
        says="of the same blocks",
        sample=True,
    ),
    Mutant(
        "loader worker",
        "smoke-loader-seed-differs",
        "its workers drew other numbers than those of the rank that holds the same model",
        "seed_as_told = loader_seed\nloader_seed = lambda ctx: seed_as_told(ctx) + 7 * (ctx.rank == GUILTY)",
        ranks="guilty or tie",
        where="model",
        stages=("loader",),
        least=4,
    ),
    Mutant(
        "loader workers alike on all dp ranks",
        "smoke-loader-seed-differs",
        "data-parallel ranks' workers drew the same numbers",
        "loader_seed = lambda ctx: 5",
        ranks="any",
        where="dp",
        stages=("loader",),
        says="same numbers",
        sample=True,
    ),
    Mutant(
        "wrapper left in no_sync",
        "smoke-native-differs",
        "the wrapper never reduces, so its loss of step 1 is off; layouts of plain collectives equal the reference run",
        "Replicated.gradient_sync = lambda self, is_last: self.module.no_sync()",
        ranks="any",
        where="dp",
        stages=("training", "native"),
        says="DistributedDataParallel",
        sample=True,
    ),
    Mutant(
        "learning rate a hundredth",
        "smoke-loss-stalled",
        "after ten steps the loss is still at ln 64",
        "adam_as_told = Adam.__call__\n"
        "def adam(self, weights, gradient):\n"
        "    before = weights.clone()\n"
        "    adam_as_told(self, weights, gradient)\n"
        "    weights.copy_(before + (weights - before) / 100)\n"
        "Adam.__call__ = adam",
        ranks="any",
        stages=("learning",),
        sample=True,
    ),
]


def applies(mutant: Mutant, layout: Layout) -> bool:
    """Whether the wrong program is wrong in this layout."""
    return {
        "all": True,
        "dp": layout.dp > 1,
        "dp, not zero": layout.dp > 1 and not layout.zero,
        "dp, shares of several blocks": layout.dp > 1 and -(-8 // layout.world) * layout.world > layout.dp,
        "dp alone": layout.tp == layout.pp == 1,
        "tp": layout.tp > 1,
        "tp alone": layout.tp > 1 and layout.dp == layout.pp == 1,
        "model": layout.tp * layout.pp > 1,
        ZERO: layout.zero,
        MICRO: layout.accumulate > 1,
    }[mutant.where]


def fits(mutant: Mutant, world: int) -> bool:
    return world >= mutant.least and any(applies(mutant, layout) for layout in default_layouts(world))


def run(mutant: Mutant | None, world: int, guilty: int, step: int = 1, **more: Any) -> Ranks:
    """The wrong program, or the right one, on real processes."""
    stages = mutant.stages if mutant else ("training", "learning", "loader")
    text = f"GUILTY, STEP = {guilty}, {step}\n{mutant.text}\n" if mutant else ""
    if "native" in stages:
        text = f"{programs.program(('native',)).removeprefix(programs.worker())}\nPRELOADED_MODULES.clear()\n{text}"
    chosen = {"layouts": default_layouts(world), "seed": 1000 + world, "seconds": 90.0, **more}
    ranks = Ranks(world, stages, text, **chosen)
    assert not ranks.of("error"), ranks.of("error")
    assert len(ranks.of("done")) == world, ranks.error_output
    return ranks


KINDS: dict[type[Fact], dict[str, type[Any]]] = {
    SmokeStart: {"imported": TorchImported, "joined": RankJoined},
    SmokeTraining: {
        "reference": ReferenceRun,
        "reference_blocks": ReferenceBlocks,
        "reference_update": ReferenceUpdate,
        "begun": LayoutBegun,
        "steps": TrainingStep,
        "ended": LayoutEnded,
    },
    SmokeLearning: {"steps": LearningStep},
    SmokeLoader: {"loaded": LoaderResult},
    SmokeNative: {"native": NativeResult},
}
OURS = {
    "smoke-mask-differs",
    "smoke-mask-repeated",
    "smoke-shards-wrong",
    "smoke-parameters-not-broadcast",
    "smoke-parameters-diverge",
    "smoke-gradient-summed",
    "smoke-gradient-not-synchronised",
    "smoke-update-missing",
    "smoke-loss-differs",
    "smoke-loss-stalled",
    "smoke-not-finite",
    "smoke-reference-differs",
    "smoke-loader-seed-differs",
    "smoke-native-differs",
}
"""The checks that judge what was trained."""


def facts(ranks: Ranks) -> dict[str, list[Fact]]:
    """What the ranks said, as the facts of their hosts."""
    hosts: dict[str, list[Fact]] = {}
    for host in dict.fromkeys(place.host for place in ranks.plan.places):
        own_events = [event for event in ranks.events if ranks.plan.host_of(max(event["rank"], 0)) == host]
        for fact, kinds in KINDS.items():
            events = {name: _events(own_events, kind) for name, kind in kinds.items()}
            if any(events.values()):
                hosts.setdefault(host, []).append(fact(**events))  # type: ignore[arg-type]
    return hosts


def _events(events: Sequence[Event], kind: Any) -> tuple[Any, ...]:
    tag = kind.__struct_config__.tag
    return events_of_type(
        msgspec.convert([event for event in events if event["ev"] == tag], tuple[kind, ...], str_keys=True), kind
    )


def outcomes(ranks: Ranks) -> dict[str, Outcome]:
    """What our checks make of it."""
    by_name: Mapping[str, Check] = {check.name: check for check in load_checks() if check.name in OURS}
    hosts = facts(ranks)
    intent: dict[type, object] = {SmokeRun: SmokeRun(plan=ranks.plan)}
    evaluated = tuple(evaluate_check(check, tuple(hosts), Facts(hosts), intent) for check in by_name.values())
    resolved = resolve_causes(Report("", tuple(hosts), evaluated), by_name.values()).outcomes
    return dict(zip(by_name, resolved, strict=True))


def findings_by_check(ranks: Ranks) -> dict[str, tuple[Finding, ...]]:
    """The findings, by check."""
    observed_outcomes = outcomes(ranks)
    broken = {name: outcome.crashed for name, outcome in observed_outcomes.items() if outcome.crashed}
    assert not broken, broken
    return {name: outcome.findings for name, outcome in observed_outcomes.items() if outcome.findings}


def largest_error(trace: LayoutTrace, reference: MajorityReference) -> float:
    """The largest relative difference of a loss from the reference run's."""
    pairs = zip((loss_of(trace, events) for events in trace.steps), reference.losses, strict=False)
    return max(
        (
            relative_error(observed, expected)
            for observed, expected in pairs
            if observed is not None and expected is not None
        ),
        default=0.0,
    )


def errors(ranks: Ranks) -> dict[str, float]:
    """The largest relative difference from the reference run, by layout."""
    training = {
        host: fact for host, all_of in facts(ranks).items() for fact in all_of if isinstance(fact, SmokeTraining)
    }
    reference = majority_reference(training)
    assert reference is not None
    trained: Sequence[LayoutTrace] = analyze_training(ranks.plan, training).traces
    return {course.layout.name: largest_error(course, reference) for course in trained}


def problems(mutant: Mutant, ranks: Ranks, guilty: int) -> Iterator[str]:
    """What is not as it should be about the verdict: the check, alone; the layouts; the ranks; the words."""
    findings = findings_by_check(ranks)
    if set(findings) != {mutant.check}:
        yield f"found by {', '.join(findings) or 'nothing'}; expected {mutant.check} alone"
    for finding in findings.get(mutant.check, ()):
        values = finding.values
        # Where no rank shares a model with another, nobody has the same draws to compare.
        alone = values.get("generators") == [] and all(layout.tp == layout.pp == 1 for layout in ranks.plan.layouts)
        if mutant.says not in str(finding) and not alone:
            yield f"says {finding}; expected {mutant.says!r} in it"
        expected = {
            "all": [*range(len(ranks.plan.places))],
            "guilty": [guilty],
        }.get(mutant.ranks)
        if mutant.ranks == "guilty or tie":
            expected = values["ranks"] if values["tie"] and guilty in values["ranks"] else [guilty]
        if expected is not None and sorted(values["ranks"]) != expected:
            yield f"names ranks {values['ranks']}; expected {expected}: {finding}"
    named = {name for finding in findings.get(mutant.check, ()) for name in finding.values.get("layouts", ())}
    missed = {layout.name for layout in ranks.plan.layouts if applies(mutant, layout)} - named
    if mutant.check in findings and named and missed:
        yield f"not seen in {', '.join(sorted(missed))}"


def tried(mutant: Mutant, world: int, guilty: int) -> list[str]:
    try:
        return list(problems(mutant, run(mutant, world, guilty), guilty))
    except (AssertionError, TimeoutError) as error:
        return [f"it did not run: {str(error)[:300]}"]


def main() -> int:
    expected = argparse.ArgumentParser(description=__doc__)
    expected.add_argument("names", nargs="*", help="mutants; default all")
    expected.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    expected.add_argument("--seeds", type=int, default=1)
    options = expected.parse_args()
    dice, wrong, trials, began = random.Random(1), 0, 0, time.monotonic()
    for mutant in MUTANTS:
        for world in options.ranks:
            for _ in range(options.seeds):
                guilty = dice.randrange(world)
                if (options.names and mutant.name not in options.names) or not fits(mutant, world):
                    continue
                found_wrong = tried(mutant, world, guilty)
                trials, wrong = trials + 1, wrong + bool(found_wrong)
                print(f"{'WRONG' if found_wrong else 'right'} {mutant.name}, {world} ranks, rank {guilty}", flush=True)
                for line in found_wrong:
                    print("      " + line, flush=True)
    print(f"{trials - wrong} of {trials} told rightly in {time.monotonic() - began:.0f} s")
    return 1 if wrong or not trials else 0


if __name__ == "__main__":
    sys.exit(main())
