"""One launch: a carrier on each of some hosts, and the commands that they run for us.

One thread reads and writes for all of them. What a host says is taken in as fast as it comes: it may say no more ahead
of who listens than its carrier's window, so a command that floods holds up no other.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from doctor.engine.sanitize import plain
from doctor.transport import Trouble, Unreached
from doctor.transport.conversation import BURST, KEPT_ERR, RATE, SILENCE
from doctor.transport.launcher.frames import Broken, Frame, Frames, Orders
from doctor.transport.launcher.launcher import Heard, Launcher
from doctor.transport.launcher.remote_carrier import WINDOW
from doctor.transport.messages import seconds, unreached
from doctor.transport.process import Children, has_ended

_CHUNK = 1 << 16
_TOLD = WINDOW // 4
_TICK = 1.0
_BEAT = 10.0
"""Seconds between two signs of life to the carriers; they end without."""
_FAREWELL = 1.0


class Task:
    """A host's carrier."""

    def __init__(self, host: str, number: int) -> None:
        self.host, self.number = host, number
        self.frames = Frames()
        self.quiet = 0.0
        self.credit = float(BURST)
        self.said = bytearray()
        """The last of its stderr."""


class Channel:
    """The far end of one command: `doctor.transport.conversation.Far`, and what a `run` needs besides."""

    def __init__(self, step: Step, task: Task, number: int) -> None:
        self.heard, self.err, self.sent = 0, bytearray(), 0.0
        self.code: int | None = None
        self.drained = False
        """Both outputs have come to their end."""
        self.trouble: Unreached | None = None
        self.task, self.number = task, number
        self.keep_err = KEPT_ERR
        self.whole = False
        """Its end is that of its outputs too, whoever holds them open."""
        self._step, self._changed = step, threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._room, self._untold, self._nudged = WINDOW, 0, False

    # ---- for who listens

    def wait(self, writing: bool, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._nudged or self._news() or (writing and self._room > 0), seconds)
            self._nudged = False

    def _news(self) -> bool:
        return bool(self._pieces or self.trouble or (self.code is not None and (self.drained or not self.whole)))

    def nudge(self) -> None:
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def abort(self) -> None:
        """Nothing here waits but `wait`, which a nudge ends."""

    def read(self) -> bytes | None:
        """See `doctor.transport.conversation.Far.read`."""
        with self._changed:
            data, over = b"".join(self._pieces), self.code is not None
            self._pieces.clear()
            if self.trouble and not data:
                raise self.trouble
            count, self._untold = self._untold, 0 if self._untold >= _TOLD else self._untold
        if count >= _TOLD and not over:
            self._step.order(self.task, "heard", self.number, count)
        return None if over and not data else data

    def write(self, data: memoryview) -> int:
        with self._changed:
            count = min(len(data), self._room)
            self._room -= count
        if count:
            self._step.feed(self, bytes(data[:count]))
        return count

    def shut(self) -> None:
        self._step.order(self.task, "shut", self.number)

    def ended(self) -> bool:
        return self.code is not None or self.trouble is not None

    def free(self) -> int | None:
        self._step.forget(self)
        if self.trouble:
            raise self.trouble
        return self.code

    # ---- for the step's thread

    def take(self, frame: Frame) -> None:
        with self._changed:
            if frame.kind in "oe":
                self.heard += len(frame.data)
                self._untold += len(frame.data)
            if frame.kind == "o":
                self._pieces.append(frame.data)
            elif frame.kind == "e":
                self.err += frame.data
                del self.err[: -self.keep_err]
                self._nudged = True
            elif frame.kind == "z":
                self.drained = self._nudged = True
            elif frame.kind == "x":
                self.code = int(frame.data)
            elif frame.kind == "t":
                self._room += int(frame.data)
            elif frame.kind == "f":
                self.trouble = unreached("shell", f"sh could not be started: {plain(frame.data)}")
            self._changed.notify_all()

    def fail(self, why: Unreached) -> None:
        with self._changed:
            if self.code is None or not self.drained:
                self.trouble = self.trouble or why
            self._changed.notify_all()


