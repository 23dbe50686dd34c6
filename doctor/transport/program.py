"""The programs that are sent to hosts: how one is started, asked once, or talked with until it ends.

`HostProgram` starts a program, and `HostProgram.ask` reads its one answer. `ProgramSessions` exchanges lines with many
programs at once. `visit_hosts` does something for many hosts at the same time. What programs have filled, as
`doctor.remote.runtime.host_texts` sends it, is untrusted, and bounded.
"""

from __future__ import annotations

import _thread
import base64
import contextlib
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from doctor.engine.decoding import StreamTooLarge, inflate
from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.texts import MAX_ANSWER_ROWS, TextTable, ending, filled, read_table
from doctor.remote.bootstrap import assemble, python_problem, stdin_command
from doctor.remote.request import Request, marked_text
from doctor.remote.runtime.controller import LEFT_STATUS
from doctor.remote.runtime.host_texts import with_texts
from doctor.transport import CommandResult, RemoteSession, Transport, TransportError
from doctor.transport.conversation import close_all


class _Event(msgspec.Struct, frozen=True):
    texts: TextTable = {}


class _Message(_Event, frozen=True):
    event: _Event = _Event()
    """Of a rank, which its host's agent passes on."""


_DECODER = msgspec.json.Decoder(_Message)


def take_texts(data: bytes) -> None:
    """Makes the texts known that came with a message of a program; a message that is none of ours has none."""
    if b'"texts"' not in data:
        return
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    for table in (message.texts, message.event.texts):
        read_table(table, MAX_ANSWER_ROWS)


def filled_here(text: str) -> str:
    """``text``, which a module of such a program has filled in this process."""
    read_table(with_texts({}).get("texts", {}))
    return text


ItemT = TypeVar("ItemT")
MessageT = TypeVar("MessageT")
ResultT = TypeVar("ResultT")
Connect = Callable[[], RemoteSession]
"""Reaches a program, starts it if need be, and sends it its request. Raises: TransportError."""


class HostProgram:
    """A program that is sent to hosts.

    Args:
        module: the one that the others of it are imported by. Messages call it by its folder, such as ``agent``.
        no_answer: the message where it printed nothing: ``{0}`` for its exit status, ``{1}`` for the error behind it.
        packed: it is sent as zlib packs it.
    """

    def __init__(self, module: str, no_answer: str = "", packed: bool = False) -> None:
        self.name = module.split(".")[-2]
        self._module, self._no_answer, self._packed = module, no_answer, packed

    @cached_property
    def source(self) -> bytes:
        return assemble(self._module).encode("ascii")

    @cached_property
    def sent_source(self) -> bytes:
        """Its text as it is sent, one object for all hosts."""
        return zlib.compress(self.source) if self._packed else self.source

    def request(
        self,
        marker: str,
        first: bytes,
        *,
        common: bytes = b"",
        end: bytes = b"",
        interpreter: str = "",
        within: Sequence[str] = (),
        as_root: bool = False,
        candidate: str = "",
    ) -> Request:
        """Starts the program, which reads ``first`` and ``common``; the rest is as in `Request` and `stdin_command`."""
        source = self.sent_source
        command = stdin_command(
            source, len(first) + len(common), interpreter, within, as_root, self._packed, candidate=candidate
        )
        return Request(command, source, first, marker, common, end)

    def ask(
        self,
        transport: Transport,
        host: str,
        request: Request,
        seconds: float,
        limit: int,
        read_part: Callable[[bytes], bool],
    ) -> str:
        """Runs the program for its answer. Returns why the answer is not whole; empty where it is.

        Args:
            transport: the way to the host.
            host: its name.
            request: made by `request`.
            seconds: for the program, once the host is reached.
            limit: bytes of the inflated answer; a host is not trusted to keep to what it was asked for.
            read_part: takes in each part that came; returns whether it was the last, and raises ValueError where
                it is none.
        """
        error = ""
        try:
            result = transport.run(host, request.command, request.stdin, seconds)
        except TransportError as stop:
            error = strip_control_chars(stop.text)
            if stop.partial_result is None:
                return error
            result = stop.partial_result
        except Exception as problem:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            return strip_control_chars(f"{type(problem).__name__}: {problem}")
        return self.read_answer(result, request.marker, limit, read_part, error)

    def read_answer(
        self, result: CommandResult, marker: str, limit: int, read_part: Callable[[bytes], bool], error: str = ""
    ) -> str:
        """See `ask`. Each part is a line of zlib's bytes in base64, so that a cut loses only the rest.

        ``error``: why the program's output is not whole, where that is known.
        """
        begun, room, prefix = False, limit, marker.encode("ascii")
        for line in result.out.split(b"\n"):
            text = marked_text(line, prefix)
            if text is None:
                continue
            try:
                part = inflate(base64.b64decode(text, validate=True), room)
                room -= len(part)
                take_texts(part)
                if read_part(part):
                    return error
                begun = True
            except StreamTooLarge:
                error = error or filled("its answer exceeds {0} MiB", limit >> 20)
            except (ValueError, RecursionError, msgspec.MsgspecError):
                error = error or "its answer is damaged"
        errors = result.err.decode("utf-8", "replace")
        reason = last_line(errors)
        ending = f": {reason}" if reason else ""
        if begun:
            return error or python_problem(errors) or filled("its answer is incomplete{0}", ending)
        return error or python_problem(errors) or filled(self._no_answer, result.code, ending)


