"""A worker without torch: ranks that do nothing but fill their black boxes, and a client that speaks to an agent."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from doctor.smoke.model import Layout, RankPlacement, SmokePlan
from doctor.smoke.plan import plan_as_dict
from doctor.smoke.run.programs import AGENT, agent_request

numbers = itertools.count()

WORKER = """
import ctypes, faulthandler, json, mmap, os, signal, socket, struct, sys, time

PAGE, MAGIC = 40960, 0x444F4353
STATES = ("start", "input", "compute", "collective", "done")


class Box:
    def __init__(self, file, index):
        self.page = memoryview(mmap.mmap(file, (index + 1) * PAGE))[index * PAGE :]
        self.stamp = self.calls = 0
        self.entered = {}
        struct.pack_into("<IIQ", self.page, 0, MAGIC, os.getpid(), 0)
        self.note("compute")

    def note(self, state, stage=4, op=0, dtype=0, step=0, group=0, seq=0, root=-1, numel=0):
        self.stamp += 1
        fields = (STATES.index(state), stage, op, dtype, step, group, seq, root, numel, int(time.monotonic() * 1e9))
        struct.pack_into("<QBBBBIIIiQQQ", self.page, 64, self.stamp, *(fields + (self.stamp,)))

    def enter(self, group=0, op=3, dtype=1, numel=128, step=0, root=-1):
        seq = self.entered[group] = self.entered.get(group, 0) + 1
        place = 8192 + self.calls % 1024 * 32
        struct.pack_into("<IIBBBBiQII", self.page, place, group, seq, op, dtype, 4, 0, root, numel, step, 0)
        struct.pack_into("<III", self.page, 256 + 12 * group, group + 1, seq, seq - 1)
        self.calls += 1
        struct.pack_into("<QQQQ", self.page, 192, 0, 0, 0, self.calls)
        self.note("collective", 4, op, dtype, step, group, seq, root, numel)


def die_with(parent):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def main():
    orders = json.loads(sys.stdin.buffer.readline().decode())
    die_with(orders["agent"])

    def say(rank, ev, **values):
        os.write(orders["events"], json.dumps(dict(values, ev=ev, rank=rank)).encode() + b"\\n")

    say(-1, "imported", seconds=0.0, fds=sorted(map(int, os.listdir("/proc/self/fd"))))
    forks, ranks, parent = orders["start"] == "fork", {}, os.getpid()
    for rank in orders["mine"]:
        pid = os.fork() if forks else 0
        if pid == 0:
            if forks:
                die_with(parent)
            os.dup2(orders["errors"][str(rank)], 1)
            os.dup2(orders["errors"][str(rank)], 2)
            faulthandler.register(signal.SIGUSR1, file=orders["stacks"][str(rank)], all_threads=True)
            box = Box(orders["box"], orders["index"][str(rank)])
            try:
                live(rank, box, lambda ev, **values: say(rank, ev, **values), orders)
            except Exception as error:
                say(rank, "error", kind=type(error).__name__, text=str(error), secondary=False, stage="training")
                os._exit(13)
            box.note("done")
            say(rank, "done")
            os._exit(0)
        ranks[pid] = rank
    while ranks:
        pid = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
        limits = open("/proc/%d/limits" % pid).read(2000)
        say(ranks.pop(pid), "exit", status=os.waitpid(pid, 0)[1], limits=limits)
    os._exit(0)
"""

ENDS = "def live(rank, box, say, orders):\n    pass\n"
WAITS = "def live(rank, box, say, orders):\n    box.enter(numel=rank)\n    time.sleep(1000)\n"


def plan(world: int = 2, **fields: Any) -> SmokePlan:
    places = tuple(RankPlacement(rank, "here", rank) for rank in range(world))
    return SmokePlan("gloo", places, (Layout(dp=world),), master_addr="127.0.0.1", **fields)


class Client:
    """One agent on this machine, and what it says."""

    def __init__(self, python: str = "python3", shell: Sequence[str] = ("sh", "-c"), **prepare: Any) -> None:
        self.marker = f"doctor-test-{os.getpid()}-{next(numbers)}"
        sent = AGENT.request(self.marker, agent_request(self.marker, **prepare))
        command = sent.command.replace("for p in python3 ", f"for p in {python} ")
        pipe = subprocess.PIPE
        # Not in our process group: a test may end all of it.
        self.process = subprocess.Popen([*shell, command], stdin=pipe, stdout=pipe, start_new_session=True)
        assert self.process.stdin and self.process.stdout
        self.lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.received: list[dict[str, Any]] = []
        self.rest: deque[tuple[str, Any]] = deque()
        self.noise: list[bytes] = []
        self.heed = threading.Event()
        """Cleared: what the agent says is not read."""
        self.heed.set()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()
        self.process.stdin.write(sent.stdin)
        self.process.stdin.flush()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin and self.process.stdout
        try:
            with contextlib.suppress(BrokenPipeError):  # an agent that is gone leaves what was written last
                self.process.stdin.close()
            self.process.wait(5)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.thread.join()
            self.process.stdout.close()

    def listen(self) -> None:
        assert self.process.stdout
        mark = self.marker.encode() + b" "
        for line in self.process.stdout:
            self.heed.wait()
            if line.startswith(mark):
                self.lines.put(json.loads(line[len(mark) :]))
            else:
                self.noise.append(line)

    def order(self, do: str, **values: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")
        self.process.stdin.flush()

    def start(self, live: str, world: int = 2, **orders: Any) -> None:
        parameters = {"mine": list(range(world)), "worker": WORKER + live, "master": ["127.0.0.1", 1], **orders}
        self.order("start", **{"plan": plan_as_dict(plan(world)), **parameters})

    def until(self, key: str, seconds: float = 15.0, **expected: Any) -> Any:
        """The next line of this kind; of events and snapshots the next with these values."""
        deadline = time.monotonic() + seconds
        while True:
            while self.rest:
                kind, response = self.rest.popleft()
                if kind == key and (
                    not expected or all(response.get(name) == value for name, value in expected.items())
                ):
                    return response
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                status, last = self.process.poll(), (self.received[-2:], self.noise[-5:])
                raise queue.Empty(f"no {key} {expected} in {seconds} s; exit status {status}; last: {last}") from None
            self.received.append(line)
            self.rest.extend(line.items())
            self.rest.extend(("snap", snap) for snap in line.get("snaps", ()))

    def pids(self) -> list[int]:
        """Everything that this agent started and that is still there."""
        mark = f"DOCTOR_SMOKE={self.marker}".encode()
        result = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    result.append(int(process.name))
        return result


def has_ended(client: Client, seconds: float = 3.0) -> bool:
    """Whether all that the agent started ends in time."""
    deadline = time.monotonic() + seconds
    while client.pids() and time.monotonic() < deadline:
        time.sleep(0.005)
    return not client.pids()
