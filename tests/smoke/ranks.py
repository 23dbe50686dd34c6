"""Ranks of the worker without an agent: on this machine, gloo, the events as a list.

torch is imported once, by a process that forks what the agent would start; so a run takes a fraction of a second.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

from doctor.smoke.model import Layout, RankPlacement, SmokePlan
from doctor.smoke.plan import plan_as_dict
from doctor.smoke.programs.recorder_page import CURRENT, CURRENT_AT, HEADER, PAGE_SIZE, STATES
from doctor.smoke.run import programs

Event = dict[str, Any]


class Ranks:
    """Runs all ranks to their ends. ``faults`` is Python text that is appended to the worker's.

    ``watch`` is called from time to time while they run; True ends them.
    """

    def __init__(
        self,
        world: int,
        stages: Sequence[str],
        faults: str = "",
        *,
        layouts: Sequence[Layout] = (),
        hosts: Sequence[str] = (),
        seconds: float = 100.0,
        watch: Callable[[Ranks], bool] = lambda ranks: False,
        **plan: Any,
    ) -> None:
        plan = {"timeout": 15.0, "master_addr": "127.0.0.1", **plan}
        places = tuple(RankPlacement(rank, host) for rank, host in enumerate(hosts or ["here"] * world))
        self.plan = SmokePlan("gloo", places, tuple(layouts) or (Layout(dp=world),), stages=tuple(stages), **plan)
        self.world, self.seconds, self.watch = world, seconds, watch
        self.source = programs.worker() + "\n" + textwrap.dedent(faults)
        self.events: list[Event] = []
        self.parts: dict[int, str] = {}
        self.box = memory("box", PAGE_SIZE * world)
        began = time.monotonic()
        self.carry_out()
        self.wall = time.monotonic() - began

    def carry_out(self) -> None:
        from_ranks, events = os.pipe()
        stdin, to_zygote = os.pipe()
        listening = socket.create_server(("127.0.0.1", 0))
        own_entries = [memory(f"{kind} {rank}") for kind in ("stacks", "errors") for rank in range(self.world)]
        self.stacks = own_entries[: self.world]
        # The files' places in the list stand for their numbers, which only the process that gets them knows.
        orders = self.orders(listening.getsockname()[1])
        zygote = begin(self.source, orders, [stdin, self.box, events, listening.fileno(), *own_entries])
        listening.close()
        for file in (stdin, events):
            os.close(file)
        try:
            self.read(from_ranks)
        finally:
            os.close(to_zygote)
            if len(self.of("exit")) < self.world:
                os.killpg(zygote, signal.SIGKILL)
            self.error_output = "".join(
                os.pread(file, 1 << 20, 0).decode(errors="replace") for file in own_entries[self.world :]
            )
            for file in (self.box, from_ranks, *own_entries):
                os.close(file)

    def orders(self, port: int) -> dict[str, Any]:
        return {
            "plan": plan_as_dict(self.plan),
            "mine": list(range(self.world)),
            "index": {rank: rank for rank in range(self.world)},
            "box": 1,
            "events": 2,
            "store": 3,
            "stacks": {rank: 4 + rank for rank in range(self.world)},
            "errors": {rank: 4 + self.world + rank for rank in range(self.world)},
            "hosts_store": True,
            "master": ["127.0.0.1", port],
            "start": "fork",
        }

    def read(self, file: int) -> None:
        """Takes events in until every rank has ended."""
        rest, end, poll = b"", time.monotonic() + self.seconds, select.poll()
        poll.register(file, select.POLLIN)
        while len(self.of("exit")) < self.world and not self.watch(self):
            if poll.poll(50):
                data = os.read(file, 1 << 16)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.take(json.loads(line))
                if not data:
                    return
            elif time.monotonic() > end:
                raise TimeoutError(f"not over after {self.seconds} s: {self.events[-5:]}")

    def take(self, event: Event) -> None:
        """An event, or a part of one, as the agent would join them."""
        if event["ev"] in ("child", "spun"):
            return
        if event["ev"] != "part":
            self.events.append(event)
            return
        text = self.parts.pop(event["rank"], "") + event["text"]
        if event["more"]:
            self.parts[event["rank"]] = text
        else:
            self.events.append(json.loads(text))

    def of(self, kind: str, **values: Any) -> list[Event]:
        """Events of this kind that have these values, by rank."""
        return sorted(
            (
                event
                for event in self.events
                if event["ev"] == kind and all(event.get(key) == value for key, value in values.items())
            ),
            key=lambda event: event["rank"],
        )

    def pid(self, rank: int) -> int:
        """Of a rank that runs; 0 before it does."""
        return int(HEADER.unpack(os.pread(self.box, HEADER.size, rank * PAGE_SIZE))[1])

    def stack(self, rank: int) -> str:
        """What it and its children wrote on SIGUSR1."""
        return os.pread(self.stacks[rank], 1 << 20, 0).decode()

    def state(self, rank: int) -> str:
        """What its black box says."""
        return STATES[CURRENT.unpack(os.pread(self.box, CURRENT.size, rank * PAGE_SIZE + CURRENT_AT))[1]]

    def seconds_of(self, stage: str) -> float:
        """The slowest rank's."""
        return max(float(event["seconds"]) for event in self.of("stage", stage=stage))