def start_session(transport: Transport, host: str, request: Request) -> RemoteSession:
    """Starts a program that goes on until its session is closed. Raises: TransportError."""
    session = transport.open_session(host, request.command)
    session.send(request.stdin)
    return session


class InvalidMessage(Exception):
    """A line that no program of ours would send; the text says why."""


def decode_message(decoder: msgspec.json.Decoder[MessageT], data: bytes | msgspec.Raw) -> MessageT:
    """A line of a program. Raises: InvalidMessage."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidMessage(str(error)) from None


NO_ORDERS = "no-orders"
"""`ProgramLost.kind` of a program that ended itself as no message reached it."""
CUT_SECONDS = 0.5
"""Seconds after an invalid message in which its program may turn out to have ended in the middle of it."""
STOOD_STILL = 5.0
"""Seconds without a turn of its loop that this process cannot have been busy for."""


def _elapsed() -> float:
    """Seconds by a clock that goes on while this machine is suspended, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ProgramLost(msgspec.Struct, frozen=True):
    """No more lines will come from a program, or none that can be trusted."""

    text: str
    kind: str = "lost"
    hint: str = ""
    code: int | None = None
    """The exit status, if it ended."""
    err: bytes = b""


class ProgramSessions:
    """Lines from and to programs, by name: a thread for each of them, one inbox for all.

    A subclass takes in the lines by `take_message`, and is used by one thread alone.

    Args:
        program: what messages call each of them, such as ``agent``.
        connect: what starts each.
        marker: that begins each of their lines.
        stay_order: sent to all every ``stay_seconds``: they end themselves some time after the last. Empty: none is.
    """

    poll_seconds = 0.05
    """How long `pump` waits by default."""
    stay_seconds = 4.0

    def __init__(self, program: str, connect: Mapping[str, Connect], marker: str, stay_order: bytes = b"") -> None:
        self.lost: dict[str, ProgramLost] = {}
        """Those that no lines come from any more."""
        self._program, self._marker, self._stay_order = program, marker.encode("ascii"), stay_order
        self._inbox: queue.SimpleQueue[tuple[str, bytes | RemoteSession | ProgramLost]] = queue.SimpleQueue()
        self._sessions: dict[str, RemoteSession] = {}
        self._stayed = time.monotonic()
        self._turned = _elapsed()
        self._invalid: dict[str, tuple[ProgramLost, float]] = {}
        """Of programs that sent an invalid message: why they are lost, and from when on; it may be a cut last one."""
        self.stood_still = 0.0
        """The longest time, in seconds, for which this process did not take in what came: suspended, or stopped."""
        for name, reach in connect.items():
            threading.Thread(target=self._listen, args=(name, reach), daemon=True).start()

    def take_message(self, name: str, data: bytes) -> None:
        """Takes in a line. Raises: InvalidMessage, after which the program is lost."""
        raise NotImplementedError

    def take_noise(self, name: str, line: bytes) -> None:
        """Takes in a line that the program did not print: of the host's login shell, for example."""

    def _listen(self, name: str, connect: Connect) -> None:
        """Runs one session in its own thread; every line goes through the inbox."""
        try:
            session = connect()
            self._inbox.put((name, session))
            for line in session:
                if line:
                    self._inbox.put((name, line))
            self._inbox.put((name, self.end_reason(session)))
        except TransportError as stop:
            self._inbox.put((name, ProgramLost(strip_control_chars(stop.text, 400), stop.kind, stop.hint)))
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            self._inbox.put((name, ProgramLost(strip_control_chars(f"{type(error).__name__}: {error}", 400), "error")))

    def end_reason(self, session: RemoteSession) -> ProgramLost:
        """Why a program ended by itself; called in its session's thread."""
        code, text = session.code, strip_control_chars(ending(session.err, 400))
        status = (
            "" if code is None else filled(" (signal {0})", -code) if code < 0 else filled(" (exit status {0})", code)
        )
        kind = "no-python" if python_problem(text) else "shell"
        return ProgramLost(
            filled("its {0} ended{1}{2}{3}", self._program, status, ": " if text else "", text),
            kind,
            "",
            code,
            session.err,
        )

    def pump(self, seconds: float | None = None) -> None:
        """Takes in what has come, and waits no longer than this for it; keeps the programs alive."""
        self._note_pause()
        with contextlib.suppress(queue.Empty):
            self._handle(*self._inbox.get(timeout=self.poll_seconds if seconds is None else seconds))
            while True:
                self._handle(*self._inbox.get_nowait())
        for name, (lost, until) in self._invalid.items():
            if self._turned > until:
                self.lost.setdefault(name, lost)
        now = time.monotonic()
        if self._stay_order and now > self._stayed + self.stay_seconds:
            self._stayed = now
            for name in self._sessions:
                self.send_line(name, self._stay_order)

    def _note_pause(self) -> None:
        gap, self._turned = _elapsed() - self._turned, _elapsed()
        self.stood_still = max(self.stood_still, gap)

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Until ``done`` or the deadline, by `time.monotonic`. Whether it was done."""
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pump()
        return True

    def _handle(self, name: str, received: bytes | RemoteSession | ProgramLost) -> None:
        if isinstance(received, ProgramLost):
            invalid, _ = self._invalid.get(name, (received, 0.0))
            self.lost.setdefault(name, self._without_orders(received) if received.code == LEFT_STATUS else invalid)
        elif not isinstance(received, bytes):
            self._sessions[name] = received
        elif (text := marked_text(received, self._marker)) is None:
            self.take_noise(name, received)
        elif name not in self.lost and name not in self._invalid:
            take_texts(text)
            try:
                self.take_message(name, text)
            except InvalidMessage as error:
                problem = filled("its {0} sent an invalid message: {1}", self._program, strip_control_chars(str(error)))
                self._invalid[name] = ProgramLost(problem, "error"), _elapsed() + CUT_SECONDS

    def _without_orders(self, lost: ProgramLost) -> ProgramLost:
        """The reason of a program that no order came to, which says nothing against its host."""
        self._note_pause()  # the wait of this turn may have been the pause
        text = filled("its {0} got no message from doctor for too long, and ended itself", self._program)
        if self.stood_still > STOOD_STILL:
            text = filled("doctor itself stood still for {0} s: {1}", f"{self.stood_still:.0f}", text)
        return msgspec.structs.replace(lost, text=text, kind=NO_ORDERS)

    def send_line(self, name: str, line: bytes) -> None:
        """Does nothing where the program is gone; the inbox reports that."""
        if name in self._sessions and name not in self.lost:
            with contextlib.suppress(TransportError):
                self._sessions[name].send(line + b"\n")

    def close(self, grace: float = 1.0) -> None:
        """Closes all sessions, with one grace in seconds for them together."""
        close_all(self._sessions.values(), grace)


def visit_hosts(
    hosts: Sequence[str],
    transport: Transport,
    visit: Callable[[str], ResultT],
    workers: int,
    take: Callable[[str, ResultT], None],
    deadline: float = float("inf"),
) -> None:
    """Gives ``take`` what ``visit`` makes of each host, as it comes; nothing more after the deadline.

    The deadline is one by `time.monotonic`. An interrupt (``KeyboardInterrupt``, `SystemExit`) closes the transport.
    """
    try:
        for host, result in parallel_map(hosts, visit, workers, deadline=deadline):
            take(host, result)
    except (KeyboardInterrupt, SystemExit):
        transport.close()
        raise


def parallel_map(
    items: Sequence[ItemT],
    work: Callable[[ItemT], ResultT],
    width: int,
    stop: threading.Event | None = None,
    deadline: float = float("inf"),
) -> Iterator[tuple[ItemT, ResultT]]:
    """Every item with what ``work`` makes of it, as it comes, until the deadline by `time.monotonic`.

    After ``stop``, and when the caller has stopped iterating, none is begun. Raises what ``work`` raises.
    """
    todo: queue.SimpleQueue[ItemT] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[ItemT, ResultT] | BaseException | None] = queue.SimpleQueue()
    for item in items:
        todo.put(item)
    running = max(1, min(width, len(items)))
    for _ in range(running):
        _thread.start_new_thread(
            _work_off, (todo, done, work, stop)
        )  # `threading.Thread` waits for each to begin, and keeps a book of them
    try:
        while running and (remaining := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                # Short waits: an interrupt is only seen between them on some systems.
                message = done.get(timeout=min(remaining, 0.5))
                if message is None:
                    running -= 1
                elif isinstance(message, BaseException):
                    raise message
                else:
                    yield message
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()


def _work_off(
    todo: queue.SimpleQueue[ItemT],
    done: queue.SimpleQueue[tuple[ItemT, ResultT] | BaseException | None],
    work: Callable[[ItemT], ResultT],
    stop: threading.Event | None,
) -> None:
    """One thread of `parallel_map`; None is the last that it puts into ``done``."""
    try:
        while not (stop and stop.is_set()):
            item = todo.get_nowait()
            done.put((item, work(item)))
    except queue.Empty:
        pass
    except BaseException as error:  # noqa: BLE001 - it belongs to who iterates
        done.put(error)
    done.put(None)
