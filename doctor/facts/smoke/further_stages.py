"""What the stages beside start, collectives and training report: devices, loader, native, pairs, pace, learning.

Learning: whether the loss falls. Devices: what each rank's device computes and copies, and how quickly.
"""

from __future__ import annotations

from typing import Literal

from doctor.facts.smoke.events import RankEvent, StageFact
from doctor.facts.smoke.training import CallParts, ShardedStep


class DeviceTimes(RankEvent, frozen=True, tag="device"):
    """The times of one kind of work on one rank's device."""

    test: str
    """Such as ``product bfloat16``, ``memory``, ``host to device``."""
    model: str
    """What the device is: devices of one model are compared."""
    amount: float
    """Of each piece of work: floating-point operations of a product (multiplications and additions), else bytes."""
    seconds: tuple[float, ...]
    """Of each piece, less the time that other programs had the CPU."""
    fingerprint: int | None = None
    """Checksum of a product of real numbers, which is the same on every rank."""
    waited: float = 0.0
    """Seconds, beside those of the pieces, in which other programs had the CPU."""
    attempt: int = 0
    """From 1 on: measured again, at another time, since a device looked slow."""


class DeviceMiscomputed(RankEvent, frozen=True, tag="miscomputed"):
    """Results that are wrong beyond doubt."""

    test: str
    comparison: Literal["exact", "repeat", "copy"]
    """exact: not the exact product of whole numbers; repeat: not that of the same product before; copy: other bytes."""
    wrong: int
    """Results that are wrong."""
    compared: int
    row: int = -1
    column: int = -1
    """Of the first wrong element of an exact product."""
    elements: int = 0
    """That are wrong in its row."""
    expected: float | None = None
    got: str = ""


class DeviceUntested(RankEvent, frozen=True, tag="untested"):
    """Work that the device cannot do: a type that it lacks, too little memory."""

    test: str
    text: str


class SmokeDevices(StageFact, frozen=True):
    """The test of the devices of the host's ranks."""

    stage = "devices"
    event_types = (DeviceTimes, DeviceMiscomputed, DeviceUntested)
    every_rank = True

    times: tuple[DeviceTimes, ...] = ()
    wrong: tuple[DeviceMiscomputed, ...] = ()
    untested: tuple[DeviceUntested, ...] = ()


class LearningStep(RankEvent, frozen=True, tag="learn"):
    """The loss of one step."""

    step: int
    loss: float | None
    """None: not finite."""


class LearnedParameters(RankEvent, frozen=True, tag="learned"):
    """What a rank holds after the last step. Digests are 8 bytes as an integer."""

    pp: int
    tp: int
    params: int
    gradient: int
    """Of the gradients of all steps, each after its reduction; 0 where each rank reduces a shard of its own."""
    steps: int
    error: float | None = None
    """From the parameters of the serial run, as a share of what they changed by; told where replicas differ."""
    code_path: str = ""
    """As in `ReferenceRun`."""
    error_steps: int = 0
    """After which the error was computed, of large worlds fewer than all; 0: all."""
    loss_error: float | None = None
    """Of the step that is furthest from the loss of the same rows in the serial run, as a share; on last stages."""
    serial: tuple[float | None, ...] = ()
    """The loss of each step of the serial run, on ranks that do it."""
    repeated: float = 0.0
    """How far the rank's part of the steps, or its serial run, is from itself, computed again, as a share; told where
    anything was wrong."""
    sent: dict[int, int] = {}
    """As in `TrainingStep`."""
    received: dict[int, int] = {}
    changed: bool = False


class SmokeLearning(StageFact, frozen=True):
    """The loss of a short training with Adam, on the ranks that compute it, and what each rank has learned."""

    stage = "learning"
    every_rank = True
    event_types = (LearningStep, LearnedParameters, ShardedStep, CallParts)

    steps: tuple[LearningStep, ...] = ()
    learned: tuple[LearnedParameters, ...] = ()
    sharded: tuple[ShardedStep, ...] = ()
    parts: tuple[CallParts, ...] = ()


class LoaderResult(RankEvent, frozen=True, tag="loader"):
    """What one rank's loader workers drew, and how long it took."""

    workers: int
    digests: dict[str, int | None]
    """What the workers drew from python, numpy and torch."""
    seeds: tuple[int, ...] = ()
    """Of the workers, in their order."""
    seconds: float = 0.0
    text: str = ""
    """The error that it ended with."""
    layout: int = 0
    """Number of the layout that says which ranks read the same data."""
    dp: int = 0
    """The rank's data-parallel index in it, which its loader was seeded by."""


class SmokeLoader(StageFact, frozen=True):
    """The data loaders of the host's ranks."""

    stage = "loader"
    event_types = (LoaderResult,)
    every_rank = True

    loaded: tuple[LoaderResult, ...] = ()


class NativeResult(RankEvent, frozen=True, tag="native"):
    """The losses of one layout under one of torch's wrappers."""

    layout: int
    api: str
    """Such as DDP, fully_shard, parallelize_module."""
    losses: tuple[float | None, ...] = ()
    """Over all rows, the same on every rank."""
    text: str = ""
    """Why it could not run."""
    reference: tuple[float | None, ...] = ()
    """The losses of the same module in one process, without a wrapper."""


class SmokeNative(StageFact, frozen=True):
    """What DDP, FSDP2, DTensor and pipelining made of the same model and data."""

    stage = "native"
    event_types = (NativeResult,)

    native: tuple[NativeResult, ...] = ()


class PairTimes(RankEvent, frozen=True, tag="pair"):
    """The times of one rank's exchanges with one peer in one round."""

    peer: int
    round: int
    bytes: int
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""
    control: bool = False
    """A pair that is not suspected, measured by turns with those that are."""
    attempt: int = 0
    """Number of the confirmation, from 1 on: what is slow is measured again at several times."""
    after: float = 0.0
    """Seconds of the soak, when a collective took longer than before; 0.0: in the pairs stage."""


class SmokePairs(StageFact, frozen=True):
    """How long exchanges with single peers took."""

    stage = "pairs"
    event_types = (PairTimes,)

    pairs: tuple[PairTimes, ...] = ()


class PaceTimes(RankEvent, frozen=True, tag="pace"):
    """Seconds of each piece of work; in a run of doctor's own less the time that the rank waited for a CPU."""

    input: tuple[float, ...] = ()
    compute: tuple[float, ...] = ()
    attempt: int = 0
    """From 1 on: measured again, at another time, since a rank looked slow."""
    starved: float = 0.0
    """Of a watched training, seconds that a usual step waits for a CPU: they are in those above, or in its waits."""


class SmokePace(StageFact, frozen=True):
    """How quickly the host's ranks do a fixed piece of work."""

    stage = "pace"
    event_types = (PaceTimes,)
    every_rank = True

    paced: tuple[PaceTimes, ...] = ()
