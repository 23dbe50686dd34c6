"""The model, a tiny masked language model in tensor and pipeline parallel, and its first number that is not finite."""

from __future__ import annotations

import math
from typing import Any

from doctor.smoke.programs.process_groups import PlannedLayout
from doctor.smoke.programs.worker.batch import Batch
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.mesh import Mesh
from doctor.smoke.programs.worker.parameters import LAYER_PARAMETERS, ShardedParameters
from doctor.smoke.programs.worker.rng import HIDDEN, SEQUENCE_LENGTH
from doctor.smoke.programs.worker.values import digest


class NonFiniteTracker:
    """Keeps a sum of each input and each output of a part of the model.

    Sums stay on the device until the step is over. They are taken before a reduction mixes in other ranks' numbers.
    """

    def __init__(self) -> None:
        self.sums: list[tuple[str, torch.Tensor]] = []  # the output's kind, or "" for an input
        self.passes: list[tuple[int, int]] = []  # of each pass: how many sums were before it, place of its stage

    def begin_pass(self, place: int) -> None:
        """A micro-batch begins to go through this pipeline stage. ``place``: of the stage in the order of the pass."""
        self.passes.append((len(self.sums), place))

    def record_input(self, tensor: torch.Tensor) -> None:
        """Adds an input of a part of the model."""
        self.sums.append(("", tensor.detach().sum()))

    def record_output(self, kind: str, tensor: torch.Tensor) -> None:
        """Adds an output: ``activations``, ``loss`` or ``gradient``."""
        self.sums.append((kind, tensor.detach().sum()))

    def origin(self) -> str:
        """The kind of the first output that is not finite although all its inputs are.

        ``input`` where only inputs were not finite; empty where all is finite.
        """
        values = self.values()
        inputs_finite, any_nonfinite = True, False
        for (kind, _), value in zip(self.sums, values):
            finite = math.isfinite(value)
            if kind and inputs_finite and not finite:
                return kind
            inputs_finite = bool(kind) or (inputs_finite and finite)
            any_nonfinite = any_nonfinite or not finite
        return "input" if any_nonfinite else ""

    def values(self) -> list[float]:
        values: list[float] = torch.stack([value for _, value in self.sums]).tolist()
        return values

    def first_at(self) -> list[int] | None:
        """When the first sum was not finite: number of the pass, place of the stage in it, number of the sum there.

        Ranks of one layout compare by it, also those of other pipeline stages. None where all is finite.
        """
        at = next((number for number, value in enumerate(self.values()) if not math.isfinite(value)), None)
        if at is None:
            return None
        begun = [each for each in self.passes if each[0] <= at] or [(0, 0)]
        return [len(begun), begun[-1][1], at - begun[-1][0]]


class Messages:
    """What a rank passes on to other pipeline stages, by digests, read before and behind each use."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.sent: dict[int, int] = {}
        """By peer, of all messages together."""
        self.received: dict[int, int] = {}
        self.changed = False
        """Two readings of one message in this rank's memory differ."""
        self.held: dict[int, int] = {}

    def fields(self) -> dict[str, Any]:
        """What an event says of them."""
        return {"sent": self.sent, "received": self.received, "changed": self.changed}

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        before = digest(tensor)
        self.comm.send(tensor, peer)
        self.changed |= digest(tensor) != before
        self.sent[peer] = digest(f"{self.sent.get(peer)} {before}".encode())

    def receive(self, tensor: torch.Tensor, peer: int) -> None:
        self.comm.recv(tensor, peer)
        value = self.held[tensor.data_ptr()] = digest(tensor)
        self.received[peer] = digest(f"{self.received.get(peer)} {value}".encode())

    def reread(self, tensor: torch.Tensor) -> None:
        """What came, when it is used for the last time."""
        self.changed |= digest(tensor) != self.held[tensor.data_ptr()]


