"""This machine, without SSH."""

from __future__ import annotations

from doctor.transport import Conversation, Said
from doctor.transport.conversation import Lines
from doctor.transport.options import MAX_OUTPUT
from doctor.transport.pipes import Pipes
from doctor.transport.process import Children, converse


class Local:
    """Runs commands by ``sh`` on this machine, whatever host is asked for."""

    def __init__(self, max_output: int = MAX_OUTPUT) -> None:
        self.warnings: list[str] = []
        self._limit = max_output
        self._children = Children()

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> Said:
        """Like `doctor.transport.Transport.run`: a command that is late is killed with all that it started."""
        return converse(self._children, ["/bin/sh", "-c", command], stdin, timeout, self._limit)

    def talk(self, host: str, command: str) -> Conversation:
        """See `doctor.transport.Transport.talk`."""
        return Lines(host, Pipes(self._children, self._children.start(["/bin/sh", "-c", command])))

    def close(self) -> None:
        self._children.close()
