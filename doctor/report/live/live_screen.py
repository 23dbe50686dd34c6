"""The screen of a live view: who draws on it need not know the terminal.

All that this process and its children write to the terminal meanwhile goes through a pseudo-terminal to the process of
`doctor.report.live.terminal_keeper`, which writes it, byte for byte, when the view ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from doctor.engine.language import localized_filled
from doctor.engine.streams import print_stderr
from doctor.engine.texts import filled
from doctor.report.live import terminal_keeper
from doctor.report.live.terminal_keeper import DONE, END, FRAME, LOST_TERMINAL, MAX_MESSAGE, QUIT

CLOSE_SECONDS = 10.0
"""For what was held back to reach the terminal."""
MOST_COLUMNS, MOST_ROWS = 200, 100
"""Of a frame."""
_KEEPER = str(Path(terminal_keeper.__file__))
_SIZE = "HHHH"


class NoViewError(Exception):
    """Why there can be no live view, in one sentence."""


def open_screen(command: str, environ: Mapping[str, str]) -> LiveScreen | None:
    """The screen; None where there can be none, with one line on stderr."""
    try:
        return LiveScreen(environ)
    except NoViewError as error:
        why = localized_filled(filled("doctor {0}: --live: {1}; this goes on without the view", command, str(error)))
        print_stderr(why)
        return None


class LiveScreen:
    """The view on the terminal of stderr, from its start to `close`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises: NoViewError."""
        _require_terminal(environ)
        self.visible = True
        """Whether the user has not closed it."""
        self._saved: dict[int, int] = {}
        self._settings = termios.tcgetattr(2)
        try:
            self._held = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
            self._pseudo, self._sink = os.openpty()
        except OSError as error:
            raise NoViewError(filled("no place for what is written meanwhile: {0}", error.strerror or error)) from None
        settings = termios.tcgetattr(2)
        settings[1] &= ~termios.OPOST  # the terminal itself does that, later
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self._sink, termios.TCSANOW, settings)
        self._terminal = os.dup(2)
        self.resize()
        self._start("view")
        sys.stdout.flush()
        sys.stderr.flush()
        for number in _streams_to(self._terminal):
            self._saved[number] = os.dup(number)
            os.dup2(self._sink, number)

    def _start(self, mode: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            for number in (ours, theirs):
                number.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE)
            numbers = (self._terminal, self._pseudo, self._held.fileno(), theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _KEEPER, *map(str, numbers), mode],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = ours

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of a frame; one column less than the terminal has."""
        rows, columns = struct.unpack(_SIZE, self._read_size())[:2]
        return max(20, min(columns or 80, MOST_COLUMNS) - 1), max(3, min(rows or 24, MOST_ROWS))

    def resize(self) -> None:
        """What writes meanwhile sees the terminal's size."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._sink, termios.TIOCSWINSZ, self._read_size())

    def _read_size(self) -> bytes:
        try:
            return fcntl.ioctl(self._terminal, termios.TIOCGWINSZ, struct.pack(_SIZE, 0, 0, 0, 0))
        except OSError:
            return struct.pack(_SIZE, 24, 80, 0, 0)

    def draw(self, frame: str) -> None:
        """Lines of a frame, which fit its `size`. Never waits: a terminal that is stopped misses frames."""
        self._look()
        if not self.visible:
            return
        lines = "\x1b[K\r\n".join(frame.split("\n"))
        data = f"\x1b[H{lines}\x1b[K\x1b[J".encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            self._control.send(FRAME + data[: MAX_MESSAGE - 1], socket.MSG_DONTWAIT)

    def _look(self) -> None:
        """Whether the user has closed the view, or its process has been killed."""
        with contextlib.suppress(OSError):
            while (message := self._control.recv(16, socket.MSG_DONTWAIT)) and not message.startswith(DONE):
                self.visible = self.visible and not message.startswith(QUIT)
        if self._process.poll() is None:
            return
        self.visible = False
        if self._process.returncode == LOST_TERMINAL:
            self._close_pseudo()
        elif self._pseudo >= 0:
            self._restore_terminal()
            self._control.close()
            with contextlib.suppress(OSError):
                self._start("pass")

    def _close_pseudo(self) -> None:
        """Whoever writes learns that the terminal is gone, as without a view."""
        if self._pseudo >= 0:
            os.close(self._pseudo)
            self._pseudo = -1

    def _restore_terminal(self) -> None:
        """After a keeper that was killed."""
        with contextlib.suppress(OSError, termios.error):
            os.write(self._terminal, terminal_keeper.LEAVE)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
            termios.tcsetattr(self._terminal, termios.TCSANOW, self._settings)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def held_lines(self, count: int) -> list[str]:
        """The last lines that were written meanwhile."""
        try:
            size = os.fstat(self._held.fileno()).st_size
            data = os.pread(self._held.fileno(), 8192, max(0, size - 8192))
        except OSError:
            return []
        lines = [line.rpartition("\r")[2] for line in data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")]
        return [line for line in lines if line.strip()][-count:] if count else []

    def close(self) -> None:
        """The terminal as it was, and on it all that was written meanwhile. May be called twice."""
        if not self._saved:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            self._look()
            if self._pseudo >= 0:
                self._await_end()
        finally:
            for number, saved in self._saved.items():
                os.dup2(saved, number)
                os.close(saved)
            self._saved = {}
            self._control.close()
            self._close_pseudo()
            for number in (self._sink, self._terminal):
                os.close(number)
            self._held.close()
            self.visible = False

    def _await_end(self) -> None:
        limit = time.monotonic() + CLOSE_SECONDS
        mark = b"\x1b_doctor" + os.urandom(16).hex().encode() + b"\x1b\\"
        with contextlib.suppress(OSError):
            self._control.settimeout(CLOSE_SECONDS)
            self._control.send(END + mark)
            if select.select([], [self._sink], [], CLOSE_SECONDS)[1]:
                os.write(self._sink, mark)
            while (left := limit - time.monotonic()) > 0:
                self._control.settimeout(left)
                message = self._control.recv(16)
                if not message or message.startswith(DONE):
                    break
        if self._process.poll() is not None:
            self._restore_terminal()


def _require_terminal(environ: Mapping[str, str]) -> None:
    """Raises: NoViewError."""
    try:
        is_terminal = os.isatty(2) and fcntl.fcntl(2, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    except OSError:
        is_terminal = False
    if not is_terminal:
        raise NoViewError("stderr is no terminal")
    if environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise NoViewError(filled("the terminal can show no view (TERM={0})", environ.get("TERM", "")))
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(2) not in (os.getpgrp(), 0):
            raise NoViewError("this process runs in the background")


def _streams_to(terminal: int) -> list[int]:
    """Those of stdout and stderr that lead to this terminal."""
    device = os.fstat(terminal).st_rdev
    numbers = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(number) and os.fstat(number).st_rdev == device:
                numbers.append(number)
    return numbers
