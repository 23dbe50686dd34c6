"""The files of one rank in the watch's folder: the flight recorder's page, its events, and its stacks."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
import time

from doctor.remote.runtime.host_texts import with_texts
from doctor.smoke.programs.recorder_page import DTYPES, OPS, PAGE_SIZE, STAGES, STATES, STEP, STEP_SLOTS, STEPS_AT
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder

FOLDER = os.environ.get("DOCTOR_WATCH", "")
"""The watch's folder on this host."""
STACK_SIGNAL = signal.SIGRTMIN + 11
"""A signal that no program and no library of the field uses; on it `faulthandler` writes the stacks of all threads."""
MOST_EVENT_BYTES = 1 << 20
"""That one process writes."""
TRAINING, RENDEZVOUS = STAGES.index("training"), STAGES.index("rendezvous")
ENQUEUED = STATES.index("enqueued")
COMPUTE, BACKWARD, UNSPLIT = 0, 3, 4  # of the recorder's times
MOST_MICROSECONDS, MOST_SHORT = (1 << 32) - 1, (1 << 16) - 1
INTERPRETER_EVERY = 4
"""Steps between two trials of how long a thread waits for the interpreter that another one has."""

THREADS = threading._active  # type: ignore[attr-defined]
"""Those of Python, by their numbers."""
ACTIVE = None
"""The `RankFiles` of this process; None before it is a rank, and after the hook has removed itself."""


