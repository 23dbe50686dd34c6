"""MindSpore in place of torch: how it is loaded, how its ranks meet, and its collectives.

On CPUs MindSpore has all_reduce, all_gather, broadcast and barrier. Its ranks meet at a scheduler, a process of its own
that rank 0 starts. Source: mindspore.mint.distributed and msrun of MindSpore 2.7, which this was tried with.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import time
from typing import Any, Callable

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.orders import EventWriter, Orders
from doctor.smoke.programs.worker.rendezvous import StoreError, wait_for_port

mindspore: Any = None
np: Any = None
SCHEDULER = (
    "import ctypes;ctypes.CDLL(None).prctl(1, 9, 0, 0, 0);import mindspore;mindspore.set_device('CPU');"
    "from mindspore.communication import init;init('mccl')"
)  # fmt: skip
"""The program of the process at which the ranks meet. It ends when they have, or with the process that started it."""


def load_mindspore(orders: Orders, events: EventWriter) -> None:
    """Imports MindSpore, and emits ``imported``. Raises: the exceptions of the import."""
    global mindspore, np
    os.environ.update(GLOG_v="3")  # errors only
    started = time.monotonic()
    mindspore, np = (importlib.import_module(name) for name in ("mindspore", "numpy"))

    events.emit(
        "imported",
        seconds=round(time.monotonic() - started, 3),
        torch=f"MindSpore {mindspore.__version__}",
        numpy=np.__version__,
        python=".".join(map(str, sys.version_info[:3])),
    )


def join_mindspore_ranks(orders: Orders, events: EventWriter, rank: int) -> None:
    """Starts the scheduler on rank 0, and forms the world. Raises: StoreError, and what MindSpore raises."""
    plan, (name, port) = orders["plan"], orders["master"]
    world = len(plan["places"])
    try:
        address = str(socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise StoreError(
            filled("{0} does not resolve to an IPv4 address: {1}", name, error.strerror or error)
        ) from None
    os.environ.update(
        MS_WORKER_NUM=str(world), MS_SCHED_HOST=address, MS_SCHED_PORT=str(port), MS_ROLE="MS_WORKER",
        MS_NODE_ID=str(rank), RANK_ID=str(rank), RANK_SIZE=str(world), MS_WORKER_IP=own_address(address),
    )  # fmt: skip
    if orders["hosts_store"]:
        if orders["store"] >= 0:
            os.close(orders["store"])  # the scheduler binds this port itself
        start_scheduler()
    wait_for_port(events, name, port, plan["timeout"], plan["timeout"] / 2)
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device("CPU")
    communication = importlib.import_module("mindspore.communication")
    communication.init("mccl")
    if communication.get_rank() != rank:
        raise StoreError(
            filled("MindSpore made this process rank {0} in place of rank {1}", communication.get_rank(), rank)
        )


def own_address(target: str) -> str:
    """The address of this host that it speaks to the target from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect((target, 1))
        return str(datagrams.getsockname()[0])


def start_scheduler() -> None:
    """It ends with this process."""
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK_ID", "MS_NODE_ID")}
    environ.update(MS_ROLE="MS_SCHED", MS_NODE_ID="scheduler")
    subprocess.Popen(
        [sys.executable, "-c", SCHEDULER], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


class MindSporeComm:
    """Collectives of all ranks on NumPy arrays, each between `FlightRecorder.enter` and `exit`."""

    def __init__(self, rank: int, size: int, recorder: FlightRecorder) -> None:
        self.rank, self.size, self.recorder = rank, size, recorder
        self.functions = importlib.import_module("mindspore.mint.distributed")

    def run_traced(self, op: str, array: Any, function: Callable[[], Any], root: int = -1) -> Any:
        """Runs ``function``, which must be this collective and wait for its result, and records it."""
        dtype, numel = ("", 0) if array is None else (str(array.dtype), array.size)
        self.recorder.enter(0, op, dtype, root, numel)
        result = function()
        self.recorder.exit(0)
        return result

    def all_reduce(self, array: Any, reduction: str = "sum") -> Any:
        tensor = mindspore.Tensor(array)

        def reduce() -> Any:
            self.functions.all_reduce(tensor, reduction)
            return tensor.asnumpy()

        return self.run_traced("all_reduce", array, reduce)

    def broadcast(self, array: Any, root: int) -> Any:
        tensor = mindspore.Tensor(array)

        def spread() -> Any:
            self.functions.broadcast(tensor, root)
            return tensor.asnumpy()

        return self.run_traced("broadcast", array, spread, root)

    def all_gather(self, array: Any) -> Any:
        """The arrays of all ranks, one after the other."""
        tensor = mindspore.Tensor(array)
        pieces = [mindspore.Tensor(np.zeros_like(array)) for _ in range(self.size)]

        def gather() -> Any:
            self.functions.all_gather(pieces, tensor)
            return np.concatenate([piece.asnumpy() for piece in pieces])

        return self.run_traced("all_gather", array, gather)

    def barrier(self) -> None:
        """An all_reduce: MindSpore's barrier returns at once on CPUs."""
        one = np.ones(1, np.float32)
        tensor = mindspore.Tensor(one)

        def meet() -> None:
            self.functions.all_reduce(tensor)
            tensor.asnumpy()

        self.run_traced("barrier", None, meet)
