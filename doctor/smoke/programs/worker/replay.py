"""A rank's part of a training, done again by the rank alone, with what the others had sent it in place of collectives.

In any layout: what becomes another number then, the rank has computed wrongly once, or its memory has changed.
A CPU does the training stage again in double precision: by other instructions, on other bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.parameters import sgd
from doctor.smoke.programs.worker.rng import BLOCK_ROWS, CounterRng
from doctor.smoke.programs.worker.values import relative_distance

MOST_RECORDED = 64
"""Steps of a layout that are kept whole: 20 MB at most."""
TENSORS = {"all_reduce": (0, 0), "all_gather": (1, 0), "reduce_scatter": (1, 0), "send": (0, None), "recv": (None, 0)}
"""By call of a model: which of its arguments the rank gives, and in which it gets the answer."""
ORDINARY = 1e6
"""What is smaller overflows in no step, in single precision as little as in double; healthy numbers are below 100."""


class KeptCall(NamedTuple):
    """A call of a model as it was made."""

    op: str
    group: Any
    """Of a message: the peer."""
    sent: Any
    altered: float
    """How far what was sent was from itself behind the call, in its own memory, as a share."""
    got: Any
    """A tensor, or the error that it raised."""


class RecordedComm:
    """A `TracedComm` whose calls of a model are kept with what the rank gave and got, to be answered alike later."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.calls: list[KeptCall] = []
        self.steps: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        """Behind each step: the parameters, and the losses of the rank's blocks."""
        self.start: Any = None
        """The parameters before the first step; None: nothing is kept yet."""
        self.answered = -1
        """Calls that have been answered; -1: they are made."""
        self.departs = 0.0
        """How far what the rank gave to a call that was answered was from what it had given, as a share."""
        self.is_ordinary = True
        """Of the step that is done again, nothing so far came to the rank that makes its numbers overflow."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.comm, name)
        return (lambda *arguments: self.call(name, function, arguments)) if name in TENSORS else function

    @property
    def is_keeping(self) -> bool:
        """Whether calls that are made are kept."""
        return self.start is not None and len(self.steps) < MOST_RECORDED

    def call(self, name: str, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Makes a call, or answers it as it was answered before. Raises: RuntimeError, as torch's call does or did."""
        sent, got = (None if place is None else arguments[place] for place in TENSORS[name])
        if self.answered >= 0:
            self.answer(self.calls[self.answered], sent, got)
            return
        if not self.is_keeping:
            function(*arguments)
            return
        before, answer = None if sent is None else sent.detach().clone(), got
        try:
            function(*arguments)
        except RuntimeError as error:
            answer = error
            raise
        finally:
            altered = 0.0 if sent is None or sent is got else departure(sent, before)
            kept = answer.detach().clone() if isinstance(answer, torch.Tensor) else answer
            self.calls.append(KeptCall(name, arguments[-1], before, altered, kept))

    def answer(self, call: KeptCall, sent: torch.Tensor | None, got: torch.Tensor | None) -> None:
        self.answered += 1
        if isinstance(call.got, RuntimeError):
            raise call.got
        if sent is not None and self.is_ordinary:
            self.departs = max(self.departs, departure(sent, call.sent))
        if got is not None:
            got.detach().copy_(call.got)
            self.is_ordinary &= bool(call.got.abs().max() < ORDINARY)

    def keep_step(self, model: Any) -> None:
        """What the step that has just been done came to."""
        if len(self.steps) < MOST_RECORDED:
            self.steps.append((model.flat.clone(), block_losses(model)))

    def of_group(self, group: Any) -> list[KeptCall]:
        """The calls of a group that came to their end."""
        return [call for call in self.calls if call.group is group and not isinstance(call.got, RuntimeError)]


def block_losses(model: Any) -> torch.Tensor | None:
    """Of the model's last batch, the mean loss of each block of rows; None where the rank computes none."""
    return torch.cat(model.row_losses).view(-1, BLOCK_ROWS).mean(1) if model.row_losses else None


def distance(values: torch.Tensor, expected: torch.Tensor) -> float:
    """As a share of the expected norm; 1 where that is 0 and the values are not, or where one is not finite."""
    if torch.equal(values, expected):
        return 0.0
    share = relative_distance(values, expected)
    return 1.0 if share is None else share


def departure(values: torch.Tensor, before: torch.Tensor) -> float:
    """How far they are from what they were before, as a share; 0 where both are not finite, which others may send."""
    values = values.to(before)
    return distance(values, before) if torch.isfinite(before).all() else float(torch.isfinite(values).all())


def replay(
    ctx: RankContext, model: Any, recording: RecordedComm, batch_of: Callable[..., Any], optimizer: Any, dropout: bool
) -> float:
    """Does each kept step of the model again, from the parameters before it; how far it departs from itself at most.

    ``batch_of``: as `make_batch`. ``optimizer``: a new one.
    """
    recording.answered, before, departs = 0, recording.start, 0.0
    rng = CounterRng(ctx.plan["seed"], ctx.device)
    for step, (after, losses) in enumerate(recording.steps):
        with torch.no_grad():
            model.flat.copy_(before)
        recording.is_ordinary = bool(before.abs().max() < ORDINARY)
        model.forward_backward(batch_of(ctx, model, rng, step, dropout))
        again = block_losses(model)
        if losses is not None and again is not None and recording.is_ordinary:
            departs = max(departs, departure(again, losses))
        gradient = model.reduce_gradient()
        change, stepped = after - before, -0.5 * gradient  # as `sgd`
        model.update(gradient, optimizer)
        if recording.is_ordinary:
            departs = max(departs, departure(model.flat - before, change))
            if optimizer is sgd:
                departs = max(departs, departure(change[model.owned_slice], stepped))
        before = after
    return max(departs, recording.departs)