def memory(name: str, size: int = 0) -> int:
    file = os.memfd_create(name)
    os.truncate(file, size)
    return file


@functools.cache
def worker() -> dict[str, Any]:
    """The names of the worker's program in this process, with torch and NumPy."""
    import numpy
    import torch

    names: dict[str, Any] = {"__name__": "worker"}
    exec(compile(programs.worker(), "worker.py", "exec"), names)
    names["torch"], names["numpy"] = torch, numpy
    return names


@functools.cache
def forker() -> socket.socket:
    """The way to the process that has torch and forks."""
    ours, theirs = socket.socketpair()
    environment = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", FORKER, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def begin(source: str, orders: dict[str, Any], files: list[int]) -> int:
    """Starts what becomes the ranks; gives its process id."""
    text = json.dumps([source, orders]).encode()
    socket.send_fds(forker(), [len(text).to_bytes(8, "little")], files)
    forker().sendall(text)
    return int.from_bytes(forker().recv(8), "little")


FORKER = """
import ast, functools, json, os, signal, socket, sys, types
import torch

compiled = functools.cache(compile)

@functools.cache
def prepare(source):  # compiles the worker's modules once for all runs
    for statement in ast.parse(source).body:
        match statement:
            case ast.Expr(ast.Call(args=[ast.Call(func=ast.Name("compile"), args=words)])):
                compiled(*map(ast.literal_eval, words))

def become(source, orders, files):
    for key in ("box", "events", "store"):
        orders[key] = files[orders[key]]
    for key in ("stacks", "errors"):
        orders[key] = {rank: files[place] for rank, place in orders[key].items()}
    orders["agent"] = os.getppid()
    rest = os.fdopen(files[0], "rb")
    lines = types.SimpleNamespace(readline=lambda: json.dumps(orders).encode(), read=rest.read)
    sys.stdin = types.SimpleNamespace(buffer=lines, close=lambda: None)
    names = {"__name__": "__main__", "compile": compiled}
    exec(compile(source, "worker.py", "exec"), names)
    names["main"]()

link = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    head, files, _, _ = socket.recv_fds(link, 8, 64)
    if not head:
        break
    text, length = b"", int.from_bytes(head, "little")
    while len(text) < length:
        text += link.recv(length - len(text))
    source, orders = json.loads(text)
    prepare(source)
    pid = os.fork()
    if pid == 0:
        link.close()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            become(source, orders, files)
        finally:
            os._exit(9)
    for file in files:
        os.close(file)
    link.sendall(pid.to_bytes(8, "little"))
"""
