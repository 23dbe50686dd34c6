"""Lines in both directions with a remote program, over any channel of bytes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol

from doctor.engine.quantities import bytes_text, seconds_text
from doctor.engine.texts import filled
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.patience import TURN, Patience

MAX_LINE = 4 << 20
RATE = 8 << 20
"""Bytes a second that may come for long."""
BURST = 64 << 20
"""Bytes that may come beyond that."""
MAX_QUEUED = 16 << 20
"""Bytes that may wait to be sent."""
MAX_KEPT_STDERR = 1 << 16
SILENCE = 15.0
"""Seconds without a sign of life from the other side's kernel after which a connection is lost."""
_EXIT_GRACE = 1.0
"""Seconds that a program has to end after its last line."""
_FOREVER = 3600.0
NO_STATUS = -1
"""Exit code of a command whose end was not observed."""


class ByteChannel(Protocol):
    """What carries the bytes. Only one thread at a time uses it, but for `wake` and `abort`."""

    received_bytes: int
    """Bytes that came so far, of both outputs."""
    err: bytearray

    def wait(self, writing: bool, seconds: float) -> None:
        """Until there is something to read, or room to write if that is wanted, or a nudge, or an end."""
        ...

    def wake(self) -> None:
        """Ends the current wait, or the next one."""
        ...

    def read(self) -> bytes | None:
        """What came; None when no more will. Raises: Unreached."""
        ...

    def write(self, data: memoryview) -> int:
        """Sends what goes out without waiting. Raises: OSError, when the program takes no more."""
        ...

    def close_input(self) -> None:
        """No more will be written."""
        ...

    def ended(self) -> bool:
        """Whether the program has ended, as far as is known."""
        ...

    def abort(self) -> None:
        """Wakes whoever waits in another thread, at the price of the connection."""
        ...

    def release(self) -> int | None:
        """Ends what has not ended and gives everything back. Returns the exit status. Raises: Unreached."""
        ...


class CommandChannel(ByteChannel, Protocol):
    """What carries the bytes of a command that is run to its end."""

    sent: float
    """Our clock as the command was sent; 0 where it was not."""
    max_kept_stderr: int
    """Bytes of ``err``, from its end."""
    until_drained: bool
    """Its end is that of its outputs too, whoever holds them open."""

    def complete(self) -> bool: ...


