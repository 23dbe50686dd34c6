"""A smoke run in figures, as a report shows it: frozen values, with no judgement in them."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.smoke.model import Backend, Trouble


class Seat(msgspec.Struct, frozen=True):
    """What some ranks run on: equal for all of them."""

    torch: str
    numpy: str
    python: str
    device: str
    ranks: tuple[int, ...]


class Stage(msgspec.Struct, frozen=True):
    """One stage that every rank has finished."""

    name: str
    seconds: float


class Trained(msgspec.Struct, frozen=True):
    """One layout of the training, beside the same training in one process."""

    layout: str
    steps: int
    """Compared with the serial twin."""
    error: float | None
    """The largest relative difference of a loss from the twin's; None when there was nothing to compare."""


class Figure(msgspec.Struct, frozen=True):
    """How fast one collective was: algbw and busbw as nccl-tests define them, from the median of the repeats."""

    op: str
    group: str
    ranks: int
    bytes: int
    seconds: float
    algbw: float
    """Bytes a second."""
    busbw: float


class Summary(msgspec.Struct, frozen=True):
    """What ran, how far it came, and what stopped it."""

    backend: Backend
    hosts: dict[str, int]
    """Ranks of each host, in plan order."""
    ended: Literal["complete", "trouble", "budget", "interrupted"]
    seconds: float
    import_seconds: float
    stages: tuple[Stage, ...] = ()
    not_reached: tuple[str, ...] = ()
    """Stages that not every rank finished."""
    layouts: tuple[Trained, ...] = ()
    seats: tuple[Seat, ...] = ()
    figures: tuple[Figure, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    places: tuple[str, ...] = ()
    """Of each rank, in words: ``node2, NPU 3``."""
    notes: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        return sum(self.hosts.values())
