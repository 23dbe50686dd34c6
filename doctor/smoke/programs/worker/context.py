"""What every stage works with: the rank, its device and code path, and the table of stages."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.process_groups import Plan
from doctor.smoke.programs.worker.comm import TracedComm
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.orders import EventWriter


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
        plan: Plan,
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
        self.soaked_seconds = 0.0
        """Of the soak, before its last measurement of the pairs."""
        self.distant_steps = 0
        """Steps of a layout that were not the reference run's."""

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


CODE_VARIABLES = ("ATEN_CPU_CAPABILITY", "DNNL_", "MKL_", "ONEDNN_")
"""Beginnings of the variables that choose the instructions, and so the order of adding, of products on a CPU."""


def device_model(ctx: RankContext) -> str:
    """What the device is, to compare it with its like: by its name, or the CPU by its model and instructions in use."""
    if ctx.device.type != "cpu":
        properties = getattr(torch, ctx.device.type).get_device_properties(ctx.device)
        # ROCm's name may be that of a family, or empty.
        architecture = getattr(properties, "gcnArchName", "") if getattr(torch.version, "hip", None) else ""
        return " ".join(word for word in (str(properties.name), str(architecture).partition(":")[0]) if word)[:100]
    model = ""
    try:
        with open("/proc/cpuinfo", errors="replace") as file:
            names = (line.partition(":")[2] for line in file if line.lower().startswith(("model name", "cpu part")))
            model = next(names, "").strip()
    except OSError:
        pass
    capability = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")()
    chosen = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(CODE_VARIABLES)]
    chosen += ["oneDNN=0"] * (not getattr(torch.backends.mkldnn, "enabled", True))  # the program may choose so, too
    return " ".join(word for word in ("CPU", model[:80], capability, *chosen) if word)[:200]


def code_path(ctx: RankContext) -> str:
    """The device's model with the version of torch."""
    return filled("{0} with torch {1}", device_model(ctx), torch.__version__)