class LineSession:
    """A `doctor.transport.RemoteSession` over what carries its bytes."""

    def __init__(self, host: str, channel: ByteChannel) -> None:
        self.host = host
        self._channel = channel
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._lock = threading.Lock()  # for the queue and the flags, never held for long
        self._channel_lock = threading.Lock()  # for the far end
        self._ending = self._input_closed = self._input_broken = self._closing = self._finished = False
        self._error: TransportError | None = None
        self._code: int | None = None
        self._partial_line = bytearray()
        self._credit, self._counted_bytes, self._checked_at = float(BURST), 0, time.monotonic()

    @property
    def err(self) -> bytes:
        return bytes(self._channel.err)

    @property
    def code(self) -> int | None:
        return self._code

    def send(self, data: bytes) -> None:
        with self._lock:
            if self._finished or self._ending or self._input_broken:
                raise self._error or transport_error(
                    "lost", "the program on the host accepts no input: it has ended, or was closed"
                )
            if self._queued_bytes + len(data) > MAX_QUEUED:
                raise transport_error(
                    "timeout",
                    filled("{0} wait to be sent: the program does not read its input", bytes_text(self._queued_bytes)),
                )
            if data:
                self._queue.append(memoryview(data))
                self._queued_bytes += len(data)
                self._channel.wake()
        self._send_unless_iterated()

    def end(self) -> None:
        self._request_end(closing=False)
        self._send_unless_iterated()

    def _send_unless_iterated(self) -> None:
        if self._channel_lock.acquire(blocking=False):  # no thread is iterating just now
            try:
                if not self._finished:
                    self._send_queued()
            finally:
                self._channel_lock.release()

    def close(self, grace: float = 1.0) -> None:
        deadline = time.monotonic() + grace
        self._request_end(closing=True)
        if not self._channel_lock.acquire(timeout=max(grace, 0.1)):
            self._channel.abort()  # the other thread is stuck where nothing else wakes it
            self._channel_lock.acquire()
        try:
            with contextlib.suppress(TransportError):
                self._finish(deadline)
        finally:
            self._channel_lock.release()

    def __iter__(self) -> Iterator[bytes]:
        while (lines := self._next_lines()) is not None:
            yield from lines

    def _request_end(self, closing: bool) -> None:
        with self._lock:
            self._ending = True
            self._closing |= closing
            if not self._finished:
                self._channel.wake()

    def _next_lines(self) -> list[bytes] | None:
        """The lines that came since the last time, once there is something new; None at the end."""
        with self._channel_lock:
            if self._error:
                raise self._error
            if self._finished or self._closing:
                return None
            try:
                return self._step()
            except TransportError as error:
                self._error = error
                with contextlib.suppress(TransportError):
                    self._finish(0.0)
                raise

    def _step(self) -> list[bytes] | None:
        self._send_queued()
        self._channel.wait(bool(self._queue), _FOREVER)
        chunk = self._channel.read()
        self._limit_rate()
        if chunk is not None:
            return self._split_lines(chunk)
        self._finish(time.monotonic() + _EXIT_GRACE)
        rest, self._partial_line = bytes(self._partial_line), bytearray()
        return [rest] if rest else None

    def _split_lines(self, chunk: bytes) -> list[bytes]:
        self._partial_line += chunk
        lines: list[bytes] = []
        if b"\n" in chunk:
            *lines, rest = bytes(self._partial_line).split(b"\n")
            self._partial_line = bytearray(rest)
        if max(map(len, [*lines, self._partial_line])) > MAX_LINE:
            raise transport_error(
                "flood", filled("it printed a line of more than {0}, and was closed", bytes_text(MAX_LINE))
            )
        return lines

    def _limit_rate(self) -> None:
        """Raises: Unreached, when more came than the time that has passed allows."""
        now = time.monotonic()
        new_bytes = self._channel.received_bytes - self._counted_bytes
        self._credit = min(self._credit + RATE * (now - self._checked_at), BURST) - new_bytes
        self._counted_bytes, self._checked_at = self._channel.received_bytes, now
        if self._credit < 0:
            raise transport_error(
                "flood", filled("it printed more than {0} a second, and was closed", bytes_text(RATE))
            )

    def _send_queued(self) -> None:
        """Sends what goes out now, and the end of it all if that is next."""
        while self._queue:
            head = self._queue[0]
            try:
                count = self._channel.write(head)
            except OSError:  # it reads no more; what it says still counts
                self._stop_sending()
                break
            if not count:
                return
            with self._lock:
                self._queued_bytes -= count
                self._queue[0] = head[count:]
                if count == len(head):
                    self._queue.popleft()
        if self._ending and not self._input_closed:
            self._input_closed = True
            self._channel.close_input()

    def _stop_sending(self) -> None:
        with self._lock:
            self._input_broken = True
            self._queue.clear()
            self._queued_bytes = 0

    def _finish(self, deadline: float) -> None:
        """Ends the program, with patience until ``deadline``, and frees all. Raises: Unreached, if it ended badly."""
        if self._finished:
            return
        with self._lock:
            self._ending = True
        try:
            while True:
                self._send_queued()
                remaining = deadline - time.monotonic()
                if self._channel.ended() or remaining <= 0:
                    break
                self._channel.wait(bool(self._queue), remaining)
                self._channel.read()
        except TransportError as error:
            self._error = self._error or error
        with self._lock:
            self._finished = True  # from now on no other thread nudges the channel
        self._code = self._channel.release()
        if self._error:
            raise self._error


def run_to_end(channel: CommandChannel, stdin: bytes, timeout: float, limit: int, last: bytes = b"") -> CommandResult:
    """Feeds a command ``stdin``, which stays open, and takes in its outputs, until they and it have ended.

    Behind ``last``, if given, its input ends: a command that waits for more ends then. ``timeout`` in seconds;
    ``limit`` in bytes for stdout and stderr together.
    Raises: TransportError, of kind timeout, flood, budget or lost, with what was said until then.
    """
    channel.max_kept_stderr, channel.until_drained = limit + 1, True
    patience, unsent, out = Patience(timeout), memoryview(stdin), bytearray()
    code, error = None, None
    try:
        while not channel.complete():
            remaining = patience.remaining()
            if remaining <= 0:
                raise transport_error("timeout", filled("the command did not end within {0}", seconds_text(timeout)))
            try:
                unsent = unsent[channel.write(unsent) :] if unsent else unsent
            except OSError:  # it reads no more; what it says still counts
                unsent = unsent[:0]
            channel.wait(bool(unsent), min(remaining, TURN))
            out += channel.read() or b""
            if channel.received_bytes > limit:
                raise transport_error("flood", filled("it printed more than {0}, and was closed", bytes_text(limit)))
            if last and out.endswith(last):
                last = b""
                channel.close_input()
        out += channel.read() or b""
    except TransportError as stop:
        error = stop
    except BaseException:
        with contextlib.suppress(TransportError):
            channel.release()
        raise
    try:
        code = channel.release()
    except TransportError as stop:
        error = stop if stop.kind == "budget" else error or stop
    status = NO_STATUS if error or code is None else code
    result = CommandResult(status, bytes(out), bytes(channel.err), channel.sent or time.time(), time.time())
    return result if error is None else _raise_with(result, error)


def _raise_with(result: CommandResult, error: TransportError) -> NoReturn:
    if error.kind == "budget":
        raise transport_error("budget", "the run's time limit was reached before it answered", partial_result=result)
    raise TransportError(error.kind, error.text, error.hint, result)


def close_all(sessions: Iterable[RemoteSession], grace: float = 1.0) -> None:
    """Closes all of them, with one grace for them together."""
    threads = [threading.Thread(target=session.close, args=(grace,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
