"""A prober on each host: lines from and to all of them at once, one thread each, one inbox for them all."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.net.prober import MODULES
from doctor.remote.assemble import assemble
from doctor.remote.bootstrap import stdin_command
from doctor.remote.request import marked_text, new_marker
from doctor.transport import RemoteSession, Transport, TransportError
from doctor.transport.conversation import close_all

STAY_SECONDS = 4.0
"""Between two signs of life to every prober; it ends itself after 20 s without one."""
TOKEN_BYTES = 32
MARGIN_SECONDS = 15.0
"""That a prober may live beyond the test's budget, if nothing else ends it."""

Text = Annotated[str, msgspec.Meta(max_length=4096)]
PrintedText = Annotated[str, msgspec.Meta(max_length=8192)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class AttemptReport(msgspec.Struct, frozen=True, array_like=True):
    """One attempt as a prober reports it."""

    peer: int
    address: Text
    port: Port
    outcome: Text
    detail: Text
    seconds: float
    sent_again: int
    """Segments that the kernel sent more than once."""
    largest: int
    """Bytes of the largest packet that passes, where full-size ones do not; 0 where it was not found."""
    source_port: Port = 0
    """That it came from; 0 where it was not made."""


class ListenerReport(msgspec.Struct, frozen=True, array_like=True):
    """What became of one listener."""

    address: Text
    requested: Port
    port: Port
    problem: Text
    owner: dict[str, Any]
    """user, pid, command and seconds of the process that holds the port."""


class StreamReport(msgspec.Struct, frozen=True):
    """Streams that sent at the same time."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    again: Annotated[int, msgspec.Meta(ge=0)]
    """Segments that were sent more than once."""
    problem: Text = ""
    waited: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds that a program of either end waited for a CPU."""
    arrival: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Bytes a second at which packets arrived while they did, by the kernel's time stamps; 0 where too few did."""

    @property
    def rate(self) -> float | None:
        """Bytes a second; None where nothing was measured."""
        return self.bytes / self.seconds if self.seconds > 0 and self.bytes and not self.problem else None


class SpeedReport(msgspec.Struct, frozen=True):
    """The speed from one host to another."""

    host: int
    problem: Text = ""
    latencies: Annotated[list[float], msgspec.Meta(max_length=4096)] = []
    """Seconds of round trips of one byte."""
    single: StreamReport | None = None
    multi: StreamReport | None = None


class PaceReport(msgspec.Struct, frozen=True):
    """How far a host let its prober run."""

    seconds: Annotated[float, msgspec.Meta(ge=0)]
    """Measured in all."""
    longest: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds of the prober's longest turn: 0.1 s where nothing disturbs it."""
    waited: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds that it waited for a CPU."""
    stolen: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the host's CPU time that the hypervisor took."""


class ProberMessage(msgspec.Struct, frozen=True):
    """One line of a prober; it has one of these fields."""

    hello: dict[str, Any] | None = None
    listening: Annotated[list[ListenerReport], msgspec.Meta(max_length=4096)] | None = None
    attempts: Annotated[list[AttemptReport], msgspec.Meta(max_length=4096)] | None = None
    round: int = 0
    done: int | None = None
    arrived: Annotated[list[tuple[Text, Port, Port]], msgspec.Meta(max_length=4096)] | None = None
    given_up: Annotated[list[tuple[Port, Port]], msgspec.Meta(max_length=4096)] | None = None
    """Port here and the caller's of each call that it closed for want of time or room."""
    speed: SpeedReport | None = None
    pace: PaceReport | None = None
    job: Annotated[list[tuple[int, Text]], msgspec.Meta(max_length=64)] | None = None
    programs: Annotated[list[Text], msgspec.Meta(max_length=16)] | None = None
    serving: int | None = None
    called: Annotated[list[tuple[Text, PrintedText, float]], msgspec.Meta(max_length=64)] | None = None
    """Label, output and seconds of each program that was run."""
    bye: dict[str, Any] | None = None
    fault: Text = ""


_DECODER = msgspec.json.Decoder(ProberMessage)


@cache
def prober_program() -> bytes:
    """The program of each host."""
    return assemble(*MODULES).encode("ascii")


class Probers:
    """The probers of all hosts, by host. A host that is lost is in `lost`, with the reason."""

    def __init__(
        self, hosts: Sequence[str], transport: Transport, seconds: float, within: tuple[str, ...] = (), python: str = ""
    ) -> None:
        self.hosts = tuple(hosts)
        self.lost: dict[str, str] = {}
        self.on_message: Callable[[str, ProberMessage], None] = lambda host, message: None
        self._marker, self._token = new_marker(), secrets.token_hex(TOKEN_BYTES)
        self._inbox: queue.SimpleQueue[tuple[str, bytes | RemoteSession | str]] = queue.SimpleQueue()
        self._sessions: dict[str, RemoteSession] = {}
        self._last_order = time.monotonic()
        self._seconds, self._transport, self._within, self._python = seconds, transport, within, python
        for number, host in enumerate(self.hosts):
            threading.Thread(target=self._listen, args=(number, host), daemon=True).start()

    def _listen(self, number: int, host: str) -> None:
        """Runs one session in its own thread; every line goes through the inbox."""
        request = {
            "marker": self._marker,
            "token": self._token,
            "host": number,
            "seconds": self._seconds + MARGIN_SECONDS,
        }
        first, source = msgspec.json.encode(request), prober_program()
        try:
            session = self._transport.open_session(host, stdin_command(source, len(first), self._python, self._within))
            session.send(source + first)
            self._inbox.put((host, session))
            for line in session:
                self._inbox.put((host, line))
            self._inbox.put((host, _last_words(session)))
        except TransportError as stop:
            self._inbox.put((host, stop.text))
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the test
            self._inbox.put((host, f"{type(error).__name__}: {error}"))

    def pump(self, seconds: float = 0.05) -> None:
        """Takes in what has come, and waits no longer than this for it; keeps the probers alive."""
        with contextlib.suppress(queue.Empty):
            self._handle(*self._inbox.get(timeout=seconds))
            while True:
                self._handle(*self._inbox.get_nowait())
        if time.monotonic() > self._last_order + STAY_SECONDS:
            self._last_order = time.monotonic()
            for host in self._sessions:
                self.send(host, {"do": "stay"})

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Until ``done`` or the deadline, by `time.monotonic`. Whether it was done."""
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pump()
        return True

    def _handle(self, host: str, received: bytes | RemoteSession | str) -> None:
        if isinstance(received, str):
            self.lost.setdefault(host, strip_control_chars(received, 400))
        elif not isinstance(received, bytes):
            self._sessions[host] = received
        elif (text := marked_text(received, self._marker.encode("ascii"))) is not None and host not in self.lost:
            try:
                self.on_message(host, _DECODER.decode(text))
            except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError) as error:
                self.lost[host] = f"its prober sent an invalid message: {strip_control_chars(str(error), 200)}"

    def send(self, host: str, order: Mapping[str, Any]) -> None:
        """Does nothing where the prober is gone; the inbox reports that."""
        if host in self._sessions and host not in self.lost:
            with contextlib.suppress(TransportError):
                self._sessions[host].send(msgspec.json.encode(order) + b"\n")

    def close(self) -> None:
        """Has every prober close its sockets and end."""
        for host in self._sessions:
            self.send(host, {"do": "end"})
        close_all(self._sessions.values(), 1.0)


def _last_words(session: RemoteSession) -> str:
    text = strip_control_chars(session.err[-300:])
    return f"its prober ended{': ' if text else ''}{text}"
