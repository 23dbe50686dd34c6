"""The process that the agent starts: it imports torch once and becomes the ranks.

On stdin, behind the program's text, is one line of JSON: the orders.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Callable

from doctor.smoke.programs.cpu_quota import small_file
from doctor.smoke.programs.worker.libraries import load_libraries
from doctor.smoke.programs.worker.orders import EventWriter, Orders
from doctor.smoke.programs.worker.processes import die_with_agent, die_with_parent
from doctor.smoke.programs.worker.rank import RunRank, enter_rank, run_rank
from doctor.smoke.programs.worker.rendezvous import start_store

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
        report_import_error(events, error)
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


def report_import_error(events: EventWriter, error: BaseException) -> None:
    """Emits the error as that of stage ``start``, for all ranks of this process."""
    events.emit("error", kind=type(error).__name__, text=error_summary(error), secondary=False, stage="start", trace=[])


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
        limits, schedstat = (read_of_ended(ended.si_pid, name) for name in ("limits", "schedstat"))
        pid, status = os.waitpid(ended.si_pid, 0)
        if pid in rank_of_pid:
            events.emit("exit", rank=rank_of_pid.pop(pid), status=status, limits=limits, schedstat=schedstat)
    if store is not None:
        # Ranks of other hosts may still use the store. The agent closes stdin at the end of the run.
        sys.stdin.buffer.read()
    os._exit(0)


def read_of_ended(pid: int, name: str) -> str:
    """What the kernel shows of an ended process, such as its limits: it can be read until the process is reaped."""
    return small_file(f"/proc/{pid}/{name}")[:2000]


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