class Model(ShardedParameters):
    """One rank's part of the model, and one training step through it."""

    def __init__(self, ctx: RankContext, layout: PlannedLayout, seed: int, comm: Any = None) -> None:
        super().__init__(ctx, layout, seed, comm)
        self.nonfinite = NonFiniteTracker()
        self.row_losses: list[torch.Tensor] = []
        """Of the rows of the last batch, by micro-batch; on the last pipeline stage."""
        self.ctx, self.recompute = ctx, layout.get("recompute", False)
        self.micro_batch_count = max(self.mesh.pp, layout.get("accumulate", 1))
        self.messages = Messages(comm)

    # Tensor parallelism, forward and backward: `tp_enter` and `tp_exit` enclose what each rank computes a share of.

    def tp_all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the tp ranks, as a new tensor."""
        if self.mesh.tp == 1:
            return tensor
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.comm.all_reduce(total, self.mesh.tp_group)
        return total

    def tp_enter(self, x: torch.Tensor) -> torch.Tensor:
        """Forward: unchanged. Backward: the sum of the tp ranks' gradients."""
        self.nonfinite.record_input(x)
        x = x.view_as(x)
        x.register_hook(self.tp_enter_backward)
        return x

    def tp_enter_backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The hook that `tp_enter` registers."""
        self.nonfinite.record_output("gradient", gradient)
        return self.tp_all_reduce(gradient)

    def tp_exit(self, part: torch.Tensor) -> torch.Tensor:
        """Forward: the sum of what the tp ranks computed. Backward: unchanged."""
        self.nonfinite.record_output("activations", part)
        if self.mesh.tp > 1:
            part = part - part.detach() + self.tp_all_reduce(part)  # the value of the sum, the gradient of the part
        part.register_hook(self.nonfinite.record_input)
        return part

    def tp_gather(self, part: torch.Tensor) -> torch.Tensor:
        """Forward: the tp ranks' columns side by side. Backward: each rank's own columns."""
        self.nonfinite.record_output("activations", part)
        if self.mesh.tp > 1:
            gathered = part.new_empty((self.mesh.tp * len(part), *part.shape[1:]))
            self.comm.all_gather(gathered, part.detach().contiguous(), self.mesh.tp_group)
            columns = list(gathered.chunk(self.mesh.tp))
            columns[self.mesh.tp_rank] = part
            part = torch.cat(columns, -1)
        part.register_hook(self.nonfinite.record_input)
        return part

    # The layers.

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Token embedding plus position embedding."""
        x = inputs @ self.weights["words"] + self.weights["places"]
        self.nonfinite.record_output("activations", x)
        return x

    def layer(self, number: int, x: torch.Tensor, dropout_scale: torch.Tensor | None) -> torch.Tensor:
        """Attention and MLP side by side: one sum over the tp ranks serves both."""
        norm, qkv, out, up, down = [self.weights[f"{number}.{name}"] for name in LAYER_PARAMETERS]
        h = self.tp_enter(torch.layer_norm(x, (HIDDEN,), norm))
        # Heads of four numbers: sums of products cost a third of the tiny matrix products, number by number they fit
        # into a cache.
        q, k, v = (h @ qkv.flatten(0, 2).t()).unflatten(2, qkv.shape[:3]).permute(2, 3, 1, 0, 4).contiguous()
        scores = sum(queries[:, None] * keys for queries, keys in zip(q, k)) / math.sqrt(len(q))
        weights = scores.softmax(1)  # by query position, key position, row, head
        heads = torch.stack([(weights * values).sum(1) for values in v])  # by number, position, row, head
        attention = heads.permute(2, 1, 3, 0).flatten(2) @ out.t()
        mlp = torch.nn.functional.gelu(h @ up.t()) @ down.t()
        change = self.tp_exit(attention + mlp)
        return x + (change if dropout_scale is None else change * dropout_scale)

    def recomputed_layer(self, number: int, x: torch.Tensor, dropout_scale: torch.Tensor | None) -> torch.Tensor:
        """The same layer, but no activation is kept: the backward pass computes it again."""
        recomputed: list[torch.Tensor] = []
        saved_count = 0

        def drop(tensor: torch.Tensor) -> int:
            nonlocal saved_count
            saved_count += 1
            return saved_count - 1

        def restore(index: int) -> torch.Tensor:
            if not recomputed:
                hooks = torch.autograd.graph.saved_tensors_hooks(recomputed.append, lambda _: None)
                with torch.enable_grad(), hooks:
                    self.layer(number, x.detach().requires_grad_(), dropout_scale)
            return recomputed[index]

        with torch.autograd.graph.saved_tensors_hooks(drop, restore):
            return self.layer(number, x, dropout_scale)

    def loss(self, x: torch.Tensor, selectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss over masked positions. The head is split by token over tp, its scores are gathered."""
        h = self.tp_enter(torch.layer_norm(selectors @ x, (HIDDEN,), self.weights["norm"]))
        scores = self.tp_gather(h @ self.weights["head"].t())
        self.nonfinite.record_input(scores)
        losses = -(scores.log_softmax(-1) * targets).sum(-1)
        self.row_losses.append(losses.detach().mean(-1))
        loss = losses.mean()
        self.nonfinite.record_output("loss", loss)
        return loss

    # One step.

    def forward(self, batch: Batch, rows: slice) -> tuple[torch.Tensor | None, torch.Tensor]:
        """One micro-batch through this pipeline stage.

        Returns what was received, None on the first stage, and what is sent to the next, on the last stage the loss.
        """
        received = None
        self.nonfinite.begin_pass(self.mesh.pp_rank)
        if self.mesh.is_first_stage:
            x = self.embed(batch.inputs[rows])
        else:
            received = x = torch.empty((rows.stop - rows.start, SEQUENCE_LENGTH, HIDDEN), device=self.device)
            self.messages.receive(received, self.mesh.previous_rank)
            received.requires_grad_()
        run_layer = self.recomputed_layer if self.recompute else self.layer
        for number in self.stage_layers:
            x = run_layer(number, x, None if batch.dropout_scale is None else batch.dropout_scale[number, rows])
        if self.mesh.is_last_stage:
            share = (rows.stop - rows.start) / len(batch)
            return received, self.loss(x, batch.selectors[rows], batch.targets[rows]) * share
        self.messages.send(x.detach().contiguous(), self.mesh.next_rank)
        return received, x

    def backward(self, received: torch.Tensor | None, result: torch.Tensor) -> None:
        """The same micro-batch backward, given what `forward` returned."""
        self.nonfinite.begin_pass(self.mesh.pp - 1 - self.mesh.pp_rank)
        if not self.mesh.is_last_stage:
            gradient = torch.empty_like(result, memory_format=torch.contiguous_format)
            self.messages.receive(gradient, self.mesh.next_rank)
            self.nonfinite.record_input(gradient)
            result = (result * gradient).sum()  # result.backward(gradient) would import sympy: a third of a second
        result.backward()
        if received is not None:
            self.messages.reread(received)
            self.messages.send(received.grad.contiguous(), self.mesh.previous_rank)

    def forward_backward(self, batch: Batch) -> torch.Tensor | None:
        """GPipe: all micro-batches forward, then all backward. Gradients add up.

        Returns the batch's loss on the last pipeline stage, None on the others.
        """
        self.gradient.zero_()
        self.nonfinite, self.row_losses = NonFiniteTracker(), []
        passes = [self.forward(batch, rows) for rows in batch.micro_batches(self.micro_batch_count)]
        for received, result in passes:
            self.backward(received, result)
        return sum(result.detach() for _, result in passes) if self.mesh.is_last_stage else None


def replicas_hold(ctx: RankContext, mesh: Mesh, held: tuple[int, int]) -> bool:
    """Whether all data-parallel ranks have the digests that this one has."""
    if mesh.dp == 1:
        return True
    mine = torch.tensor([value - (1 << 63) for value in held], dtype=torch.int64, device=ctx.device)
    every = mine.new_empty(2 * mesh.dp)
    ctx.comm.all_gather(every, mine, mesh.dp_group)
    return bool(torch.equal(every.view(mesh.dp, 2), mine.expand(mesh.dp, 2)))
