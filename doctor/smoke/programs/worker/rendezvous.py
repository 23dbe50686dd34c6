"""How the ranks meet: the store at the master address, and the default process group."""

from __future__ import annotations

import errno
import inspect
import os
import socket
import time
from datetime import timedelta
from typing import Any

from doctor.remote.runtime.connecting import NO_ROUTE
from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.worker.libraries import dist, torch
from doctor.smoke.programs.worker.orders import EventWriter, Orders

OF_THIS_HOST = (
    errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM, errno.EACCES
)  # fmt: skip
"""What connect(2) and socket(2) say of the host that calls them: no port, file or memory is left, or a rule refuses."""


class StoreError(Exception):
    """The ranks did not meet at the store; the text says why."""


def wait_for_port(events: EventWriter, address: str, port: int, seconds: float, opening: float = 0.0) -> None:
    """Waits until the master accepts a connection, and emits why it does not yet: torch's client would only time out.

    ``opening``: seconds for which the master may refuse, as what listens there is still starting. Raises: StoreError.
    """
    began, last_problem = time.monotonic(), ""
    end = began + seconds
    while True:
        problem, text = try_connect(address, port, min(2.0, max(0.1, end - time.monotonic())))
        if not problem:
            return
        starting = problem == "refused" and time.monotonic() < began + opening
        if problem != last_problem and not starting:
            events.emit("try", problem=problem, text=text, address=f"{address}:{port}")
            last_problem = problem
        if time.monotonic() > end:
            raise StoreError(text)
        time.sleep(0.1)


def try_connect(address: str, port: int, seconds: float) -> tuple[str, str]:
    """One attempt to connect: the kind of problem and its text; two empty strings on success."""
    try:
        resolved = str(socket.getaddrinfo(address, port, 0, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        return "name", filled("{0} does not resolve: {1}", address, error.strerror or error)
    name = f"{address} ({resolved})" if resolved != address else address
    try:
        socket.create_connection((resolved, port), seconds).close()
    except ConnectionRefusedError:
        return "refused", filled("{0} port {1} refuses connections", name, port)
    except socket.timeout:
        return "dropped", filled("{0} port {1} does not answer", name, port)
    except OSError as error:
        kind = "no-route" if error.errno in NO_ROUTE else "own" if error.errno in OF_THIS_HOST else "other"
        return kind, filled("{0} port {1}: {2}", name, port, error.strerror)
    return "", ""


def claim_rank(store: Any, rank: int, world_size: int) -> None:
    """Registers this process as the rank. Raises: StoreError for a second one, or for another world size."""
    token = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
    first = store.compare_set(f"rank {rank}", "", token).decode()
    if first != token:
        raise StoreError(
            filled("rank {0} is there twice: {1} also calls itself rank {2}", rank, first.split()[0], rank)
        )
    size = store.compare_set("world", "", f"{world_size} {rank}").decode().split()
    if int(size[0]) != world_size:
        raise StoreError(filled("world size is {0} here, and {1} on rank {2}", world_size, size[0], size[1]))


def init_process_group(orders: Orders, events: EventWriter, rank: int, device: torch.device) -> Any:
    """Connects to the store and forms the default process group.

    Returns the store: its connection lives only as long as a reference to it. Raises: StoreError.
    """
    plan, (address, port) = orders["plan"], orders["master"]
    timeout = timedelta(seconds=plan["timeout"])
    hosts_store = orders["hosts_store"] and orders["start"] == "exec"
    store = start_store(orders) if hosts_store else None
    if store is None:
        wait_for_port(events, address, port, plan["timeout"])
        store = make_store(address, port, None, False, timeout, wait_for_workers=False)
    store = dist.PrefixStore("doctor", store)
    world_size = len(plan["places"])
    claim_rank(store, rank, world_size)
    options = {}
    # torch 2.1 and 2.2 have no such parameter.
    parameters = inspect.signature(dist.init_process_group).parameters
    if plan["backend"] != "gloo" and device.index is not None and "device_id" in parameters:
        options["device_id"] = device
    dist.init_process_group(plan["backend"], store=store, rank=rank, world_size=world_size, timeout=timeout, **options)
    return store


def start_store(orders: Orders) -> Any:
    """The key-value store at the master address. It starts a thread, so call it only where nothing is forked later."""
    options = {"master_listen_fd": orders["store"]} if orders["store"] >= 0 else {}
    return make_store(*orders["master"], None, True, wait_for_workers=False, **options)


def make_store(*values: Any, **options: Any) -> Any:
    """A `TCPStore`, without libuv where this torch cannot do with it what the options demand.

    libuv is the default since torch 2.4, and takes no listening socket before 2.8; torch 2.1 has no such parameter, and
    some builds have no libuv. An error about libuv comes before the socket is used.
    """
    try:
        return dist.TCPStore(*values, **options)
    except RuntimeError as error:  # NotImplementedError is one
        if "libuv" not in str(error):
            raise
    return dist.TCPStore(*values, use_libuv=False, **options)
