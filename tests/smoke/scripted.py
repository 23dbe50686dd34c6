"""Agents that only play their parts: what the supervisor makes of what hosts say, without a host."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from doctor.transport import CommandResult, RemoteSession, TransportError

Line = Mapping[str, Any] | bytes | float | Exception | None
"""To be said; or seconds to be silent for; or how the conversation breaks; None: the agent ends."""


def hello(host: str = "a", **more: Any) -> dict[str, Any]:
    known_values = {
        "host": host,
        "pid": 7,
        "python": "3.9.2",
        "cpus": 2,
        "addresses": {"lo": ["127.0.0.1"]},
        "port": 29400,
    }
    return {"hello": {**known_values, **more}}


REQUIRED: dict[str, dict[str, Any]] = {
    "imported": {"torch": "2.13.0", "python": "3.9.2"},
    "joined": {"seconds": 0.1, "host": "a", "world": 4},
    "stage": {"seconds": 0.1},
    "learn": {"loss": 4.1},
    "error": {"secondary": False},
}


def event(rank: int, ev: str, **values: Any) -> dict[str, Any]:
    """An event as a worker emits it; the fields that it must have, and that the test does not speak of, are made up."""
    return {"event": {**REQUIRED.get(ev, {}), "rank": rank, "ev": ev, **values}}


def life(ranks: Sequence[int], stages: Sequence[str] = ("start", "rendezvous", "training")) -> list[Line]:
    """What a host says of ranks that do well."""
    rows: list[Line] = [event(-1, "imported", seconds=1.5)]
    rows += [event(rank, "joined") for rank in ranks]
    rows += [event(rank, "stage", stage=stage) for stage in stages for rank in ranks]
    return rows


def done(ranks: Sequence[int]) -> list[Line]:
    return [event(rank, "done") for rank in ranks]


class Agent:
    """A conversation with one of them. ``start`` is said after the orders to start have come."""

    err = b""

    def __init__(self, host: str, greeting: Sequence[Line], start: Callable[[Sequence[int]], Sequence[Line]]) -> None:
        self.host, self.greeting, self.starts = host, greeting, start
        self.code: int | None = None
        self.end_code = 0
        """Its exit status, once it ends."""
        self.orders: list[dict[str, Any]] = []
        self.answers: dict[str, Sequence[Line]] = {
            "end": [{"bye": {"left": []}}, None],
            "stacks": [{"stacks": {}}],
            "pressure": [{"pressure": {}}],
        }
        self.report: queue.SimpleQueue[list[Line]] = queue.SimpleQueue()
        self.marker = b""
        self.greeted = threading.Event()
        """Set when whoever listens has taken the first line, and comes for the next."""

    def send(self, data: bytes) -> None:
        if not self.marker:
            request = json.loads(data[data.rindex(b'{"marker"') :])
            self.marker = request["marker"].encode()
            self.orders.append(request)
            self.report.put(list(self.greeting))
            return
        order = json.loads(data)
        self.orders.append(order)
        self.report.put(
            list(self.starts(order["mine"]) if order["do"] == "start" else self.answers.get(order["do"], ()))
        )

    def __iter__(self) -> Iterator[bytes]:
        """Answers come before the rest of what was to be said."""
        lines: deque[Line] = deque()
        while True:
            pause = 0.0
            if lines:
                line = lines.popleft()
                pause = line if isinstance(line, float) else 0.0
                if line is None:
                    self.code = self.end_code
                    return
                if isinstance(line, Exception):
                    raise line
                if isinstance(line, bytes):
                    yield line.replace(b"MARKER", self.marker)
                elif not isinstance(line, float):
                    yield self.marker + b" " + json.dumps(line).encode()
                    self.greeted.set()
            with contextlib.suppress(queue.Empty):
                more = self.report.get(timeout=pause) if lines or pause else self.report.get()
                lines.extendleft(reversed(more))

    def end(self) -> None:
        self.report.put([None])

    def close(self, grace: float = 1.0) -> None:
        self.report.put([None])

    def orders_of(self, do: str) -> list[dict[str, Any]]:
        return [order for order in self.orders if order.get("do") == do]


def alive(ranks: Sequence[int]) -> list[Line]:
    """Goes on reporting that nothing is new, for some seconds."""
    quiet: tuple[Line, ...] = ({"snaps": []}, 0.1)
    return [line for _ in range(100) for line in quiet]


class Stage:
    """A transport whose hosts are played."""

    def __init__(self, **agents: Agent | TransportError) -> None:
        self.agents = agents
        self.warnings: list[str] = []

    def open_session(self, host: str, command: str) -> RemoteSession:
        agent = self.agents[host]
        if isinstance(agent, TransportError):
            raise agent
        return agent

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        raise NotImplementedError

    def close(self) -> None:
        pass
