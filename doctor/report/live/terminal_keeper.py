"""Keeps the terminal of a live view: shows its frames, reads its keys, and holds back what else is written meanwhile.

A program of its own, so that the terminal is as it was before when doctor is killed. All that doctor and its job write
comes from a pseudo-terminal. While the view is visible, that goes into a file, and when the view ends, byte for byte to
the terminal; from then on it passes at once. Standard library alone.

    python -I -S terminal_keeper.py TERMINAL PSEUDO HELD CONTROL view|pass

The arguments are file numbers. A message of CONTROL is `FRAME` with a frame, or `END` with a mark: all that stands
before the mark in the stream is written, and then `DONE` is sent. `QUIT` is sent when the user has closed the view.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import termios

FRAME, END, DONE, QUIT = b"f", b"e", b"d", b"q"
BLOCK = 1 << 16
MAX_MESSAGE = 1 << 18
MOST_HELD = 32 << 20
"""Bytes that are held back; more goes to the terminal, on its ordinary screen, before the view goes on."""
LOST_TERMINAL = 3
"""Exit code where the terminal is gone."""
ENTER = b"\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE = b"\x1b[0m\x1b[?25h\x1b[?1049l"
KEYS = b"qQ"
READ_CALLS = {"x86_64": b"0", "aarch64": b"63"}
"""The number of read(2), as /proc/PID/syscall begins with it (man 5 proc)."""
MOST_PROCESSES = 256
LOOK_MILLISECONDS = 500
IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGTTOU", "SIGTTIN", "SIGPIPE")


class LostTerminalError(Exception):
    """The terminal is gone: output cannot be shown any more."""


class Keeper:
    """One terminal."""

    def __init__(self, terminal: int, pseudo: int, held: int, control: socket.socket) -> None:
        self.terminal, self.pseudo, self.held, self.control = terminal, pseudo, held, control
        self.settings: list[object] | None = None
        """Of the terminal before the view; None where there is no view."""
        self.doctor_lives = True
        self.mark = b""
        self.pending = b""
        """The last bytes of the stream, which may be the first ones of the mark."""

    def enter(self) -> None:
        """Shows the view: keys come one by one and without an echo; Ctrl-Z stops nothing meanwhile."""
        self.settings = termios.tcgetattr(self.terminal)
        settings = termios.tcgetattr(self.terminal)
        settings[3] &= ~(termios.ICANON | termios.ECHO)
        controls = list(settings[6])
        controls[termios.VMIN], controls[termios.VTIME], controls[termios.VSUSP] = 1, 0, b"\x00"
        settings[6] = controls
        termios.tcsetattr(self.terminal, termios.TCSANOW, settings)
        self.write(ENTER)

    def leave(self) -> None:
        """The terminal as it was, with all that was held back."""
        if self.settings is None:
            return
        settings, self.settings = self.settings, None
        try:
            self.write(LEAVE)
        finally:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.terminal, termios.TCSANOW, settings)  # type: ignore[arg-type]
        self.release()

    def release(self) -> None:
        place = 0
        while data := os.pread(self.held, BLOCK, place):
            self.write(data)
            place += len(data)
        os.ftruncate(self.held, 0)
        os.lseek(self.held, 0, os.SEEK_SET)

    def take(self, data: bytes) -> None:
        """What doctor and the job have written."""
        if self.settings is None:
            self.write(data)
            return
        written = 0
        with contextlib.suppress(OSError):
            while written < len(data):
                written += os.write(self.held, data[written:])
        if written < len(data) or os.lseek(self.held, 0, os.SEEK_CUR) > MOST_HELD:
            self.write(LEAVE)
            self.release()
            self.write(data[written:])
            self.write(ENTER)

    def write(self, data: bytes) -> None:
        """All of it; waits for a terminal that is stopped. Raises: LostTerminalError."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.terminal, view) :]
            except BlockingIOError:
                select.select([], [self.terminal], [])
            except OSError:
                raise LostTerminalError from None

    def keep(self) -> int:
        """Runs until no process holds the pseudo-terminal any more. Returns the exit code."""
        while True:
            numbers = [self.pseudo, *([self.control.fileno()] if self.doctor_lives else [])]
            poll = select.poll()
            for number in (*numbers, *([self.terminal] if self.settings is not None else [])):
                poll.register(number, select.POLLIN)
            ready = dict(poll.poll(LOOK_MILLISECONDS if self.settings is not None else None))
            if self.pseudo in ready and not self.carry():
                self.leave()
                return 0
            self.obey()
            if self.terminal in ready:
                if ready[self.terminal] & (select.POLLHUP | select.POLLERR):
                    raise LostTerminalError
                if self.settings is not None:
                    self.read_keys()
            elif not ready and self.settings is not None and reads_terminal(os.getppid(), self.terminal):
                self.leave()  # its keys are the job's
                self.send(QUIT)

    def carry(self) -> bool:
        """Takes what is in the pseudo-terminal. Returns whether anybody still holds it."""
        try:
            data = os.read(self.pseudo, BLOCK)
        except OSError:
            self.take(self.pending)
            return False
        self.obey()  # the message with the mark was sent before the mark was written
        data, self.pending = self.pending + data, b""
        if self.mark:
            before, mark, after = data.partition(self.mark)
            if mark:
                self.mark = b""
                self.take(before + after)
                self.send(DONE)
                return True
            kept = next((size for size in range(len(self.mark) - 1, 0, -1) if data.endswith(self.mark[:size])), 0)
            data, self.pending = data[: len(data) - kept], data[len(data) - kept :]
        self.take(data)
        return True

    def obey(self) -> None:
        while self.doctor_lives:
            try:
                message = self.control.recv(MAX_MESSAGE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if message.startswith(FRAME) and self.settings is not None:
                self.write(message[1:])
            elif message.startswith(END):
                self.leave()
                self.mark = message[1:]
            elif not message:
                self.doctor_lives = False
                self.leave()

    def read_keys(self) -> None:
        if not select.select([self.terminal], [], [], 0)[0]:
            return  # the job took it
        try:
            keys = os.read(self.terminal, 4096)
        except OSError:
            keys = b""
        if not keys:
            raise LostTerminalError
        if any(key in KEYS for key in keys):
            self.leave()
            self.send(QUIT)

    def send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self.control.send(message)


def reads_terminal(parent: int, terminal: int) -> bool:
    """Whether a descendant of a process waits for a line from the terminal: it may be a prompt or a debugger.

    False where /proc does not show it, and for a program that waits with poll or select.
    """
    call = READ_CALLS.get(os.uname().machine)
    devices = (os.fstat(terminal).st_rdev, os.makedev(5, 0))
    processes = [parent]
    for process in processes:
        if call is None or len(processes) > MOST_PROCESSES:
            return False
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{process}/task/{process}/children", "rb") as file:
                processes += map(int, file.read(1 << 14).split())
            with open(f"/proc/{process}/syscall", "rb") as file:
                words = file.read(200).split()
            if words[0] == call and os.stat(f"/proc/{process}/fd/{int(words[1], 16)}").st_rdev in devices:
                return True
    return False


def main() -> int:
    """Ends when the last process that writes has ended; signals do not end it."""
    for name in IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    terminal, pseudo, held, control = map(int, sys.argv[1:5])
    keeper = Keeper(terminal, pseudo, held, socket.socket(fileno=control))
    try:
        if sys.argv[5] == "view":
            keeper.enter()
        else:
            keeper.release()
        return keeper.keep()
    except (LostTerminalError, termios.error):
        return LOST_TERMINAL


if __name__ == "__main__":
    os._exit(main())
