"""What every stage works with, and the table of stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from doctor.smoke.programs.worker.comm import TracedComm
from doctor.smoke.programs.worker.event_writer import EventWriter
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.libraries import torch


class ReferenceStep(NamedTuple):
    """One step of the reference run. Gradient and weights by parameter."""

    gradient: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]
    """Behind the step."""
    losses: torch.Tensor
    """Of each block."""


class RankContext:
    """One rank: the plan, its number, its device, and the ways to record, to emit events and to communicate."""

    def __init__(
        self,
        plan: dict[str, Any],
        rank: int,
        device: torch.device,
        recorder: FlightRecorder,
        events: EventWriter,
        comm: TracedComm,
    ) -> None:
        self.plan, self.rank, self.world_size = plan, rank, len(plan["places"])
        self.device, self.recorder, self.events, self.comm = device, recorder, events, comm
        self.emit = events.emit
        self.reference: list[ReferenceStep] = []
        """The reference run, as far as this rank has done it."""
        self.initial_weights: dict[str, torch.Tensor] | None = None
        """The parameters with which it began."""
        self.hosts = [placement["host"] for placement in plan["places"]]
        self.compared_results = self.wrong_results = 0
        """Results of collectives, and those of them that were wrong on this rank."""
        self.wrong_calls: dict[tuple[str, str, str, int], None] = {}
        """Of wrong results: operation, reduction, dtype, elements."""

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which emits what is the same on all ranks."""
        return self.rank == 0


STAGE_FUNCTIONS: dict[str, Callable[[RankContext], None]] = {}
"""What a rank does in a stage, by the stage's name. Each stage's part adds itself."""


def run_queue_seconds() -> float:
    """Seconds that this thread was ready to run and waited for a CPU; 0 where the kernel does not count them."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
