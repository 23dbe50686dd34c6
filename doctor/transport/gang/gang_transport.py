"""Commands on the members of a gang, by the links that they have opened; on this one without any."""

from __future__ import annotations

from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import LineSession, run_to_end
from doctor.transport.gang.links import Gathering, MemberLink
from doctor.transport.local import Local
from doctor.transport.options import MAX_OUTPUT

RETURN_SECONDS = 15.0
"""Seconds for a member whose link was cut, or whose container is started again, to come back."""


class GangTransport:
    """`doctor.transport.Transport`, in the leader."""

    def __init__(self, gathering: Gathering, limit: int = MAX_OUTPUT) -> None:
        self.warnings: list[str] = []
        self.reached = gathering.addresses()
        self._gathering, self._local, self._limit = gathering, Local(limit), limit
        self._closed = False

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """See `doctor.transport.Transport.run`. Where the link is cut in the middle, it is run once more."""
        if host == self._gathering.hosts[0]:
            return self._local.run(host, command, stdin, timeout)
        link = self._link(host, timeout)
        try:
            return run_to_end(link.open(command), stdin, timeout, self._limit)
        except TransportError as error:
            if error.kind != "lost" or self._closed:
                raise
        again = self._gathering.link(host, after=link, patience=min(RETURN_SECONDS, timeout))
        if self._closed:
            raise transport_error("budget", "the run's time limit was reached")
        return run_to_end(again.open(command), stdin, timeout, self._limit)

    def open_session(self, host: str, command: str) -> RemoteSession:
        """See `doctor.transport.Transport.open_session`."""
        if host == self._gathering.hosts[0]:
            return self._local.open_session(host, command)
        return LineSession(host, self._link(host, RETURN_SECONDS).open(command))

    def _link(self, host: str, timeout: float) -> MemberLink:
        """Raises: TransportError, at once for a host that never came."""
        patience = min(RETURN_SECONDS, timeout) if self._gathering.has_come(host) else 0.0
        return self._gathering.link(host, patience=patience)

    def close(self) -> None:
        """See `doctor.transport.Transport.close`. The members stay for the verdict."""
        self._closed = True
        self._local.close()
        self._gathering.end_commands()
