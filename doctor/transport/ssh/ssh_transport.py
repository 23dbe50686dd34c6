"""SSH by paramiko: one quick connection a host, kept open for the next round."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.remote.request import Request
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import MAX_KEPT_STDERR, SILENCE, LineSession
from doctor.transport.local import Children
from doctor.transport.options import SshOptions, kept_connections
from doctor.transport.ssh.config_resolver import Resolver
from doctor.transport.ssh.connect import Connector
from doctor.transport.ssh.exec import ExecSession
from doctor.transport.ssh.lean_paramiko import paramiko
from doctor.transport.ssh.lost_segments import with_lost_echo
from doctor.transport.ssh.paramiko_transport import DataEvent, SshConnection, signal_number

AnswerT = TypeVar("AnswerT")
_CLOSING = 2.0
"""Seconds that `close` waits for the threads of broken connections."""


class Ssh:
    """`doctor.transport.Transport` over connections of its own."""

    def __init__(self, options: SshOptions | None = None) -> None:
        self.warnings: list[str] = []
        self._options = options or SshOptions()
        self._children = Children()
        resolver = Resolver(self._options, self._children, self.warnings)
        self._connector = Connector(self._options, resolver, self.warnings)
        self.reached = self._connector.reached
        self.resolve = resolver.resolve
        self._idle: OrderedDict[str, SshConnection] = OrderedDict()
        self._kept: dict[str, tuple[SshConnection, ExecSession]] = {}
        self._in_session: set[SshConnection] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """See `doctor.transport.Transport.run`. A command that is late or floods is cut off with its connection."""
        return self._run(
            host, lambda: self._open_exec(host), lambda session: session.run(command, lambda: stdin, timeout)
        )

    def run_kept(self, host: str, request: Request, timeout: float) -> CommandResult:
        kept = self._take_kept(host)
        if kept:
            return self._run(
                host, lambda: kept, lambda session: session.run("", lambda: request.follow_up, timeout, request.end)
            )
        return self._run(
            host,
            lambda: self._open_exec(host),
            lambda session: session.run(request.command, lambda: request.stdin, timeout, request.end),
        )

    def end_kept(self) -> None:
        with self._lock:
            kept, self._kept = list(self._kept.values()), {}
        for _, session in kept:
            with contextlib.suppress(Exception):  # paramiko may raise any: the session is gone then
                session.close()

    def _take_kept(self, host: str) -> tuple[SshConnection, ExecSession] | None:
        """The command that waits on a host, with its connection; None where there is none any more."""
        with self._lock:
            kept = self._kept.pop(host, None)
            if kept and self._idle.get(host) is kept[0] and kept[1].can_resume():
                return self._idle.pop(host), kept[1]
        return None

    def _run(
        self,
        host: str,
        open_exec: Callable[[], tuple[SshConnection, ExecSession]],
        exchange: Callable[[ExecSession], CommandResult],
    ) -> CommandResult:
        try:
            connection, session, result = self._with_exec(open_exec, exchange)
        except TransportError as error:
            raise self._with_lost_echo(host, error) from None
        if session.waits:
            with self._lock:
                self._kept[host] = connection, session
        self._keep_idle(host, connection)
        return result

    def _with_exec(
        self, open_exec: Callable[[], tuple[SshConnection, ExecSession]], use: Callable[[ExecSession], AnswerT]
    ) -> tuple[SshConnection, ExecSession, AnswerT]:
        """A session, its connection, and what ``use`` makes of it. Raises: TransportError; the connection is closed."""
        try:
            connection, session = open_exec()
            try:
                return connection, session, use(session)
            except BaseException:
                connection.close()
                raise
        except TransportError as error:
            raise self._or_budget_error(error) from None
        except Exception as error:  # noqa: BLE001 -- any error within paramiko is one host's trouble, not the run's
            raise transport_error(
                "error", filled("SSH failed: {0}", strip_control_chars(str(error)) or type(error).__name__)
            ) from None

    def _with_lost_echo(self, host: str, error: TransportError) -> TransportError:
        """An error; of a command that was late without a known reason, with what new connections show of its host."""
        if error.kind != "timeout" or error.hint or self._closed:
            return error
        return with_lost_echo(error, partial(self._run_anew, host), self.resolve(host))

    def _run_anew(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """`run` over a new connection, which is not kept."""
        connection, _, result = self._with_exec(
            lambda: self._connect(host), lambda session: session.run(command, lambda: stdin, timeout)
        )
        connection.close()
        return result

    def open_session(self, host: str, command: str) -> RemoteSession:
        """See `doctor.transport.Transport.open_session`. The connection is kept for the next round."""
        connection, _, channel = self._with_exec(lambda: self._open_exec(host), lambda session: session.start(command))
        connection.stream.watch(SILENCE)
        with self._lock:
            self._in_session.add(connection)
        return LineSession(host, SshChannel(connection, channel, partial(self._end_session, host, connection)))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept = [*self._idle.values(), *self._in_session]
            self._idle.clear()
            self._kept.clear()
        self._children.close()
        self._connector.close()
        for connection in kept:
            connection.close()
        deadline = time.monotonic() + _CLOSING
        for connection in kept:
            connection.join(max(deadline - time.monotonic(), 0))

    def _open_exec(self, host: str) -> tuple[SshConnection, ExecSession]:
        """A session on the connection kept from an earlier round, or on a new one."""
        with self._lock:
            connection = self._idle.pop(host, None)
        if connection:
            session = ExecSession(connection, self._options.max_output)
            try:
                session.open(connection.timeout)
                return connection, session
            except TransportError:
                connection.close()  # it ended between the rounds, and nothing was asked yet
        return self._connect(host)

    def _connect(self, host: str) -> tuple[SshConnection, ExecSession]:
        """A session on a new connection."""
        if self._closed:
            raise transport_error("budget", "the run's time limit was reached")
        connection = self._connector.connect(host)
        session = ExecSession(connection, self._options.max_output)
        try:
            session.open(connection.timeout)
        except BaseException:
            connection.close()
            raise
        return connection, session

    def _or_budget_error(self, error: TransportError) -> TransportError:
        """An error, or what is behind it when all was closed."""
        return (
            transport_error(
                "budget", "the run's time limit was reached before it answered", partial_result=error.partial_result
            )
            if self._closed
            else error
        )

    def _end_session(self, host: str, connection: SshConnection, error: TransportError | None) -> None:
        """The end of a conversation. Raises: Unreached."""
        with self._lock:
            self._in_session.discard(connection)
        if error:
            connection.close()
            raise self._or_budget_error(error)
        self._keep_idle(host, connection)

    def _keep_idle(self, host: str, connection: SshConnection) -> None:
        """Keeps a connection for the next round; the one longest unused goes when there are too many."""
        with self._lock:
            surplus = [connection] if self._closed else []
            if not self._closed:
                self._idle[host] = connection
                if len(self._idle) > kept_connections():
                    surplus.append(self._idle.popitem(last=False)[1])
        for unused in surplus:
            unused.close()


_CHUNK = 1 << 16
_MAX_SEND = 1 << 15
_SEND_RETRY = 0.02
"""Seconds between two tries to send when the host's window is full."""
_OUTPUT_GRACE = 0.3
"""Seconds that output may follow the exit status: what comes later is not the program's."""


