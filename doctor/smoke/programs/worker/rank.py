"""One rank, from its device to its last stage."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import time
import traceback
from datetime import timedelta
from typing import Callable

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.process_groups import Plan
from doctor.smoke.programs.recorder_page import STAGES
from doctor.smoke.programs.secondary_errors import headline, is_secondary
from doctor.smoke.programs.worker.comm import TracedComm
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.libraries import numpy, torch
from doctor.smoke.programs.worker.orders import EventWriter, Orders
from doctor.smoke.programs.worker.os_errors import explained
from doctor.smoke.programs.worker.processes import cpu_binding, take_turns_on_cpus
from doctor.smoke.programs.worker.rendezvous import init_process_group
from doctor.smoke.programs.worker.work_timing import CpuSpins

ERROR_STATUS = 13
"""Exit status of a rank that has emitted an ``error`` event."""
MAX_PATH = 200
"""Characters at the end of a file's path; those of torch in an environment have some 90."""


RunRank = Callable[[Orders, int, EventWriter, FlightRecorder], None]


def enter_rank(orders: Orders, rank: int, run: RunRank | None = None) -> None:
    """Turns this process into one rank, by `run_rank` or by ``run``. Never returns."""
    events = EventWriter(orders["events"], rank)
    recorder = FlightRecorder(orders["box"], orders["index"][str(rank)])
    status = 0
    try:
        (run or run_rank)(orders, rank, events, recorder)
    except BaseException as error:  # every end of a rank has to be reported
        status = ERROR_STATUS
        report_error(events, recorder, error)
    # An interpreter with torch takes half a second to exit in the ordinary way.
    os._exit(status)


def run_rank(orders: Orders, rank: int, events: EventWriter, recorder: FlightRecorder) -> None:
    """All stages of one rank."""
    plan = orders["plan"]
    faulthandler.register(signal.SIGUSR1, file=orders["stacks"][str(rank)], all_threads=True, chain=False)
    events.emit("bound", **cpu_binding())
    if plan["backend"] == "gloo":
        torch.set_num_threads(1)
        take_turns_on_cpus([place["host"] for place in plan["places"]].count(plan["places"][rank]["host"]))
    started = time.monotonic()
    device, identity, synchronize = select_device(plan, rank)
    events.emit("stage", stage="start", seconds=round(time.monotonic() - started, 3))
    recorder.stage, started = STAGES.index("rendezvous"), time.monotonic()
    recorder.mark("start")
    store = init_process_group(orders, events, rank, device)
    timeout = timedelta(seconds=plan["timeout"])
    comm = TracedComm(rank, len(plan["places"]), recorder, events, timeout, synchronize, device, plan)
    comm.store = store
    seconds = round(time.monotonic() - started, 3)
    events.emit(
        "joined", seconds=seconds, host=socket.gethostname(), device=identity, torch=torch.__version__,
        numpy=numpy.__version__ if numpy else None, world=comm.size,
    )  # fmt: skip
    ctx = RankContext(plan, rank, device, recorder, events, comm)
    recorder.mark("compute")
    finish_stage(ctx, "rendezvous", started)
    spins = CpuSpins(ctx)
    for name in STAGES[2:-1]:
        if name in plan["stages"] and name in STAGE_FUNCTIONS:
            recorder.stage, recorder.step, started = STAGES.index(name), 0, time.monotonic()
            recorder.mark("compute")
            STAGE_FUNCTIONS[name](ctx)
            finish_stage(ctx, name, started)
            spins.after_stage()
    recorder.stage = STAGES.index("teardown")
    comm.barrier()
    events.emit("done")
    recorder.mark("done")


def select_device(plan: Plan, rank: int) -> tuple[torch.device, dict[str, int | str], Callable[[], object]]:
    """The rank's device, made current; its identity; and the function that waits until its work is done."""
    place = plan["places"][rank]
    number = place.get("ordinal", -1)
    if plan["backend"] == "gloo":
        return torch.device("cpu"), {"index": -1, "name": "cpu", "id": ""}, lambda: None
    kind = {"nccl": "cuda", "hccl": "npu"}[plan["backend"]]
    module = getattr(torch, kind)
    if number >= module.device_count():
        device, built = f"{kind} {place['device']}", f" ({torch.__version__})" if kind == "cuda" else ""
        count = module.device_count()
        raise RuntimeError(filled("{0} is ordinal {1} here, and torch{2} sees {3}", device, number, built, count))
    module.set_device(number)
    properties = module.get_device_properties(number)
    identity = {
        "index": module.current_device(),
        "name": str(getattr(properties, "name", "")),
        "id": str(getattr(properties, "uuid", "") or getattr(properties, "pci_bus_id", "")),
    }
    return torch.device(kind, number), identity, module.synchronize


def finish_stage(ctx: RankContext, name: str, started: float) -> None:
    """Ends a stage: no rank begins the next one before all ranks are here."""
    ctx.comm.barrier()
    ctx.emit("stage", stage=name, seconds=round(time.monotonic() - started, 3))


def report_error(events: EventWriter, recorder: FlightRecorder, error: BaseException) -> None:
    """Emits the error that ends this rank, innermost call first."""
    text = explained(error)
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    events.emit(
        "error",
        kind=type(error).__name__,
        text=headline(text),
        # Ranks reach each other by libraries alone; an error of Python's own sockets is of something else.
        secondary=is_secondary(text) and not isinstance(error, OSError),
        stage=STAGES[recorder.stage],
        trace=[f"{frame.filename[-MAX_PATH:]}:{frame.lineno} {frame.name}" for frame in reversed(frames)],
    )
