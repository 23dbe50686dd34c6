"""A rank's part of a training, done again by the rank alone, with what the others had sent it in place of collectives.

Whatever the layout: what becomes another number then, the rank has computed wrongly once, or its memory has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.optimizer_shards import distance
from doctor.smoke.programs.worker.rng import BLOCK_ROWS, CounterRng

MOST_RECORDED = 32
"""Steps of a layout that are kept: some 10 MB at most."""


class Recording:
    """A `TracedComm` whose calls of a model are kept with what the rank gave and got, to be answered alike later."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.calls: list[tuple[torch.Tensor | None, Any]] = []
        self.steps: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        """Behind each step: the parameters, and the losses of the rank's blocks."""
        self.start: Any = None
        """The parameters before the first step; None: nothing is kept yet."""
        self.answered = -1
        """Calls that have been answered; -1: they are made."""
        self.departs = 0.0
        """How far what the rank gave to a call that was answered was from what it had given, as a share."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def call(self, given: torch.Tensor | None, got: torch.Tensor | None, run: Callable[[], object]) -> None:
        """Makes a call, or answers it as it was answered before. Raises: RuntimeError, as torch's call does or did."""
        if self.answered >= 0:
            before, after = self.calls[self.answered]
            self.answered += 1
            if isinstance(after, RuntimeError):
                raise after
            if given is not None and before is not None:
                self.departs = max(self.departs, departure(given, before))
            if got is not None:
                got.detach().copy_(after)
            return
        keeps = self.start is not None and len(self.steps) < MOST_RECORDED
        before = given.detach().clone() if given is not None and keeps else None
        answer: Any = got
        try:
            run()
        except RuntimeError as error:
            answer = error
            raise
        finally:
            if keeps:
                self.calls.append((before, answer.detach().clone() if isinstance(answer, torch.Tensor) else answer))

    def all_reduce(self, tensor: torch.Tensor, group: Any) -> None:
        self.call(tensor, tensor, lambda: self.comm.all_reduce(tensor, group))

    def all_gather(self, out: torch.Tensor, tensor: torch.Tensor, group: Any) -> None:
        self.call(tensor, out, lambda: self.comm.all_gather(out, tensor, group))

    def reduce_scatter(self, out: torch.Tensor, tensor: torch.Tensor, group: Any) -> None:
        self.call(tensor, out, lambda: self.comm.reduce_scatter(out, tensor, group))

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        self.call(tensor, None, lambda: self.comm.send(tensor, peer))

    def recv(self, tensor: torch.Tensor, peer: int) -> None:
        self.call(None, tensor, lambda: self.comm.recv(tensor, peer))

    def keep_step(self, model: Any) -> None:
        """What the step that has just been done came to."""
        if len(self.steps) < MOST_RECORDED:
            self.steps.append((model.flat.clone(), block_losses(model)))


def block_losses(model: Any) -> torch.Tensor | None:
    """Of the model's last batch, the mean loss of each block of rows; None where the rank computes none."""
    return torch.cat(model.row_losses).view(-1, BLOCK_ROWS).mean(1) if model.row_losses else None


def departure(values: torch.Tensor, before: torch.Tensor) -> float:
    """How far they are from what they were before, as a share; 0 where that was not finite, which others may send."""
    return distance(values, before) if torch.isfinite(before).all() else 0.0


def replay(
    ctx: RankContext, model: Any, recording: Recording, batch_of: Callable[..., Any], optimizer: Any, dropout: bool
) -> float:
    """Does each kept step of the model again, from the parameters before it; how far it departs from itself at most.

    ``batch_of``: as `make_batch`. ``optimizer``: a new one.
    """
    recording.answered, before, departs = 0, recording.start, 0.0
    rng = CounterRng(ctx.plan["seed"], ctx.device)
    for step, (after, losses) in enumerate(recording.steps):
        with torch.no_grad():
            model.flat.copy_(before)
        model.forward_backward(batch_of(ctx, model, rng, step, dropout))
        again = block_losses(model)
        if losses is not None and again is not None:
            departs = max(departs, departure(again, losses))
        model.update(model.reduce_gradient(), optimizer)
        departs = max(departs, departure(model.flat - before, after - before))
        before = after
    return max(departs, recording.departs)
