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
from typing import Any, Protocol

from doctor.engine.bounded_run import has_ended
from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import TransportError, transport_error
from doctor.transport.conversation import BURST, MAX_KEPT_STDERR, RATE, SILENCE
from doctor.transport.launcher.carrier.carried_commands import WINDOW
from doctor.transport.launcher.frames import Frame, FrameError, FrameReader, RequestEncoder
from doctor.transport.launcher.launcher import KnowsWays, Launcher, TaskOutput
from doctor.transport.local import Children

_CHUNK = 1 << 16
_ACKNOWLEDGE_BYTES = WINDOW // 4
_TICK_SECONDS = 1.0
_BEAT_SECONDS = 10.0
"""Seconds between two keepalive messages to the carriers, which end without them."""
_CLOSE_GRACE = 1.0
_MANY = 8
_MOST_SILENCE = 4 * SILENCE


def silence_limit(silences: Sequence[float]) -> float:
    """Seconds after which a silent host of a launch hangs. Where many are silent, what carries them all is slow.

    ``silences``: the seconds for which each host of the launch has been silent.

    >>> silence_limit([1.0] * 9 + [14.0]), silence_limit([14.0] * 10), silence_limit([70.0] * 10)
    (15.0, 42.0, 60.0)
    """
    middle = sorted(silences)[len(silences) // 2] if len(silences) >= _MANY else 0.0
    return min(max(SILENCE, 3 * middle), _MOST_SILENCE)


class Task:
    """A host's carrier."""

    def __init__(self, host: str, number: int) -> None:
        self.host, self.number = host, number
        self.frames = FrameReader()
        self.silent_seconds = 0.0
        self.credit = float(BURST)
        self.stderr_tail = bytearray()
        """The last of its stderr."""


class CommandLink(Protocol):
    """What leads to the carrier that a command runs under."""

    def send_request(self, task: Task, *fields: Any) -> None: ...

    def send_data(self, channel: StepChannel, data: bytes) -> None: ...

    def forget(self, channel: StepChannel) -> None: ...


class StepChannel:
    """The far end of one command: `doctor.transport.conversation.ByteChannel`, and what a `run` needs besides."""

    def __init__(self, step: CommandLink, task: Task, number: int) -> None:
        self.received_bytes, self.err, self.sent = 0, bytearray(), 0.0
        self.code: int | None = None
        self.drained = False
        """Both outputs have come to their end."""
        self.error: TransportError | None = None
        self.task, self.number = task, number
        self.max_kept_stderr = MAX_KEPT_STDERR
        self.until_drained = False
        """Its end is that of its outputs too, whoever holds them open."""
        self._step, self._changed = step, threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._window, self._unacknowledged, self._woken = WINDOW, 0, False

    # ---- for who listens

    def wait(self, writing: bool, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._has_news() or (writing and self._window > 0), seconds)
            self._woken = False

    def _has_news(self) -> bool:
        return bool(self._pieces or self.error or (self.code is not None and (self.drained or not self.until_drained)))

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def abort(self) -> None:
        """Nothing here waits but `wait`, which a nudge ends."""

    def read(self) -> bytes | None:
        with self._changed:
            data, over = b"".join(self._pieces), self.code is not None
            self._pieces.clear()
            if self.error and not data:
                raise self.error
            count, self._unacknowledged = (
                self._unacknowledged,
                0 if self._unacknowledged >= _ACKNOWLEDGE_BYTES else self._unacknowledged,
            )
        if count >= _ACKNOWLEDGE_BYTES and not over:
            self._step.send_request(self.task, "heard", self.number, count)
        return None if over and not data else data

    def write(self, data: memoryview) -> int:
        with self._changed:
            count = min(len(data), self._window)
            self._window -= count
        if count:
            self._step.send_data(self, bytes(data[:count]))
        return count

    def close_input(self) -> None:
        self._step.send_request(self.task, "shut", self.number)

    def ended(self) -> bool:
        return self.code is not None or self.error is not None

    def complete(self) -> bool:
        return self.code is not None and self.drained

    def release(self) -> int | None:
        self._step.forget(self)
        if self.error:
            raise self.error
        return self.code

    # ---- for the step's thread

    def receive(self, frame: Frame) -> None:
        with self._changed:
            if frame.kind in "oe":
                self.received_bytes += len(frame.data)
                self._unacknowledged += len(frame.data)
            if frame.kind == "o":
                self._pieces.append(frame.data)
            elif frame.kind == "e":
                self.err += frame.data
                del self.err[: -self.max_kept_stderr]
                self._woken = True
            elif frame.kind == "z":
                self.drained = self._woken = True
            elif frame.kind == "x":
                self.code = int(frame.data)
            elif frame.kind == "t":
                self._window += int(frame.data)
            elif frame.kind == "f":
                self.error = transport_error(
                    "shell", filled("sh could not be started: {0}", strip_control_chars(frame.data))
                )
            self._changed.notify_all()

    def fail(self, why: TransportError) -> None:
        with self._changed:
            if self.code is None or not self.drained:
                self.error = self.error or why
            self._changed.notify_all()


class JobStep:
    """One launch; ``changed`` is notified when a host reports to us or the launch ends."""

    def __init__(self, launcher: Launcher, hosts: Sequence[str], patience: float, children: Children) -> None:
        self.launcher, self.hosts, self.changed = launcher, tuple(hosts), threading.Condition()
        self.began = time.monotonic()
        self.hello_seconds: dict[str, float] = {}
        """Hosts that sent hello, and after how many seconds."""
        self.failed: dict[str, TransportError] = {}
        self.ended = False
        self.reader = launcher.open_reader(hosts)
        self.closing = False
        self._tasks: dict[int, Task] = {}
        self._task_by_host: dict[str, Task] = {}
        self._unclaimed_stderr: dict[int, bytearray] = {}
        self._channels: dict[int, StepChannel] = {}
        self._numbers = itertools.count(1)
        self._encoder, self._lock = RequestEncoder(), threading.Lock()
        self._queue: deque[tuple[memoryview, StepChannel | None]] = deque()
        self._stalled_seconds, self._beat_at = 0.0, self.began
        self._children = children
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if isinstance(launcher, KnowsWays):
            self._enqueue(launcher.first_line(self.reader))
        self._child = children.start(launcher.argv(hosts, patience), launcher.environ())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # ---- for everybody

    @property
    def complete(self) -> bool:
        """Whether each host has said hello, or cannot be reached by the launcher's own words."""
        errors = self.reader.errors_by_host
        return all(host in self.hello_seconds or host in errors for host in self.hosts)

    def open(self, host: str, command: str) -> StepChannel:
        """Starts a command on a host that reported. Raises: Unreached."""
        task = self._task_by_host[host]
        channel = StepChannel(self, task, next(self._numbers))
        with self._lock:
            if self.ended:
                raise self._lost_error(host)
            self._channels[channel.number] = channel
            self._enqueue(self._encoder.encode(task.number, "start", channel.number, command), channel)
        self._wake()
        return channel

    def send_data(self, channel: StepChannel, data: bytes) -> None:
        with self._lock:
            self._enqueue(self._encoder.encode_data(channel.task.number, channel.number, data))
        self._wake()

    def send_request(self, task: Task, *fields: Any) -> None:
        with self._lock:
            self._enqueue(self._encoder.encode(task.number, *fields))
        self._wake()

    def forget(self, channel: StepChannel) -> None:
        self._channels.pop(channel.number, None)
        if channel.code is None or not channel.drained:
            self.send_request(channel.task, "end", channel.number)

    def close(self) -> None:
        """Ends all, on the hosts too. Returns at once."""
        self.closing = True
        self._wake()

    def join(self, seconds: float) -> None:
        """Waits until all is given back."""
        self._thread.join(seconds)

    def stderr_tail(self, host: str) -> bytes:
        """The last stderr output of a host's carrier, or of what was started in its place."""
        number = next((number for number, place in self.reader.host_by_task.items() if place == host), -1)
        task = self._task_by_host.get(host) or self._tasks.get(number)
        return bytes(task.stderr_tail if task else self._unclaimed_stderr.get(number, b""))

    def _enqueue(self, data: bytes, channel: StepChannel | None = None) -> None:
        if not self.ended:
            self._queue.append((memoryview(data), channel))

    def _wake(self) -> None:
        with self._lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _lost_error(self, host: str) -> TransportError:
        host_error = self.reader.errors_by_host.get(host)
        reason = host_error.text if host_error else self.reader.last_error
        name = self.launcher.name
        because = filled(": {0}", reason) if reason else ""
        return transport_error("lost", filled("{0}, which carried its commands, ended{1}", name, because))

    # ---- the thread

    def _run(self) -> None:
        try:
            self._pump()
        finally:
            with self._lock:
                self.ended = True
                self._queue.clear()
                channels = list(self._channels.values())
            if not has_ended(self._child):
                self.launcher.cancel(self.reader)
            code = self._children.end(self._child)
            if code == -signal.SIGKILL:
                self.launcher.cancel(self.reader)
            self.reader.last_error = self.reader.last_error or (
                filled("signal {0}", -code) if code < 0 else filled("exit status {0}", code)
            )
            stopped = self._children.closed or self.closing
            for channel in channels:
                why = (
                    transport_error("budget", "the run's time limit was reached")
                    if stopped
                    else self._lost_error(channel.task.host)
                )
                channel.fail(why)
            with self.changed:
                self.changed.notify_all()
            with self._lock:
                os.close(self._wake_fd)
                self._wake_fd = -1

    def _pump(self) -> None:
        child = self._child
        assert child.stdin and child.stdout and child.stderr
        out, err, into = (stream.fileno() for stream in (child.stdout, child.stderr, child.stdin))
        for file in (out, err, into):
            os.set_blocking(file, False)
        readers, poll, ticked, leave = {out, err}, select.poll(), time.monotonic(), 0.0
        for file in (err, out, self._wake_fd):
            poll.register(file, select.POLLIN)
        while readers:
            writing = bool(self._queue) and not leave
            if writing:
                poll.register(into, select.POLLOUT)
            ready = {file for file, _ in poll.poll(_TICK_SECONDS * 1000 if not leave else 50)}
            if writing:
                poll.unregister(into)
            if self._wake_fd in ready:
                os.eventfd_read(self._wake_fd)
            if into in ready and not self._write(into):
                self._queue.clear()
            for file in (err, out):  # which task is where comes on stderr, before anything of the tasks
                if file in ready and file in readers and not self._read(file, file == err):
                    poll.unregister(file)
                    readers.discard(file)
            ticked = self._count_silence(ticked)
            if self.closing and not leave:
                leave = time.monotonic() + _CLOSE_GRACE
                child.stdin.close()  # the carriers' cue
            if leave and (time.monotonic() > leave or has_ended(child)):
                return

    def _count_silence(self, ticked: float) -> float:
        """Counts silence; only while we ourselves are awake."""
        now = time.monotonic()
        gap = min(now - ticked, 2 * _TICK_SECONDS)
        busy = {channel.task for channel in list(self._channels.values())}
        if now > self._beat_at + _BEAT_SECONDS and not self._queue:
            self._beat_at = now
            self._enqueue(self._encoder.encode("*", "beat"))
        limit = silence_limit([task.silent_seconds for task in self._tasks.values()])
        for task in self._tasks.values():
            task.silent_seconds += gap
            task.credit = min(task.credit + gap * RATE, BURST)
            if task.silent_seconds > limit and task in busy:
                text = filled("no data from it for {0}: the host or its network hangs", seconds_text(round(limit)))
                self._fail_host(task, transport_error("lost", text))
        self._stalled_seconds = self._stalled_seconds + gap if self._queue else 0.0
        if self._stalled_seconds > SILENCE:
            self.reader.last_error = "it no longer reads its input: a hanging host blocks it"
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
            self._stalled_seconds = 0.0
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
        known_errors = len(self.reader.errors_by_host)
        for output in self.reader.read_stderr(piece) if err else self.reader.read_stdout(piece):
            self._take_output(output)
        if len(self.reader.errors_by_host) > known_errors:
            for host, error in list(self.reader.errors_by_host.items())[known_errors:]:
                if host in self._task_by_host:
                    self._fail_host(self._task_by_host[host], error)
            with self.changed:
                self.changed.notify_all()
        return bool(piece)

    def _take_output(self, output: TaskOutput) -> None:
        task = self._tasks.get(output.task)
        if output.is_stderr:
            stderr_tail = task.stderr_tail if task else self._unclaimed_stderr.setdefault(output.task, bytearray())
            stderr_tail += output.data
            del stderr_tail[:-MAX_KEPT_STDERR]
            return
        if task is None:
            task = self._tasks[output.task] = Task("", output.task)
            task.stderr_tail = self._unclaimed_stderr.pop(output.task, task.stderr_tail)
        task.credit -= len(output.data)
        if task.host in self.failed:
            return
        if task.credit < 0:
            self._fail_host(task, transport_error("flood", "it exceeded the output limit, and was closed"))
            return
        try:
            for frame in task.frames.read(output.data):
                self._take_frame(task, frame)
        except FrameError as error:
            self._fail_host(task, transport_error("lost", str(error)))

    def _take_frame(self, task: Task, frame: Frame) -> None:
        task.silent_seconds = 0.0
        if frame.kind == "h":
            self._take_hello(task, frame.data)
        elif (channel := self._channels.get(frame.number)) and channel.task is task:
            channel.receive(frame)

    def _take_hello(self, task: Task, data: bytes) -> None:
        host = self.reader.host_by_task.get(task.number) or _claimed_host(data, self.hosts)
        if task.host or host not in self.hosts or host in self._task_by_host:
            return
        task.host = host
        self._task_by_host[host] = task
        with self.changed:
            self.hello_seconds[host] = time.monotonic() - self.began
            self.changed.notify_all()

    def _fail_host(self, task: Task, why: TransportError) -> None:
        """Hears a host no more."""
        self.failed[task.host] = why
        for channel in list(self._channels.values()):
            if channel.task is task:
                channel.fail(why)
                self.forget(channel)


def _claimed_host(data: bytes, hosts: Sequence[str]) -> str:
    """The one of ``hosts`` that a carrier reports as its own, where the launcher does not label its output."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        names = [str(name) for name in json.loads(data)["names"]]
        return next((name for name in names if name in hosts), "")
    return ""
