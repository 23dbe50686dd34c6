"""The native stage: the layouts once more, with what users really train with. This text is sent behind the worker's.

Same parameters, rows, masks and dropout as in the training stage, so that the losses must be the serial twin's here,
too. What this torch does not have is said; its collectives are torch's own, and the black box knows only the step.
"""

# ruff: noqa: F821, B905, UP031 - it runs behind the worker, whose names it uses, on Python 3.8 and later
# mypy: ignore-errors

import inspect

IMPORTS += [  # half a second to two, once for all ranks of the host instead of in each
    "torch._dynamo",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.fx.experimental.symbolic_shapes",
    "torch.nn.parallel",
    "torch.utils.checkpoint",
]


def native(one):
    """Each layout of the plan, by every way that torch has for it."""
    want = NativeTwin(one).losses()
    for index, layout in enumerate(one.plan["layouts"]):
        for way in ways_to(layout):
            trainer, text = built(one, layout, way)
            losses = trainer.losses() if agreed(one, trainer is not None) else []
            text = text or ("" if losses else "another rank could not")
            one.say("native", layout=index, api=way.api(layout), losses=losses, twin=want, text=text)


STAGE_FUNCTIONS["native"] = native


def built(one, layout, way):
    """A trainer, or None and what hinders it in this torch."""
    try:
        return way(one, layout), ""
    except (ImportError, NotImplementedError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        if any(word in str(error) for word in FOLLOWS):
            raise
        words = (str(error).splitlines() or [""])[0][:300]
        return None, "torch %s: %s: %s" % (torch.__version__, type(error).__name__, words)


def agreed(one, ready):
    """Whether all ranks are: what one stage of a pipeline lacks, another may not miss."""
    lacking = torch.tensor([0 if ready else 1], device=one.device)
    one.comm.all_reduce(lacking, one.comm.world)
    return not int(lacking)


def ways_to(layout):
    """The wrappers that a layout is trained with."""
    if layout.get("tp", 1) > 1 or layout.get("pp", 1) > 1:
        return [Composed]
    if layout.get("zero"):
        return [ShardedOptimizer]
    if layout.get("accumulate", 1) > 1 or layout.get("recompute"):
        return [Replicated]
    return [Replicated, Composed]


def stage_module(weights, layers, first, last, recompute):
    """A pipeline stage as users write it, with the worker's weights in it."""
    nn = torch.nn

    def linear(weight):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
        return layer

    def norm(weight):
        layer = nn.LayerNorm(WIDTH, bias=False)
        layer.weight = nn.Parameter(weight.clone())
        return layer

    class Layer(nn.Module):
        def __init__(self, scale, qkv, out, up, down):
            super().__init__()
            self.norm = norm(scale)
            # The worker keeps a head's numbers apart; a column-parallel layer cuts whole heads out.
            self.q, self.k, self.v = (linear(part.transpose(0, 1).flatten(0, 1)) for part in qkv)
            self.out, self.up, self.down = linear(out), linear(up), linear(down)

        def forward(self, x, kept):
            h = self.norm(x)
            q, k, v = (part(h).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in (self.q, self.k, self.v))
            seen = nn.functional.scaled_dot_product_attention(q, k, v)
            attention = self.out(seen.transpose(1, 2).flatten(2))
            return x + (attention + self.down(nn.functional.gelu(self.up(h)))) * kept

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            if first:
                self.words = linear(weights["words"].t())
                self.places = nn.Parameter(weights["places"].clone())
            own = [[weights["%d.%s" % (number, name)] for name in LAYER] for number in layers]
            self.layers = nn.ModuleList([Layer(*parts) for parts in own])
            if last:
                self.norm, self.head = norm(weights["norm"]), linear(weights["head"])

        def forward(self, x, kept):
            if first:
                x = self.words(x) + self.places
            for number, layer in zip(layers, self.layers):
                if recompute:
                    x = torch.utils.checkpoint.checkpoint(layer, x, kept[:, number], use_reentrant=False)
                else:
                    x = layer(x, kept[:, number])
            return self.head(self.norm(x)) if last else x

    return Stage()


def loss_of(scores, goal):
    """The mean loss over masked places. The goal holds which places and which words, side by side."""
    picks, targets = goal.split([SEQUENCE, WORDS], -1)
    return -((picks @ scores).log_softmax(-1) * targets).sum(-1).mean()


class Trainer:
    """What all ways have in common: the rank's rows, the steps, and the loss of all ranks together."""

    parallel = True

    def __init__(self, one, layout):
        self.one, self.layout = one, layout
        self.mesh = Mesh(layout, one.rank, one.comm) if self.parallel else Mesh(layout)
        self.dice = Dice(one.plan["seed"], one.device)
        self.micro = max(self.mesh.pp, layout.get("accumulate", 1))
        self.module = self.wrapped(self.made(self.seed()).to(one.device))
        self.optimizer = self.make_optimizer()

    def seed(self):
        return self.one.plan["seed"]

    def made(self, seed):
        """The module of this rank's pipeline stage."""
        mesh, count = self.mesh, depth(self.one.plan)
        layers = range(count * mesh.pp_at // mesh.pp, count * (mesh.pp_at + 1) // mesh.pp)
        return stage_module(initial(seed, count), layers, mesh.first, mesh.last, self.layout.get("recompute", False))

    def wrapped(self, module):
        return module

    def make_optimizer(self):
        return torch.optim.SGD(self.module.parameters(), lr=0.5, foreach=False)

    def losses(self):
        """The loss of every step over all rows, the same on every rank."""
        told = torch.zeros(self.one.plan["steps"], device=self.one.device)
        for step in range(len(told)):
            batch = batch_of(self.one, self, self.dice, step, True)
            self.optimizer.zero_grad()
            loss = self.learn(batch.words, batch.kept.transpose(0, 1), torch.cat([batch.picks, batch.targets], -1))
            self.optimizer.step()
            if loss is not None:
                told[step] = loss
        if self.parallel:
            self.one.comm.all_reduce(told, self.one.comm.world)
            told /= self.mesh.dp * self.mesh.tp
        return [number(loss) for loss in told]

    def learn(self, words, kept, goal):
        """Forward and backward, in micro-batches of one size; gives the mean loss."""
        total = 0.0
        parts = list(zip(words.chunk(self.micro), kept.chunk(self.micro), goal.chunk(self.micro)))
        for place, (words, kept, goal) in enumerate(parts, 1):
            with self.adding(place == len(parts)):
                loss = loss_of(self.module(words, kept), goal) / len(parts)
                loss.backward()
            total = total + loss.detach()
        return total

    def adding(self, last):
        """Around each micro-batch: whether its gradient is the one that completes the step."""
        return contextlib.nullcontext()


class NativeTwin(Trainer):
    """The same module in one process, unwrapped."""

    parallel = False

    def __init__(self, one):
        super().__init__(one, {})


class Replicated(Trainer):
    """Data parallelism; the wrapper broadcasts the first rank's parameters."""

    @staticmethod
    def api(layout):
        extras = ", no_sync" * (layout.get("accumulate", 1) > 1) + ", checkpoint" * layout.get("recompute", False)
        return "DistributedDataParallel" + extras

    def seed(self):
        return own_seed(self.one, self.layout)

    def wrapped(self, module):
        return torch.nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)

    def adding(self, last):
        return contextlib.nullcontext() if last else self.module.no_sync()


class ShardedOptimizer(Replicated):
    """The same, with the optimizer's state spread over the ranks."""

    @staticmethod
    def api(layout):
        return Replicated.api(layout) + ", ZeroRedundancyOptimizer"

    def make_optimizer(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(self.module.parameters(), torch.optim.SGD, lr=0.5)


class Composed(Trainer):
    """Any mixture, as large models are trained: DTensor for tp, fully_shard for dp, a schedule for pp."""

    @staticmethod
    def api(layout):
        parts = {"pp": "ScheduleGPipe", "tp": "parallelize_module", "dp": "fully_shard"}
        used = [name for axis, name in parts.items() if layout.get(axis, 1) > 1] or ["fully_shard"]
        return ", ".join(used) + ", checkpoint" * layout.get("recompute", False)

    def wrapped(self, module):
        from torch.distributed.device_mesh import init_device_mesh

        mesh, axes = self.mesh, ("pp", "dp", "tp")
        devices = init_device_mesh(self.one.device.type, (mesh.pp, mesh.dp, mesh.tp), mesh_dim_names=axes)
        if mesh.tp > 1:
            module = self.cut(module, devices["tp"])
        if mesh.dp > 1 or mesh.pp * mesh.tp == 1:
            fully_shard = find_fully_shard()
            for part in (*module.layers, module):
                fully_shard(part, mesh=devices["dp"])
        if mesh.pp > 1:
            self.schedule = self.pipeline(module, devices["pp"].get_group())
        return module

    def cut(self, module, devices):
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {}
        for at in range(len(module.layers)):
            plan.update({"layers.%d.%s" % (at, name): ColwiseParallel() for name in ("q", "k", "v", "up")})
            plan.update({"layers.%d.%s" % (at, name): RowwiseParallel() for name in ("out", "down")})
        if self.mesh.last:
            plan["head"] = ColwiseParallel(output_layouts=find_replicate()())
        return parallelize_module(module, devices, plan)

    def pipeline(self, module, group):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        stage = PipelineStage(module, self.mesh.pp_at, self.mesh.pp, self.one.device, group=group)
        # Older schedules always leave the sum over micro-batches as it is.
        scale = {"scale_grads": False} if "scale_grads" in inspect.signature(ScheduleGPipe).parameters else {}
        return ScheduleGPipe(stage, self.micro, loss_fn=self.part_of_loss, **scale)

    def part_of_loss(self, scores, goal):
        return loss_of(scores, goal) / self.micro

    def learn(self, words, kept, goal):
        if self.mesh.pp == 1:
            return super().learn(words, kept, goal)
        losses = []
        if self.mesh.first:
            self.schedule.step(words, kept=kept)
        elif self.mesh.last:
            self.schedule.step(kept=kept, target=goal, losses=losses)
        else:
            self.schedule.step(kept=kept)
        return sum(loss.detach() for loss in losses) if self.mesh.last else None


def find_fully_shard():
    """FSDP2, by the name that it has in this torch."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard


def find_replicate():
    try:
        from torch.distributed.tensor import Replicate
    except ImportError:
        from torch.distributed._tensor import Replicate
    return Replicate