class Step:
    """One launch; ``changed`` is notified when a host says hello or the launch ends."""

    def __init__(self, launcher: Launcher, hosts: Sequence[str], patience: float, children: Children) -> None:
        self.launcher, self.hosts, self.changed = launcher, tuple(hosts), threading.Condition()
        self.began = time.monotonic()
        self.greeted: dict[str, float] = {}
        """Hosts that said hello, and after how many seconds."""
        self.failed: dict[str, Unreached] = {}
        self.ended = False
        self.ears = launcher.ears(hosts)
        self.closing = False
        self._tasks: dict[int, Task] = {}
        self._by_host: dict[str, Task] = {}
        self._stray: dict[int, bytearray] = {}
        self._channels: dict[int, Channel] = {}
        self._numbers = itertools.count(1)
        self._orders, self._lock = Orders(), threading.Lock()
        self._queue: deque[tuple[memoryview, Channel | None]] = deque()
        self._stalled, self._beat = 0.0, self.began
        self._children = children
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._child = children.start(launcher.argv(hosts, patience), launcher.environ())
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    # ---- for everybody

    def open(self, host: str, command: str) -> Channel:
        """Starts a command on a host that said hello. Raises: Unreached."""
        task = self._by_host[host]
        channel = Channel(self, task, next(self._numbers))
        with self._lock:
            if self.ended:
                raise self._lost(host)
            self._channels[channel.number] = channel
            self._put(self._orders.order(task.number, "start", channel.number, command), channel)
        self._ring()
        return channel

    def feed(self, channel: Channel, data: bytes) -> None:
        with self._lock:
            self._put(self._orders.data(channel.task.number, channel.number, data))
        self._ring()

    def order(self, task: Task, *words: Any) -> None:
        with self._lock:
            self._put(self._orders.order(task.number, *words))
        self._ring()

    def forget(self, channel: Channel) -> None:
        """Ends what is left of a command."""
        self._channels.pop(channel.number, None)
        if channel.code is None or not channel.drained:
            self.order(channel.task, "end", channel.number)

    def close(self) -> None:
        """Ends all, on the hosts too. Returns at once."""
        self.closing = True
        self._ring()

    def join(self, seconds: float) -> None:
        """Waits until all is given back."""
        self._thread.join(seconds)

    def said(self, host: str) -> bytes:
        """The last of what a host's carrier, or what should have been one, said on stderr."""
        number = next((number for number, place in self.ears.places.items() if place == host), -1)
        task = self._by_host.get(host) or self._tasks.get(number)
        return bytes(task.said if task else self._stray.get(number, b""))

    def _put(self, data: bytes, channel: Channel | None = None) -> None:
        if not self.ended:
            self._queue.append((memoryview(data), channel))

    def _ring(self) -> None:
        with self._lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def _lost(self, host: str) -> Unreached:
        told = self.ears.troubles.get(host)
        words = told.text if told else self.ears.words
        name = self.launcher.name
        return unreached("lost", f"{name}, which carried its commands, ended" + (f": {words}" if words else ""))

    # ---- the thread

    def _go(self) -> None:
        try:
            self._carry()
        finally:
            with self._lock:
                self.ended = True
                self._queue.clear()
                channels = list(self._channels.values())
            if not has_ended(self._child):
                self.launcher.cancel(self.ears)
            code = self._children.end(self._child)
            if code == -signal.SIGKILL:
                self.launcher.cancel(self.ears)
            self.ears.words = self.ears.words or (f"signal {-code}" if code < 0 else f"exit status {code}")
            stopped = self._children.closed or self.closing
            for channel in channels:
                why = unreached("budget", "the run's time was up") if stopped else self._lost(channel.task.host)
                channel.fail(why)
            with self.changed:
                self.changed.notify_all()
            with self._lock:
                os.close(self._bell)
                self._bell = -1

    def _carry(self) -> None:
        child = self._child
        assert child.stdin and child.stdout and child.stderr
        out, err, into = (stream.fileno() for stream in (child.stdout, child.stderr, child.stdin))
        for file in (out, err, into):
            os.set_blocking(file, False)
        readers, poll, ticked, leave = {out, err}, select.poll(), time.monotonic(), 0.0
        for file in (err, out, self._bell):
            poll.register(file, select.POLLIN)
        while readers:
            writing = bool(self._queue) and not leave
            if writing:
                poll.register(into, select.POLLOUT)
            ready = {file for file, _ in poll.poll(_TICK * 1000 if not leave else 50)}
            if writing:
                poll.unregister(into)
            if self._bell in ready:
                os.eventfd_read(self._bell)
            if into in ready and not self._write(into):
                self._queue.clear()
            for file in (err, out):  # which task is where comes on stderr, before anything of the tasks
                if file in ready and file in readers and not self._read(file, file == err):
                    poll.unregister(file)
                    readers.discard(file)
            ticked = self._tick(ticked)
            if self.closing and not leave:
                leave = time.monotonic() + _FAREWELL
                child.stdin.close()  # the carriers' cue
            if leave and (time.monotonic() > leave or has_ended(child)):
                return

    def _tick(self, ticked: float) -> float:
        """Counts silence; only while we ourselves are awake."""
        now = time.monotonic()
        gap = min(now - ticked, 2 * _TICK)
        busy = {channel.task for channel in list(self._channels.values())}
        if now > self._beat + _BEAT and not self._queue:
            self._beat = now
            self._put(self._orders.order("*", "beat"))
        for task in self._tasks.values():
            task.quiet += gap
            task.credit = min(task.credit + gap * RATE, BURST)
            if task.quiet > SILENCE and task in busy:
                text = f"nothing has come from it for {seconds(SILENCE)}: it hangs, or the network to it does"
                self._drop(task, "lost", text)
        self._stalled = self._stalled + gap if self._queue else 0.0
        if self._stalled > SILENCE:
            self.ears.words = "it takes nothing in any more: a host that hangs holds it up"
            self.closing = True
        return now

    def _write(self, into: int) -> bool:
        """Whether the launcher still takes anything in."""
        while self._queue:
            data, channel = self._queue[0]
            if channel and not channel.sent:
                channel.sent = time.time()
            try:
                count = os.write(into, data[:_CHUNK])
            except BlockingIOError:
                return True
            except OSError:
                return False
            self._stalled = 0.0
            with self._lock:
                self._queue[0] = (data[count:], channel)
                if count == len(data):
                    self._queue.popleft()
        return True

    def _read(self, file: int, err: bool) -> bool:
        """False at its end."""
        try:
            piece = os.read(file, _CHUNK)
        except BlockingIOError:
            return True
        for heard in self.ears.err(piece) if err else self.ears.out(piece):
            self._hear(heard)
        return bool(piece)

    def _hear(self, heard: Heard) -> None:
        task = self._tasks.get(heard.task)
        if heard.err:
            said = task.said if task else self._stray.setdefault(heard.task, bytearray())
            said += heard.data
            del said[:-KEPT_ERR]
            return
        if task is None:
            task = self._tasks[heard.task] = Task("", heard.task)
            task.said = self._stray.pop(heard.task, task.said)
        task.credit -= len(heard.data)
        if task.host in self.failed:
            return
        if task.credit < 0:
            self._drop(task, "flood", "it printed more than its commands may, and was cut off")
            return
        try:
            for frame in task.frames.read(heard.data):
                self._take(task, frame)
        except Broken as error:
            self._drop(task, "lost", str(error))

    def _take(self, task: Task, frame: Frame) -> None:
        task.quiet = 0.0
        if frame.kind == "h":
            self._greet(task, frame.data)
        elif (channel := self._channels.get(frame.number)) and channel.task is task:
            channel.take(frame)

    def _greet(self, task: Task, data: bytes) -> None:
        host = self.ears.places.get(task.number) or _claimed(data, self.hosts)
        if task.host or host not in self.hosts or host in self._by_host:
            return
        task.host = host
        self._by_host[host] = task
        with self.changed:
            self.greeted[host] = time.monotonic() - self.began
            self.changed.notify_all()

    def _drop(self, task: Task, kind: Trouble, text: str) -> None:
        """Hears a host no more."""
        why = unreached(kind, text)
        self.failed[task.host] = why
        for channel in list(self._channels.values()):
            if channel.task is task:
                channel.fail(why)
                self.forget(channel)


def _claimed(data: bytes, hosts: Sequence[str]) -> str:
    """The one of ``hosts`` that a carrier says it is on, where the launcher does not say so."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        names = [str(name) for name in json.loads(data)["names"]]
        return next((name for name in names if name in hosts), "")
    return ""
