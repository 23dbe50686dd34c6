"""SSH by paramiko: one quick connection a host, kept open for the next round."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from functools import partial

from doctor.engine.sanitize import plain
from doctor.transport import Conversation, Said, Unreached
from doctor.transport.conversation import SILENCE, Lines
from doctor.transport.messages import unreached
from doctor.transport.options import Options, kept_connections
from doctor.transport.process import Children
from doctor.transport.ssh.channel import Channel
from doctor.transport.ssh.config_resolver import Resolver
from doctor.transport.ssh.connect import Connector
from doctor.transport.ssh.exec import Session
from doctor.transport.ssh.paramiko_transport import Wire

_CLOSING = 2.0
"""Seconds that `close` waits for the threads of broken connections."""


class Ssh:
    """`doctor.transport.Transport` over connections of its own."""

    def __init__(self, options: Options | None = None) -> None:
        self.warnings: list[str] = []
        self._options = options or Options()
        self._children = Children()
        resolver = Resolver(self._options, self._children, self.warnings)
        self._connector = Connector(self._options, resolver, self.warnings)
        self._kept: OrderedDict[str, Wire] = OrderedDict()
        self._talking: set[Wire] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> Said:
        """See `doctor.transport.Transport.run`. A command that is late or floods is cut off with its connection."""
        try:
            wire, session = self._session(host)
            try:
                said = session.run(command, stdin, timeout)
            except BaseException:
                wire.close()
                raise
        except Unreached as error:
            raise self._stopped(error) from None
        except Exception as error:  # noqa: BLE001 -- whatever paramiko trips over is one host's trouble, not the run's
            raise unreached("error", f"SSH failed: {plain(str(error)) or type(error).__name__}") from None
        self._keep(host, wire)
        return said

    def talk(self, host: str, command: str) -> Conversation:
        """See `doctor.transport.Transport.talk`. The connection is kept for the next round if the program ends well."""
        try:
            wire, session = self._session(host)
            try:
                channel = session.start(command)
                wire.stream.watch(SILENCE)
            except BaseException:
                wire.close()
                raise
        except Unreached as error:
            raise self._stopped(error) from None
        except Exception as error:  # noqa: BLE001 -- as in `run`
            raise unreached("error", f"SSH failed: {plain(str(error)) or type(error).__name__}") from None
        with self._lock:
            self._talking.add(wire)
        return Lines(host, Channel(wire, channel, partial(self._leave, host, wire)))

    def close(self) -> None:
        """See `doctor.transport.Transport.close`."""
        with self._lock:
            self._closed = True
            kept = [*self._kept.values(), *self._talking]
            self._kept.clear()
        self._children.close()
        self._connector.close()
        for wire in kept:
            wire.close()
        deadline = time.monotonic() + _CLOSING
        for wire in kept:
            wire.join(max(deadline - time.monotonic(), 0))

    def _session(self, host: str) -> tuple[Wire, Session]:
        """A session on the connection kept from an earlier round, or on a new one."""
        with self._lock:
            wire = self._kept.pop(host, None)
        if wire:
            session = Session(wire, self._options.max_output)
            try:
                session.open(wire.timeout)
                return wire, session
            except Unreached:
                wire.close()  # it ended between the rounds, and nothing was asked yet
        if self._closed:
            raise unreached("budget", "the run's time was up")
        wire = self._connector.connect(host)
        session = Session(wire, self._options.max_output)
        try:
            session.open(wire.timeout)
        except BaseException:
            wire.close()
            raise
        return wire, session

    def _stopped(self, error: Unreached) -> Unreached:
        """An error, or what is behind it when all was closed."""
        return (
            unreached("budget", "the run's time was up before it answered", said=error.said) if self._closed else error
        )

    def _leave(self, host: str, wire: Wire, error: Unreached | None) -> None:
        """The end of a conversation. Raises: Unreached."""
        with self._lock:
            self._talking.discard(wire)
        if error:
            wire.close()
            raise self._stopped(error)
        self._keep(host, wire)

    def _keep(self, host: str, wire: Wire) -> None:
        """Keeps a connection for the next round; the one longest unused goes when there are too many."""
        with self._lock:
            surplus = [wire] if self._closed else []
            if not self._closed:
                self._kept[host] = wire
                if len(self._kept) > kept_connections():
                    surplus.append(self._kept.popitem(last=False)[1])
        for wire in surplus:
            wire.close()
