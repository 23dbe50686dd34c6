"""A ProxyCommand: a program of the user's that brings the bytes to a host's port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile

from doctor.engine.sanitize import strip_control_chars
from doctor.transport import transport_error

_STDERR_TAIL = 4096


class ProxyProcess:
    """The running program, and our end of its stdin and stdout."""

    def __init__(self, command: str) -> None:
        self.stderr_tail = ""
        """The end of what it printed to stderr, once it has ended."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the program
        self.socket, far = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            with far:
                self._program = subprocess.Popen(
                    [shell, "-c", "exec " + command],
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=self._errors,
                    start_new_session=True,
                )
        except OSError as error:
            self.socket.close()
            raise transport_error("jump", f"its ProxyCommand could not be started: {error.strerror}") from None

    def end(self) -> None:
        """Kills it and all that it started; leaves no zombie."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        with self._errors, contextlib.suppress(OSError):
            self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _STDERR_TAIL, 0))
            self.stderr_tail = strip_control_chars(self._errors.read())
