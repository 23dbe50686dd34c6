"""Runs the watched command: its streams carried on as they are, its signals passed on, its exit code its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

from doctor.engine.errors import InputError
from doctor.engine.language import localized_filled
from doctor.engine.streams import print_stderr
from doctor.engine.texts import filled
from doctor.watch.job_output import JobOutput

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""Signals by which a user or a scheduler ends a job."""
_FROM_KERNEL = 128
"""``si_code`` of a signal that a terminal sends to all of its foreground processes."""
LOOK = 0.03
"""Seconds between two looks at the ranks."""
END_SECONDS = 15.0
"""Seconds for a job to end after SIGTERM."""


class WatchedCommand:
    """The command, from its start to its end."""

    def __init__(
        self, command_line: Sequence[str], environ: Mapping[str, str], output: JobOutput | None = None
    ) -> None:
        """``output``: what its streams become; None: they are doctor's own. Raises: InputError, when there is no such
        program.
        """
        self._output = output
        self.before_end: Callable[[], object] = lambda: None
        """Called once, before a signal that ends the job is passed on: its ranks still show where they are."""
        self.before_resize: Callable[[], object] = lambda: None
        """Called before the job's terminal gets another size."""
        self._signals = {*FORWARDED, signal.SIGCHLD, signal.SIGWINCH}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        sys.stdout.flush()
        try:
            self.process = subprocess.Popen(
                list(command_line),
                env=dict(environ),
                stdout=output.stdout if output else None,
                stderr=output.stderr if output else None,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before) and None,  # noqa: PLW1509
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if output:
                output.close()
            raise InputError(filled("{0}: {1}", command_line[0], getattr(error, "strerror", None) or error)) from None
        if output:
            output.started()
        self._before = before
        self.interrupted = 0
        """The last signal that was passed on."""

    def run(self, look: Callable[[], bool]) -> int:
        """Until the command has ended, or ``look`` returns True, which ends it. Returns its exit code as a shell's."""
        while True:
            if look():
                self.end()
                break
            if self.process.poll() is not None:
                break
            self._wait()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        # A signal that came to both, and ended the command before it was read here, does not end this program as well.
        for number in signal.sigpending() & self._signals:
            signal.sigtimedwait({number}, 0)
            if number in FORWARDED:
                self.interrupted = number
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        if self._output and self._output.drain():
            print_stderr("")
        code = self.process.returncode if self.process.returncode is not None else -signal.SIGKILL
        return 128 - code if code < 0 else code

    def _wait(self) -> None:
        info = signal.sigtimedwait(self._signals, LOOK)
        if self._output:
            self._output.look()
        # A wait that a stop or a debugger has interrupted at its end returns what was never filled in (CPython 3.11).
        if info is None or info.si_signo not in self._signals or info.si_signo == signal.SIGCHLD:
            return
        if info.si_signo == signal.SIGWINCH:
            self.before_resize()
            if self._output and self._output.resize():  # the kernel's signal has reached the job before the size did
                self._send(info.si_signo)
            return
        if info.si_signo in ENDING and self.interrupted not in ENDING:
            self.before_end()
        self.interrupted = info.si_signo
        if info.si_code != _FROM_KERNEL:
            self._send(info.si_signo)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def end(self, ranks: Iterable[int] = ()) -> None:
        """Ends the command, the processes ``ranks``, and all that they have started: SIGTERM, after a while SIGKILL.

        All are listed before the first is ended: a worker whose rank has ended is no child of it any more.
        """
        by_pid: dict[int, psutil.Process] = {}
        for pid in (self.process.pid, *ranks):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                top = psutil.Process(pid)
                by_pid.update((process.pid, process) for process in (top, *top.children(recursive=True)))
        tree = list(by_pid.values())
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
        limit = time.monotonic() + END_SECONDS
        while time.monotonic() < limit and (self.process.poll() is None or any(map(_lives, tree))):
            time.sleep(LOOK)
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.is_running() and process.pid != os.getpid():
                    process.kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def warn(text: str) -> None:
    """One line on stderr."""
    print_stderr(filled("doctor watch: {0}", localized_filled(text)))
