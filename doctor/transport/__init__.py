"""Connections to hosts. Two verbs: ``run(host, command, stdin, timeout)``, and ``talk(host, command)`` for a dialogue.

`local`, `ssh` (paramiko), `openssh` (the ssh binary) and `replay` (a saved run) follow `Transport`.
A transport does not depend on facts or checks; it carries bytes, and reports in one sentence why it could not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.remote.request import Request

TransportErrorKind = Literal[
    "name",  # the host's name does not resolve
    "refused",  # nothing listens on the port
    "no-route",  # no route to host, network unreachable
    "dropped",  # the connection attempt had no answer in time
    "silent",  # connected, and no SSH banner came in time
    "not-ssh",  # connected, and what answers does not speak SSH, or no common algorithm
    "key-unknown",  # the host key is not in known_hosts
    "key-changed",  # another host key than known_hosts has
    "key-revoked",
    "auth",  # the host refused our keys
    "jump",  # a jump host or ProxyCommand on the way failed
    "unsupported",  # needs what this transport cannot do; the hint names what can
    "lost",  # the connection was cut midway
    "timeout",  # the command did not end in time
    "flood",  # it said more than the limit
    "budget",  # the run's budget ended first
    "shell",  # the login shell could not start the collector
    "no-python",  # no usable python3 on the host
    "no-file",  # no transport's: the host left no node file for `doctor merge`, or a saved run has no record of it
    "error",  # anything else; the text says what
]


class CommandResult(msgspec.Struct, frozen=True):
    """What a command came to on a host."""

    code: int
    """Exit status; -N for death by signal N."""
    out: bytes
    err: bytes
    sent: float
    """Our clock (seconds since the epoch) just before the command was sent."""
    received: float
    """Our clock when the last byte had come."""


class TransportError(Exception):
    """The command could not be run to its end on the host.

    ``text`` is one plain sentence for that host, without its name; ``hint`` a command or setting that fixes it,
    or empty. ``partial_result`` is what had come until then.
    """

    def __init__(
        self, kind: TransportErrorKind, text: str, hint: str = "", partial_result: CommandResult | None = None
    ) -> None:
        super().__init__(text)
        self.kind, self.text, self.hint, self.partial_result = kind, text, hint, partial_result


def transport_error(
    kind: TransportErrorKind, text: str, hint: str = "", partial_result: CommandResult | None = None
) -> TransportError:
    """The error; its text is safe to print, for any input."""
    return TransportError(kind, strip_control_chars(text, 400), strip_control_chars(hint, 4000), partial_result)


class RemoteSession(Protocol):
    """Lines in both directions with a program that runs on a host.

    One thread iterates, and so carries both directions: nothing is sent before it does, so its work for each line
    should be short. Lines come without their newline. Iteration ends when the program has ended or we `close`.

    Iterating raises Unreached: lost (the connection was cut, or nothing has come through for some seconds), flood
    (too long a line, or too much), budget (the transport was closed).
    """

    host: str

    def send(self, data: bytes) -> None:
        """Sends whole lines behind all others, from any thread, without waiting for them to go out.

        Raises: TransportError, of kind lost when the other side is gone, timeout when too much waits to be sent.
        """
        ...

    def __iter__(self) -> Iterator[bytes]: ...

    def end(self) -> None:
        """Closes the program's stdin behind what was sent; its last lines still come. Returns at once."""
        ...

    def close(self, grace: float = 1.0) -> None:
        """Like `end`, then waits at most ``grace`` seconds for the program's end, and does without it after that.

        From any thread. Output of the program in the meantime is dropped.
        """
        ...

    @property
    def err(self) -> bytes: ...

    @property
    def code(self) -> int | None:
        """Exit status, or -N for death by signal N; None while it runs, and where its end was not seen."""
        ...


class Transport(Protocol):
    """The verbs are called from many threads at once, one call a host at a time."""

    warnings: list[str]
    """Notes for the user about the connections: fallbacks, ignored settings."""

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """Runs ``command`` by the login shell of ``host``, feeds it ``stdin``, and waits for its end.

        ``command`` is plain words and single-quoted text, safe for sh, csh and fish alike. stdin stays open after
        its bytes are sent, until the command ends or we give up: for the program there, its end means that we are
        gone. ``timeout`` (seconds) is for the command; connecting has a timeout of its own.

        Raises: Unreached.
        """
        ...

    def open_session(self, host: str, command: str) -> RemoteSession:
        """Starts ``command`` like `run`; it runs until its stdin ends. Returns as soon as it was requested.

        Raises: Unreached.
        """
        ...

    def close(self) -> None:
        """Ends all connections at once, from any thread: who still waits gets `TransportError("budget", ...)`."""
        ...


@runtime_checkable
class KeepsCommands(Protocol):
    """A transport over which a command may wait for a further request, so that a second round starts no other one."""

    def run_kept(self, host: str, request: Request, timeout: float) -> CommandResult:
        """Like `Transport.run`, but returns behind the request's ``end``, if it has one, and keeps the command.

        The next call sends its follow-up to the command that was kept; it starts another one if that is gone.

        Raises: TransportError.
        """
        ...

    def end_kept(self) -> None: ...