class _ExitStatusEvent(threading.Event):
    """The event that paramiko sets for the exit status; it rings as data does."""

    def __init__(self, data_event: DataEvent, set_before: bool) -> None:
        super().__init__()
        self._data_event = data_event
        if set_before:
            self.set()

    def set(self) -> None:
        super().set()
        self._data_event.set()


class SshChannel:
    """`doctor.transport.conversation.ByteChannel`.

    ``leave`` gets at the end why the connection is of no more use, or None, and may raise Unreached.
    """

    def __init__(
        self, connection: SshConnection, channel: paramiko.Channel, on_end: Callable[[TransportError | None], None]
    ) -> None:
        self.received_bytes, self.err = 0, bytearray()
        self._connection, self._channel, self._on_end = connection, channel, on_end
        self._data_event = DataEvent()
        self._exited_at = 0.0
        for buffer in (channel.in_buffer, channel.in_stderr_buffer):
            buffer.set_event(self._data_event)
        early = channel.status_event
        channel.status_event = _ExitStatusEvent(self._data_event, early.is_set())
        if early.is_set():  # it came while we changed them
            channel.status_event.set()
        channel.settimeout(0.0)
        self._data_event.set()

    def wait(self, writing: bool, seconds: float) -> None:
        limits = [seconds, *([_SEND_RETRY] if writing else []), *([_OUTPUT_GRACE] if self._exited_at else [])]
        self._data_event.wait(min(limits))
        self._data_event.reset()

    def wake(self) -> None:
        self._data_event.set()

    def abort(self) -> None:
        self._connection.stream.abort()

    def write(self, data: memoryview) -> int:
        self._connection.stream.deadline = time.monotonic() + SILENCE
        try:
            return self._channel.send(bytes(data[:_MAX_SEND]))
        except TimeoutError:  # the window is full
            return 0
        except (paramiko.SSHException, EOFError) as error:
            raise OSError(str(error)) from None
        finally:
            self._connection.stream.deadline = float("inf")

    def read(self) -> bytes | None:
        over = self._output_complete()  # asked first: what it said last is there by then
        channel = self._channel
        chunk = channel.recv(_CHUNK) if channel.recv_ready() else b""
        stderr_chunk = channel.recv_stderr(_CHUNK) if channel.recv_stderr_ready() else b""
        self.received_bytes += len(chunk) + len(stderr_chunk)
        self.err += stderr_chunk
        del self.err[:-MAX_KEPT_STDERR]
        if chunk or stderr_chunk:
            self._data_event.set()  # there may be more
        return chunk if chunk or not over else None

    def close_input(self) -> None:
        try:
            self._channel.shutdown_write()
        except (paramiko.SSHException, EOFError, OSError):
            return  # then it is gone, and reading says so

    def ended(self) -> bool:
        return self._channel.closed or self._channel.status_event.is_set()

    def release(self) -> int | None:
        channel = self._channel
        name = self._connection.signals.pop(channel.chanid, "")
        code = -signal_number(name) if name else channel.exit_status
        has_status = channel.status_event.is_set() and bool(name or code >= 0)
        cut = None if has_status else self._end_error()
        try:
            if not cut:
                channel.close()
        finally:
            self._on_end(cut)
        return None if name and not code else code

    def _output_complete(self) -> bool:
        """Whether the program has ended, and all its output has arrived."""
        channel = self._channel
        if channel.closed or (channel.eof_received and channel.status_event.is_set()):
            return True
        if channel.status_event.is_set():
            self._exited_at = self._exited_at or time.monotonic()
        return bool(self._exited_at) and time.monotonic() - self._exited_at > _OUTPUT_GRACE

    def _end_error(self) -> TransportError:
        if self._connection.is_active() and not self._channel.closed:
            return transport_error("timeout", "the program did not end after its input was closed")
        return transport_error("lost", "the connection was cut before the program ended")
