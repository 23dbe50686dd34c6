"""A transport to other hosts that reads the machine of this process itself, without it."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from doctor.remote.request import Request
from doctor.transport import CommandResult, KeepsCommands, RemoteSession, Transport, TransportError, TransportErrorKind
from doctor.transport.local import Local
from doctor.transport.options import MAX_OUTPUT
from doctor.transport.patience import Patience
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.this_host import Place, ThisHost, Way, this_host

AnswerT = TypeVar("AnswerT")
UNREACHED: frozenset[TransportErrorKind] = frozenset(
    ("name", "refused", "no-route", "dropped", "silent", "not-ssh", "key-unknown", "key-changed", "auth", "jump")
)
"""SSH gives no access: no command was started on the host."""
_LATE: frozenset[TransportErrorKind] = frozenset(("name", "dropped", "silent", "jump", "lost"))
"""What connecting may come to where doctor itself did not go on with it."""


class SshTransport(Transport, Protocol):
    """What reaches other hosts."""

    reached: dict[str, str]

    def resolve(self, host: str) -> SshHostConfig:
        """How it would connect. Raises: TransportError."""
        ...


class WithThisHost:
    """`doctor.transport.Transport`: this machine by `Local`, all others by ``others``.

    Args:
        hosts: the whole list.
    """

    def __init__(
        self, others: SshTransport, hosts: Sequence[str], max_output: int = MAX_OUTPUT, machine: ThisHost | None = None
    ) -> None:
        self.others, self.warnings, self.reached = others, others.warnings, others.reached
        self._hosts, self._machine, self._local = hosts, machine or this_host(), Local(max_output)
        self._places: dict[str, Place] = {}
        self._awake = Patience().watched()

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        return self._do(
            host,
            lambda: self.others.run(host, command, stdin, timeout),
            lambda: self._local.run(host, command, stdin, timeout),
        )

    def open_session(self, host: str, command: str) -> RemoteSession:
        return self._do(
            host, lambda: self.others.open_session(host, command), lambda: self._local.open_session(host, command)
        )

    def close(self) -> None:
        self._awake.close()
        self._local.close()
        self.others.close()

    def _do(self, host: str, over_ssh: Callable[[], AnswerT], here: Callable[[], AnswerT]) -> AnswerT:
        place, before = self._place(host), self._awake.pauses()
        if place == "here":
            return here()
        try:
            return over_ssh()
        except TransportError as error:
            if error.kind in _LATE and error.partial_result is None and self._awake.pauses() > before:
                return self._do(host, over_ssh, here)  # nothing was asked yet
            if place == "elsewhere" or error.kind not in UNREACHED:
                raise
        self._places[host] = "here"
        return here()

    def _place(self, host: str) -> Place:
        place = self._places.get(host)
        if place is None:
            place = self._places[host] = self._find_place(host)
        return place

    def _find_place(self, host: str) -> Place:
        try:
            settings = self.others.resolve(host)
        except TransportError:
            return "elsewhere"  # which connecting reports
        way = Way(
            settings.name,
            settings.port,
            "" if settings.user == getpass.getuser() else settings.user,
            bool(settings.jumps or settings.proxy),
        )
        place, address = self._machine.place(host, way, self._hosts)
        if place == "here" and address:
            self.reached[host] = address
        return place


class KeepsOthers(WithThisHost):
    """The same over a transport that keeps commands for further requests; here, each is a command of its own."""

    def run_kept(self, host: str, request: Request, timeout: float) -> CommandResult:
        assert isinstance(self.others, KeepsCommands)
        others = self.others
        return self._do(
            host,
            lambda: others.run_kept(host, request, timeout),
            lambda: self._local.run(host, request.command, request.stdin, timeout, request.end),
        )

    def end_kept(self) -> None:
        assert isinstance(self.others, KeepsCommands)
        self.others.end_kept()
