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
from doctor.transport.conversation import SILENCE, LineSession
from doctor.transport.local import Children
from doctor.transport.options import SshOptions, kept_connections
from doctor.transport.ssh.config_resolver import Resolver
from doctor.transport.ssh.connect import Connector
from doctor.transport.ssh.exec import ExecSession
from doctor.transport.ssh.paramiko_transport import SshConnection
from doctor.transport.ssh.ssh_channel import SshChannel

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
        """See `doctor.transport.KeepsCommands`."""
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
        """See `doctor.transport.KeepsCommands`."""
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
        connection, session, result = self._with_exec(open_exec, exchange)
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

    def open_session(self, host: str, command: str) -> RemoteSession:
        """See `doctor.transport.Transport.open_session`. The connection is kept for the next round."""
        connection, _, channel = self._with_exec(lambda: self._open_exec(host), lambda session: session.start(command))
        connection.stream.watch(SILENCE)
        with self._lock:
            self._in_session.add(connection)
        return LineSession(host, SshChannel(connection, channel, partial(self._end_session, host, connection)))

    def close(self) -> None:
        """See `doctor.transport.Transport.close`."""
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
