"""The process that the agent starts: it imports torch once and becomes the ranks, each from its device
to its last stage.

On stdin, behind the program's text, is one line of JSON: the orders.
"""

from __future__ import annotations

import dis
import errno
import faulthandler
import fcntl
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from datetime import timedelta
from types import ModuleType, TracebackType
from typing import Callable

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.cpu_quota import small_file
from doctor.smoke.programs.process_groups import Plan
from doctor.smoke.programs.recorder_page import STAGES
from doctor.smoke.programs.secondary_errors import headline, is_secondary
from doctor.smoke.programs.worker.comm import TracedComm
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.libraries import load_libraries, numpy, torch
from doctor.smoke.programs.worker.orders import EventWriter, Orders
from doctor.smoke.programs.worker.processes import cpu_binding, die_with_agent, die_with_parent, take_turns_on_cpus
from doctor.smoke.programs.worker.rendezvous import init_process_group, start_store
from doctor.smoke.programs.worker.work_timing import CpuSpins

ERROR_STATUS = 13
"""Exit status of a rank that has emitted an ``error`` event."""
MAX_PATH = 200
"""Characters at the end of a file's path; those of torch in an environment have some 90."""


RunRank = Callable[[Orders, int, EventWriter, FlightRecorder], None]


REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
NAMED_BY = (os, fcntl, socket, signal, resource)
"""Modules whose functions are calls of the kernel."""


def explained(error: BaseException) -> str:
    """The error's text, with the call that was refused, and with the limit of open files where that is reached."""
    text = str(error).strip()
    if isinstance(error, OSError) and error.errno in REFUSED and not error.filename:
        call = refused_call(error.__traceback__)
        text = filled("{0} ({1} was refused: a seccomp profile or a missing capability?)", text, call) if call else text
    if "Too many open files" not in text and files_are_used_up():
        first = text.splitlines()[0] if text else type(error).__name__
        text = filled("{0} (Errno 24: Too many open files)", first)
    return text


def refused_call(trace: TracebackType | None) -> str:
    """The function of the kernel's modules that the innermost frame called last; empty where it called none."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    call = ""
    for step in dis.get_instructions(trace.tb_frame.f_code) if trace is not None else ():
        if trace is not None and step.offset > trace.tb_lasti:
            break
        name = step.argval if step.opname.startswith("LOAD_") else None
        if isinstance(name, str) and any(callable(getattr(module, name, None)) for module in NAMED_BY):
            call = name
    return call


def files_are_used_up() -> bool:
    """Whether this process has as many files open as it may have, or all but two: the error may have closed some."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")) + 1 >= limit
    except OSError as error:
        return error.errno == errno.EMFILE


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
    comm.part_messages()
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
    if plan["backend"] != "gloo":
        leave_together(store, rank, comm.size, timeout)


def leave_together(store: torch.distributed.Store, rank: int, size: int, limit: timedelta) -> None:
    """Returns when all ranks have passed the last barrier, or after ``limit``.

    A rank whose device is done may still have data to send, which a thread of its library does: were its process gone,
    the others would wait for ever, or end by SIGABRT (seen: NCCL 2.28 over sockets, with an H200 that others used too).
    """
    try:
        store.set(f"passed/{rank}", "")
        store.wait([f"passed/{other}" for other in range(size)], limit)
    except RuntimeError:  # the rank that serves the store has left, as the last one may; or one does not come
        return


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
        count = module.device_count() or f"0{no_device_reason(module, number)}"
        raise RuntimeError(filled("{0} is ordinal {1} here, and torch{2} sees {3}", device, number, built, count))
    module.set_device(number)
    properties = module.get_device_properties(number)
    identity = {
        "index": module.current_device(),
        "name": str(getattr(properties, "name", "")),
        "id": str(getattr(properties, "uuid", "") or getattr(properties, "pci_bus_id", "")),
    }
    return torch.device(kind, number), identity, module.synchronize


def no_device_reason(module: ModuleType, number: int) -> str:
    """Why torch sees no device at all, in its own words, behind a semicolon; empty where it does not say."""
    try:
        module.set_device(number)
    except Exception as error:
        return f"; {headline(str(error))}"
    return ""


