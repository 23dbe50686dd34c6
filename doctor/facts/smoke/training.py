"""The training stage: the serial twin, and each layout step by step. Digests are 8 bytes as an integer."""

from __future__ import annotations

from typing import Literal

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only

Bad = Literal["", "input", "activations", "loss", "gradient", "parameters"]
Digest = int


class Twin(Event, frozen=True, tag="twin"):
    """The run of one process that every layout must equal."""

    losses: tuple[float | None, ...]
    grads: tuple[float | None, ...]
    """Norm of the gradient at each step."""
    params: Digest
    """After the last step."""
    init: Digest
    precision: float | None = None
    """Relative error of a product of two matrices: some devices multiply float32 with fewer bits."""


class TwinBlocks(Event, frozen=True, tag="twin-blocks"):
    """The data of one step, block by block; from rank 0 alone."""

    step: int
    ids: tuple[int, ...]
    masks: tuple[int, ...]
    first: int = 0
    """Number of the first of these blocks: many come in several events."""


class TwinUpdate(Event, frozen=True, tag="twin-update"):
    """The squared norm of what became of each tensor over all steps; from rank 0 alone."""

    update: dict[str, float | None]


class Begun(Event, frozen=True, tag="begin"):
    """A layout begins: digests of the parameters around the first broadcast."""

    layout: int
    """Number in the plan's layouts."""
    before: Digest
    params: Digest
    replicated: Digest
    """Of the tensors that tensor parallelism keeps whole on every rank."""


class Stepped(Event, frozen=True, tag="step"):
    """One training step as one rank saw it."""

    layout: int
    step: int
    loss: float | None = None
    """None where the rank does not compute it, or it is not finite (then ``bad`` says so)."""
    blocks: tuple[int, ...] = ()
    """Numbers of the blocks of data that it trained on."""
    ids: tuple[int, ...] = ()
    """Digest of the tokens, by block."""
    masks: tuple[int, ...] = ()
    """Digest of the mask, by block."""
    rng: dict[str, Digest | None] = {}
    """What each generator drew: python, numpy, torch, device, dropout."""
    grad_local: float | None = None
    """Norm before the reduction."""
    grad: float | None = None
    """Norm after it."""
    grad_digest: Digest | None = None
    params: Digest | None = None
    replicated: Digest | None = None
    bad: Bad = ""
    """The first thing that was not finite."""


class Ended(Event, frozen=True, tag="end"):
    """A layout ends."""

    layout: int
    update: dict[str, float | None]
    """Squared norm of each tensor's change on this rank."""
    seconds: float


class SmokeTraining(Fact, frozen=True):
    """Every step of every layout on the host's ranks, and the serial twin."""

    probe = smoke()

    twin: tuple[Twin, ...] = ()
    twin_blocks: tuple[TwinBlocks, ...] = ()
    twin_update: tuple[TwinUpdate, ...] = ()
    begun: tuple[Begun, ...] = ()
    steps: tuple[Stepped, ...] = ()
    ended: tuple[Ended, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokeTraining:
        told = hear(answer, Told[Twin | TwinBlocks | TwinUpdate | Begun | Stepped | Ended])
        return cls(
            twin=only(told.events, Twin),
            twin_blocks=only(told.events, TwinBlocks),
            twin_update=only(told.events, TwinUpdate),
            begun=only(told.events, Begun),
            steps=only(told.events, Stepped),
            ended=only(told.events, Ended),
            unread=told.silent(),
        )
