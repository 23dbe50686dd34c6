"""Lines both ways with a program far away, whatever carries the bytes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from doctor.transport import Conversation, Unreached
from doctor.transport.messages import size, unreached

LONGEST_LINE = 4 << 20
RATE = 8 << 20
"""Bytes a second that may come for long."""
BURST = 64 << 20
"""Bytes that may come beyond that."""
WAITING = 16 << 20
"""Bytes that may wait to be sent."""
KEPT_ERR = 1 << 16
SILENCE = 15.0
"""Seconds without a sign of life from the other side's kernel after which a connection is lost."""
_LAST_WORDS = 1.0
"""Seconds that a program has to end after its last line."""
_FOREVER = 3600.0


class Far(Protocol):
    """What carries the bytes. Only one thread at a time uses it, but for `nudge` and `abort`."""

    heard: int
    """Bytes that came so far, of both outputs."""
    err: bytearray

    def wait(self, writing: bool, seconds: float) -> None:
        """Until there is something to read, or room to write if that is wanted, or a nudge, or an end."""
        ...

    def nudge(self) -> None:
        """Ends the wait that is under way, or the next one."""
        ...

    def read(self) -> bytes | None:
        """What came; None when no more will. Raises: Unreached."""
        ...

    def write(self, data: memoryview) -> int:
        """Sends what goes out without waiting. Raises: OSError, when the program takes no more."""
        ...

    def shut(self) -> None:
        """No more will be written."""
        ...

    def ended(self) -> bool:
        """Whether the program has ended, as far as one can tell."""
        ...

    def abort(self) -> None:
        """Wakes whoever waits in another thread, at the price of the connection."""
        ...

    def free(self) -> int | None:
        """Ends what has not ended and gives everything back. Returns the exit status. Raises: Unreached."""
        ...


class Lines:
    """A `doctor.transport.Conversation` over what carries its bytes."""

    def __init__(self, host: str, far: Far) -> None:
        self.host = host
        self._far = far
        self._queue: deque[memoryview] = deque()
        self._waiting = 0
        self._lock = threading.Lock()  # for the queue and the flags, never held for long
        self._turn = threading.Lock()  # for the far end
        self._ending = self._shut = self._deaf = self._closing = self._over = False
        self._why: Unreached | None = None
        self._code: int | None = None
        self._line = bytearray()
        self._credit, self._counted, self._looked = float(BURST), 0, time.monotonic()

    @property
    def err(self) -> bytes:
        return bytes(self._far.err)

    @property
    def code(self) -> int | None:
        return self._code

    def send(self, data: bytes) -> None:
        """See `doctor.transport.Conversation.send`."""
        with self._lock:
            if self._over or self._ending or self._deaf:
                raise self._why or unreached("lost", "the program there takes no more: it has ended, or was told to")
            if self._waiting + len(data) > WAITING:
                raise unreached("timeout", f"{size(self._waiting)} wait to be sent: the program there takes nothing in")
            if data:
                self._queue.append(memoryview(data))
                self._waiting += len(data)
                self._far.nudge()

    def end(self) -> None:
        """See `doctor.transport.Conversation.end`."""
        self._tell(closing=False)
        if self._turn.acquire(blocking=False):  # nobody is iterating just now
            try:
                if not self._over:
                    self._push()
            finally:
                self._turn.release()

    def close(self, grace: float = 1.0) -> None:
        """See `doctor.transport.Conversation.close`."""
        deadline = time.monotonic() + grace
        self._tell(closing=True)
        if not self._turn.acquire(timeout=max(grace, 0.1)):
            self._far.abort()  # the other thread is stuck where nothing else wakes it
            self._turn.acquire()
        try:
            with contextlib.suppress(Unreached):
                self._finish(deadline)
        finally:
            self._turn.release()

    def __iter__(self) -> Iterator[bytes]:
        while (lines := self._next()) is not None:
            yield from lines

    def _tell(self, closing: bool) -> None:
        with self._lock:
            self._ending = True
            self._closing |= closing
            if not self._over:
                self._far.nudge()

    def _next(self) -> list[bytes] | None:
        """The lines that came since the last time, once there is something new; None at the end."""
        with self._turn:
            if self._why:
                raise self._why
            if self._over or self._closing:
                return None
            try:
                return self._step()
            except Unreached as error:
                self._why = error
                with contextlib.suppress(Unreached):
                    self._finish(0.0)
                raise

    def _step(self) -> list[bytes] | None:
        self._push()
        self._far.wait(bool(self._queue), _FOREVER)
        chunk = self._far.read()
        self._bound()
        if chunk is not None:
            return self._cut(chunk)
        self._finish(time.monotonic() + _LAST_WORDS)
        rest, self._line = bytes(self._line), bytearray()
        return [rest] if rest else None

    def _cut(self, chunk: bytes) -> list[bytes]:
        self._line += chunk
        lines: list[bytes] = []
        if b"\n" in chunk:
            *lines, rest = bytes(self._line).split(b"\n")
            self._line = bytearray(rest)
        if max(map(len, [*lines, self._line])) > LONGEST_LINE:
            raise unreached("flood", f"it printed a line of more than {size(LONGEST_LINE)}, and was cut off")
        return lines

    def _bound(self) -> None:
        """Raises: Unreached, when more came than the time that has passed allows."""
        now = time.monotonic()
        came = self._far.heard - self._counted
        self._credit = min(self._credit + RATE * (now - self._looked), BURST) - came
        self._counted, self._looked = self._far.heard, now
        if self._credit < 0:
            raise unreached("flood", f"it printed more than {size(RATE)} a second, and was cut off")

    def _push(self) -> None:
        """Sends what goes out now, and the end of it all if that is next."""
        while self._queue:
            head = self._queue[0]
            try:
                count = self._far.write(head)
            except OSError:  # it reads no more; what it says still counts
                self._hear_no_more()
                break
            if not count:
                return
            with self._lock:
                self._waiting -= count
                self._queue[0] = head[count:]
                if count == len(head):
                    self._queue.popleft()
        if self._ending and not self._shut:
            self._shut = True
            self._far.shut()

    def _hear_no_more(self) -> None:
        with self._lock:
            self._deaf = True
            self._queue.clear()
            self._waiting = 0

    def _finish(self, deadline: float) -> None:
        """Ends the program, with patience until ``deadline``, and frees all. Raises: Unreached, if it ended badly."""
        if self._over:
            return
        with self._lock:
            self._ending = True
        try:
            while True:
                self._push()
                left = deadline - time.monotonic()
                if self._far.ended() or left <= 0:
                    break
                self._far.wait(bool(self._queue), left)
                self._far.read()
        except Unreached as error:
            self._why = self._why or error
        with self._lock:
            self._over = True  # from now on nobody nudges
        self._code = self._far.free()
        if self._why:
            raise self._why


def close_all(conversations: Iterable[Conversation], grace: float = 1.0) -> None:
    """Closes all of them, with one grace for them together."""
    threads = [threading.Thread(target=conversation.close, args=(grace,)) for conversation in conversations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
