"""Lines from and to all agents at once: one thread each, one inbox for them all."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.remote.request import marked_text
from doctor.smoke.protocol import AgentHello, AgentMessage, AgentOrder, End, InvalidMessage, encode_order, parse_message
from doctor.smoke.run.bootstrap import failure_kind
from doctor.transport import RemoteSession, TransportError
from doctor.transport.conversation import close_all

Connect = Callable[[], RemoteSession]
Hear = Callable[[str, AgentMessage], None]
TICK = 0.02
"""Seconds that we sleep for at most while ranks run."""
CLOSE_SECONDS = 1.5


class AgentEndpoint(msgspec.Struct, frozen=True):
    """One agent, and what it is in charge of."""

    host: str
    connect: Connect
    """Reaches it, starts it if need be, and sends it its request."""
    ranks: tuple[int, ...] = ()
    """Empty: all ranks of its host, by the plan."""
    address: str = ""
    """Of our own clock, when the message arrived."""


class AgentLost(msgspec.Struct, frozen=True):
    """No more lines will come from an agent, or none that can be trusted."""

    text: str
    kind: str = "lost"
    hint: str = ""
    code: int | None = None
    """The exit status, if it ended."""
    err: bytes = b""


class Channels:
    """All agents, by name: a host's, or one of several on it."""

    def __init__(self, endpoints: Mapping[str, AgentEndpoint], marker: str) -> None:
        self.endpoints = dict(endpoints)
        self.on_message: Hear = lambda name, line: None
        """Is given every line that was understood, as `pump` takes it in."""
        self._marker = marker.encode("ascii")
        self._inbox: queue.SimpleQueue[tuple[str, bytes | RemoteSession | AgentLost]] = queue.SimpleQueue()
        self._conversations: dict[str, RemoteSession] = {}
        self._replies: dict[str, dict[str, AgentMessage]] = {}
        self._ticked = time.monotonic()
        self.hellos: dict[str, AgentHello] = {}
        self.hello_times: dict[str, float] = {}
        """Our clock when they came."""
        self.lost_agents: dict[str, AgentLost] = {}
        self.leftover_processes: dict[str, list[tuple[int, str, str]]] = {}
        """What an agent could not end, by its farewell."""
        self.output_before_hello: dict[str, str] = {}
        """Output of a host before the agent's first message."""
        self.silent_seconds = dict.fromkeys(endpoints, 0.0)
        """Seconds without a message, less those for which this process itself was suspended."""
        self.cpu_wait = 0.0
        """Seconds that we or an agent waited for a CPU lately; it fades."""
        for name, endpoint in endpoints.items():
            threading.Thread(target=self._listen, args=(name, endpoint.connect), daemon=True).start()

    def _listen(self, name: str, connect: Connect) -> None:
        """Runs one connection in its own thread; every message goes through the inbox."""
        try:
            conversation = connect()
            self._inbox.put((name, conversation))
            for line in conversation:
                if line:
                    self._inbox.put((name, line))
            self._inbox.put((name, _end_reason(conversation)))
        except TransportError as stop:
            self._inbox.put((name, AgentLost(stop.text, stop.kind, stop.hint)))
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            self._inbox.put((name, AgentLost(f"{type(error).__name__}: {error}", "error")))

    def pump(self, seconds: float = TICK) -> None:
        """Takes in what has come, and waits no longer than this for it."""
        try:
            self._handle(*self._inbox.get(timeout=seconds))
            while True:
                self._handle(*self._inbox.get_nowait())
        except queue.Empty:
            pass
        now = time.monotonic()
        gap, self._ticked = now - self._ticked, now
        self.cpu_wait = max(self.cpu_wait * 0.9, gap - 0.1, 0.0)
        for name in self.silent_seconds:
            self.silent_seconds[name] += min(gap, 0.1)

    def drop(self, name: str) -> None:
        """Continues without an agent: further messages are dropped. It is ended with the others."""
        del self.endpoints[name]
        del self.silent_seconds[name]
        self.hellos.pop(name, None)
        self.lost_agents.pop(name, None)

    def _handle(self, name: str, received: bytes | RemoteSession | AgentLost) -> None:
        if not isinstance(received, (bytes, AgentLost)):
            self._conversations[name] = received
        elif name not in self.endpoints:
            if isinstance(received, AgentLost):
                self._conversations.pop(name, None)
        elif isinstance(received, AgentLost):
            self.lost_agents.setdefault(name, received)
        elif (text := marked_text(received, self._marker)) is not None:
            self._read(name, text)
        elif name not in self.hellos:
            self.output_before_hello[name] = strip_control_chars(received[:400])

    def _read(self, name: str, data: bytes) -> None:
        self.silent_seconds[name] = 0.0
        if name in self.lost_agents:
            return
        try:
            line = parse_message(data)
            if line.hello:
                self.hellos[name] = line.hello
                self.hello_times.setdefault(name, time.time())
            for key in ("stacks", "sockets", "probes", "pressure"):
                if getattr(line, key) is not None:
                    self._replies.setdefault(key, {})[name] = line
            if line.bye:
                self.leftover_processes[name] = line.bye.left
            self.cpu_wait = max(self.cpu_wait, min(line.late, 5.0))
            self.on_message(name, line)
        except InvalidMessage as error:
            self.lost_agents[name] = AgentLost(
                f"its agent sent an invalid message: {strip_control_chars(str(error))}", "error"
            )

    def send(self, name: str, order: AgentOrder) -> None:
        """Does nothing where the agent is gone; the inbox reports that."""
        with contextlib.suppress(TransportError):
            self._conversations[name].send(encode_order(order) + b"\n")

    def query(self, key: str, orders: Mapping[str, AgentOrder], seconds: float) -> dict[str, AgentMessage]:
        """The answers, of those agents that answered in time."""
        self._replies.pop(key, None)
        sent_orders = {
            name: order for name, order in orders.items() if name in self.hellos and name not in self.lost_agents
        }
        for name, order in sent_orders.items():
            self.send(name, order)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if sent_orders.keys() <= self._replies.get(key, {}).keys() | self.lost_agents.keys():
                break
            self.pump()
        return self._replies.get(key, {})

    def close(self) -> None:
        """Has every agent end all that it started, and closes the conversations."""
        for name in self._conversations:
            self.send(name, End())
        deadline = time.monotonic() + CLOSE_SECONDS
        ended = {name for name, lost in self.lost_agents.items() if lost.kind != "error"}
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            while (
                time.monotonic() < deadline and not self._conversations.keys() <= self.leftover_processes.keys() | ended
            ):
                self.pump()
                ended |= self.lost_agents.keys()
        close_all(self._conversations.values(), 0.5)


def _end_reason(conversation: RemoteSession) -> AgentLost:
    code, stderr_text = conversation.code, strip_control_chars(conversation.err[-400:])
    status_text = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit status {code})"
    text = f"its agent ended{status_text}{': ' if stderr_text else ''}{stderr_text}"
    return AgentLost(text, failure_kind(stderr_text), code=code, err=conversation.err)