class RankFiles(FlightRecorder):
    """What this process writes. Any thread may: each piece is written under a lock."""

    def __init__(self, rank, world, address="", timeout=0):
        name = os.path.join(FOLDER, "ranks", "%d-%d" % (os.getpid(), time.monotonic_ns()))
        self.lock = threading.Lock()
        self.events_path = name + ".events"
        self.events = os.open(self.events_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.events_file = _file_of(self.events)
        self.left_bytes = MOST_EVENT_BYTES
        self.last = None  # the call that the rank is in
        self.operations = set()
        self.in_backward = False
        self.trainer = self.owner = 0  # the thread that makes the steps; the one whose collectives the state shows
        self.started_kind = None  # of the recorder's times, what passes while collectives may be awaited in C++
        self.at_step = [0, 0, 0, 0, 0]  # its times when the step began
        self.calls_at_step = self.interpreter = 0
        self.stacks = open(name + ".stacks", "ab", 0)
        page = os.open(name + ".page", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(page, 0, PAGE_SIZE)  # on a full file system this raises; a hole would end the program
        meeting = address or "%s:%s" % (os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
        self.emit(
            "rank",
            rank=rank,
            world=world,
            pid=os.getpid(),
            argv=_argv(),
            meeting=meeting[:200],
            stacks=self.stacks.fileno(),
            timeout=timeout,
        )
        super().__init__(page, 0)
        os.close(page)
        self.stage = RENDEZVOUS
        self.mark("start")
        faulthandler.register(STACK_SIGNAL, file=self.stacks, all_threads=True, chain=False)

    def emit(self, kind, **values):
        """One line of JSON. A program may have closed all files, and have one of its own under this number."""
        if _file_of(self.events) != self.events_file:
            self.events = os.open(self.events_path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        values.update(ev=kind, at=time.time())
        line = json.dumps(with_texts(values)).encode("ascii") + b"\n"
        self.left_bytes -= len(line)
        if self.left_bytes > 0:
            os.write(self.events, line)

    def begin(self, group, op, dtype, root, numel, state="collective"):
        """A collective is called. Returns what `wait` needs."""
        with self.lock:
            is_aside = self.is_aside()
            self.enter(group, op, dtype, root, numel, "" if is_aside else state)
            self.operations.add(op)
            call = (group, self.counts[group][1], op, dtype, root, numel)
            if not is_aside:
                self.last, self.owner = call, self.thread()
                if self.state == ENQUEUED:
                    self.started_kind = BACKWARD if self.in_backward else COMPUTE
                    self.time_kind = BACKWARD if self.in_backward else self.time_kind
                elif self.in_backward and self.started_kind is None:
                    self.started_kind = COMPUTE  # a hook's, which C++ waits for when the backward pass ends
            return call

    def wait(self, call):
        """The rank waits for a collective that it has called before."""
        group, seq, op, dtype, root, numel = call
        with self.lock:
            if not self.is_aside():
                self.last, self.owner = call, self.thread()
                dtype = DTYPES.index(dtype) if dtype in DTYPES else 0
                self.mark("collective", group, seq, OPS.index(op), dtype, root, numel)

    def become(self, state):
        with self.lock:
            if state not in ("input", "compute") or not self.is_aside():
                self.last = None
                self.resume() if state == "compute" else self.mark(state)
                if state == "start":
                    self.time_kind = UNSPLIT

    def resume(self):
        """The rank goes on; what it has started in C++ and not waited for yet may hold it up anywhere."""
        self.mark("compute" if self.started_kind is None else "enqueued")
        self.time_kind = self.started_kind or COMPUTE
        self.owner = self.owner if self.started_kind is not None else 0

    def thread(self):
        """The one that calls; in place of one that autograd has made, which is none of Python's, that of the steps."""
        me = threading.get_ident()
        own = THREADS.get(me)
        return self.trainer or me if own is None or isinstance(own, threading._DummyThread) else me

    def is_aside(self):
        """Whether the thread of the steps is in a collective, which nothing that this other one does ends."""
        return 0 != self.trainer == self.owner != self.thread() and self.trainer in THREADS

    def next_step(self):
        if self.step % INTERPRETER_EVERY == 0:
            began = time.monotonic_ns()
            time.sleep(0)  # gives it to another thread that wants it, and takes it again
            self.interpreter = min((time.monotonic_ns() - began) // 10000, MOST_SHORT)
        with self.lock:
            self.last = None
            self.step += 1
            self.count_time()
            spent = [
                min((now - before) // 1000, MOST_MICROSECONDS) for now, before in zip(self.nanoseconds, self.at_step)
            ]
            spent += [min(self.calls - self.calls_at_step, MOST_SHORT), self.interpreter]
            self.at_step, self.calls_at_step = list(self.nanoseconds), self.calls
            STEP.pack_into(self.page, STEPS_AT + self.step % STEP_SLOTS * STEP.size, self.step, *spent)
            if not self.in_backward:  # else each parameter has a step there, while others are still reduced
                self.started_kind, self.trainer = None, threading.get_ident()
            self.resume()

    def enter_backward(self):
        self.in_backward, self.trainer = True, threading.get_ident()

    def leave_backward(self):
        """What C++ has called in it has been waited for: from here on the rank computes."""
        with self.lock:
            self.in_backward, self.started_kind = False, None
            if self.state == ENQUEUED:
                self.count_time()
                self.time_kind = COMPUTE

    def close(self):
        faulthandler.unregister(STACK_SIGNAL)


def _file_of(descriptor):
    try:
        about = os.fstat(descriptor)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _argv():
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [word.decode("utf-8", "replace")[:200] for word in file.read(4096).split(b"\0")[:12]]
    except OSError:
        return []


def recording():
    """The `RankFiles` of this process; None where there is none."""
    return ACTIVE


def start_recording(rank, world, address="", timeout=0):
    """Begins anew, also where an earlier process group was recorded before.

    ``address``: where the ranks meet; ``timeout``: seconds for which they wait for each other, 0: not known.
    """
    global ACTIVE
    ACTIVE = RankFiles(rank, world, address, timeout)
    return ACTIVE


def stop_recording(why=""):
    """The hook does nothing more in this process."""
    global ACTIVE
    files, ACTIVE = ACTIVE, None
    if files is not None and why:
        try:
            files.become("start")  # what the rank does from now on is not known
            files.emit("hook", text=why[:400], gone=True)
        except (OSError, ValueError):
            pass


def forget_after_fork():
    """A forked process is no rank until it forms a process group of its own; the page is its parent's."""
    global ACTIVE
    ACTIVE = None
