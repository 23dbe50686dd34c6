"""The devices stage: what each rank's device computes and copies, and how quickly."""

from __future__ import annotations

from typing import Literal

from doctor.facts.smoke.events import RankEvent, StageFact


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
