"""The training stage: the reference run, and each layout step by step. Digests are 8 bytes as an integer."""

from __future__ import annotations

from typing import Literal

from doctor.facts.smoke.events import RankEvent, StageFact

Bad = Literal["", "input", "activations", "loss", "gradient", "parameters"]
Digest = int


class ReferenceRun(RankEvent, frozen=True, tag="reference"):
    """The run of one process that every layout must equal."""

    losses: tuple[float | None, ...]
    grads: tuple[float | None, ...]
    """Norm of the gradient at each step."""
    params: Digest
    """After as many steps as all ranks do."""
    init: Digest
    precision: float | None = None
    """Relative error of a product of two matrices: some devices multiply float32 with fewer bits."""
    params_step: int = 0
    """Steps before ``params`` was taken; 0: all that it has losses of."""
    code_path: str = ""
    """Device, its instructions in use, and torch: who has the same gives the same bits; empty where it was not told."""
    repeated: float = 0.0
    """How far the gradient of a step, or the losses of its blocks, are from themselves, computed again, as a share."""
    layout: float = 0.0
    """The same of what the rank made of its part of a layout, from what the other ranks had sent it."""
    formula: float = 0.0
    """How far losses of the first step are from those by the model's formulas in double precision, as a share."""


class ReferenceRepeated(RankEvent, frozen=True, tag="reference-repeated"):
    """The same of all its steps, and of the layouts', computed again where some step of a layout was not right.

    Of the step that is furthest; 1 where it is not finite.
    """

    repeated: float
    layout: float = 0.0
    formula: float = 0.0


class ReferenceBlocks(RankEvent, frozen=True, tag="reference-blocks"):
    """The data of one step, block by block; from rank 0 alone."""

    step: int
    ids: tuple[int, ...]
    masks: tuple[int, ...]
    first: int = 0
    """Number of the first of these blocks: many come in several events."""


class ReferenceUpdate(RankEvent, frozen=True, tag="reference-update"):
    """The squared norm of what became of each tensor over all steps; from rank 0 alone."""

    update: dict[str, float | None]


class LayoutBegun(RankEvent, frozen=True, tag="begin"):
    """A layout begins: digests of the parameters around the first broadcast."""

    layout: int
    """Number in the plan's layouts."""
    before: Digest
    params: Digest
    replicated: Digest
    """Of the tensors that tensor parallelism keeps whole on every rank."""
    error: float | None = None
    """From the reference run's parameters, as a share of their norm."""
    kept: bool = True
    """The rank's memory still held what the broadcast had brought."""


class TrainingStep(RankEvent, frozen=True, tag="step"):
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
    bad_at: tuple[int, int, int] | None = None
    """When that was, to compare among the ranks of a layout: pass, place of the pipeline stage in it, part of the
    model; None for parameters, and where nothing is known of it."""
    grad_error: float | None = None
    """From the reference run's reduced gradient, as a share of its norm; None where that is not known."""
    loss_error: float | None = None
    """From the reference run's loss of the same blocks, as a share of it; None where that is not known."""
    params_error: float | None = None
    """From the reference run's parameters behind the step, as a share of their norm; None where that is not known."""
    sent: dict[int, Digest] = {}
    """Of all messages to another pipeline stage so far, by its rank."""
    received: dict[int, Digest] = {}
    kept: bool = True
    """The rank's memory still held what the reduction had brought."""
    changed: bool = False
    """Two readings of such a message in the rank's own memory differ."""


class ShardedStep(RankEvent, frozen=True, tag="sharded"):
    """Which numbers of a sharded optimizer's step are wrong on a rank, told where anything of the training was.

    Each as a share of the norm of what is right.
    """

    layout: int
    """Number in the plan's layouts; -1 in the learning stage."""
    step: int
    altered: float = 0.0
    """The gradient of its rows in its memory when it had been reduced, from what it was before."""
    summed: float = 0.0
    """Its sum of what all ranks added to its shard, from the exact one; 0 within what rounding may do."""
    held: Digest = 0
    """Of all parameters, as it got them."""
    kept: bool = True
    """It got its own shard as it was."""


class CallParts(RankEvent, frozen=True, tag="parts"):
    """What a rank got of the calls that give all of a group the same, told where anything of the training was wrong."""

    layout: int
    """As in `ShardedStep`."""
    group: tuple[int, ...]
    op: str
    parts: tuple[int, ...]
    """Digests: by member, of what it gives to the others in all calls."""


class LayoutEnded(RankEvent, frozen=True, tag="end"):
    """A layout ends."""

    layout: int
    update: dict[str, float | None]
    """Squared norm of each tensor's change on this rank."""
    seconds: float


class SmokeTraining(StageFact, frozen=True):
    """Every step of every layout on the host's ranks, and the reference run."""

    stage = "training"
    every_rank = True
    event_types = (
        ReferenceRun,
        ReferenceRepeated,
        ReferenceBlocks,
        ReferenceUpdate,
        LayoutBegun,
        TrainingStep,
        LayoutEnded,
        ShardedStep,
        CallParts,
    )

    reference: tuple[ReferenceRun, ...] = ()
    reference_repeated: tuple[ReferenceRepeated, ...] = ()
    reference_blocks: tuple[ReferenceBlocks, ...] = ()
    reference_update: tuple[ReferenceUpdate, ...] = ()
    begun: tuple[LayoutBegun, ...] = ()
    steps: tuple[TrainingStep, ...] = ()
    ended: tuple[LayoutEnded, ...] = ()
    sharded: tuple[ShardedStep, ...] = ()
    parts: tuple[CallParts, ...] = ()
