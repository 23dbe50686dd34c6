"""This machine, without SSH."""

from __future__ import annotations

from doctor.transport import CommandResult, RemoteSession
from doctor.transport.conversation import LineSession
from doctor.transport.options import MAX_OUTPUT
from doctor.transport.pipes import PipeChannel, run_command
from doctor.transport.process import Children


class Local:
    """Runs commands by ``sh`` on this machine, whatever host is named."""

    def __init__(self, max_output: int = MAX_OUTPUT) -> None:
        self.warnings: list[str] = []
        self._limit = max_output
        self._children = Children()

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """Like `doctor.transport.Transport.run`: a command that is late is killed with all that it started."""
        return run_command(self._children, ["/bin/sh", "-c", command], stdin, timeout, self._limit)

    def open_session(self, host: str, command: str) -> RemoteSession:
        """See `doctor.transport.Transport.open_session`."""
        return LineSession(host, PipeChannel(self._children, self._children.start(["/bin/sh", "-c", command])))

    def close(self) -> None:
        self._children.close()