def finish_stage(ctx: RankContext, name: str, started: float) -> None:
    """Ends a stage: no rank begins the next one before all ranks are here."""
    ctx.comm.modes.check()
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


IMPORT_ERROR_STATUS = 4
CLOSED_FILES_STATUS = 5
OTHER_LIBRARIES: dict[str, tuple[Callable[[Orders, EventWriter], None], RunRank]] = {}
"""By the plan's library, where it is not torch: what imports it, and what a rank then does. Their parts add them."""


def main() -> None:
    """Reads the orders and carries them out. Never returns."""
    orders = json.loads(sys.stdin.buffer.readline())
    die_with_agent(orders["agent"])
    check_inherited_files(orders)
    forks = orders["start"] == "fork"
    events = EventWriter(orders["events"], -1 if forks else orders["mine"][0])
    load, run = OTHER_LIBRARIES.get(orders["plan"].get("library", "torch"), (load_libraries, run_rank))
    try:
        load(orders, events)
    except BaseException as error:  # an import can fail in any way, and each has to be reported
        text = error_summary(error)
        events.emit("error", kind=type(error).__name__, text=text, secondary=False, stage="start", trace=[])
        os._exit(IMPORT_ERROR_STATUS)
    if forks:
        fork_ranks(orders, events)
    redirect_output(orders, orders["mine"][0])
    enter_rank(orders, orders["mine"][0], run)


def check_inherited_files(orders: Orders) -> None:
    """Ends this process where it cannot report: some wrappers of an interpreter close the files it should inherit."""
    try:
        os.fstat(orders["events"])
        os.fstat(orders["box"])
    except OSError:
        text = (
            "what starts this Python closes the files that it should inherit, as conda run does: "
            f"name {sys.executable} itself\n"
        )
        os.write(2, text.encode("ascii", "replace"))
        os._exit(CLOSED_FILES_STATUS)


def error_summary(error: BaseException) -> str:
    """The first line of an error, and of its root cause: torch wraps the error of a library that does not load."""
    text = first_line(error)[:400]
    root = error
    while True:
        cause = root.__cause__ or (None if root.__suppress_context__ else root.__context__)
        if cause is None:
            break
        root = cause
    root_text = first_line(root)[:200]
    return text if not root_text or root_text in text else f"{text} ({type(root).__name__}: {root_text})"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, which may be empty."""
    return (str(error).strip().splitlines() or [""])[0]


def fork_ranks(orders: Orders, events: EventWriter) -> None:
    """One process a rank, all with the torch that this one imported; then starts their store and awaits their ends.

    Never returns.
    """
    parent, rank_of_pid = os.getpid(), {}
    for rank in orders["mine"]:
        pid = os.fork()
        if pid == 0:
            die_with_parent(parent)
            close_other_ranks(orders, rank)
            enter_rank(orders, rank)
        rank_of_pid[pid] = rank
    store = start_store(orders) if orders["hosts_store"] else None
    while rank_of_pid:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended  # without WNOHANG it waits for one
        limits, schedstat = (small_file(f"/proc/{ended.si_pid}/{name}")[:2000] for name in ("limits", "schedstat"))
        pid, status = os.waitpid(ended.si_pid, 0)
        if pid in rank_of_pid:
            events.emit("exit", rank=rank_of_pid.pop(pid), status=status, limits=limits, schedstat=schedstat)
    if store is not None:
        # Ranks of other hosts may still use the store. The agent closes stdin at the end of the run.
        sys.stdin.buffer.read()
    os._exit(0)


def close_other_ranks(orders: Orders, rank: int) -> None:
    """Closes the other ranks' files, so that the agent notices the end of each, and takes this rank's for output."""
    for files in (orders["stacks"], orders["errors"]):
        for other, file in files.items():
            if int(other) != rank:
                os.close(file)
    if orders["store"] >= 0:
        os.close(orders["store"])
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    redirect_output(orders, rank)


def redirect_output(orders: Orders, rank: int) -> None:
    """Sends stdout and stderr to the agent as the rank's."""
    file = orders["errors"][str(rank)]
    os.dup2(file, 1)
    os.dup2(file, 2)
