"""The relay's loop: lines for carriers in, lines of carriers out."""

import json
import os
import resource
import select
import signal
import sys
import time
from collections import deque

from doctor.remote.runtime.signals import on_termination, wake_on_child_exit
from doctor.remote.runtime.streams import LineBuffer
from doctor.transport.launcher.relay.relay_child import Child

SILENCE = 60.0  # seconds without a line from above: the controller has gone, and stdin does not show it
GRACE = 3.0  # seconds for the carriers below to end what they started
OUTPUT_BYTES = 1 << 20  # bytes that may wait for our stdout before nothing more is read from the children
IN, OUT = select.EPOLLIN | select.EPOLLHUP, select.EPOLLOUT


class Relay:
    """`waiting`: children that are not yet started; `starting`: those that have sent nothing so far."""

    def __init__(self, tree):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        common = dict((name, tree[name]) for name in ("ssh", "carrier", "relay", "fanout"))
        if tree["name"]:
            common["ssh"] = tree["inner_ssh"]
        common["inner_ssh"] = tree["inner_ssh"]
        self.fanout, self.name = tree["fanout"], tree["name"]
        self.children = [Child(node, common) for node in tree["below"]]
        self.waiting, self.starting, self.running = deque(self.children), set(), {}
        self.by_task = dict((task, child) for child in self.children for task in child.tasks)
        self.queue, self.output_bytes = deque(), 0
        self.lines, self.last_line, self.paused = LineBuffer(), time.monotonic(), False
        self.poll, self.flags = select.epoll(), {}
        for fd in (0, 1):
            os.set_blocking(fd, False)
        on_termination(self.quit)
        self.child_exits = wake_on_child_exit()
        self.watch(0, IN)
        self.watch(self.child_exits, IN)

    def watch(self, fd, flags):
        if self.flags.get(fd, 0) != flags:
            if fd not in self.flags:
                self.poll.register(fd, flags)
            elif flags:
                self.poll.modify(fd, flags)
            else:
                self.poll.unregister(fd)
            self.flags[fd] = flags
            if not flags:
                del self.flags[fd]

    def run(self, rest):
        self.print_line(b"u " + json.dumps(self.name).encode("ascii") + b"\n")
        self.take_lines(self.lines.split(rest))
        while True:
            self.start_some()
            self.watch(1, OUT if self.queue else 0)
            for fd, _ in self.poll.poll(1.0):
                if fd == 0:
                    self.read_lines()
                elif fd == 1:
                    self.push()
                elif fd == self.child_exits:
                    os.read(fd, 4096)
                else:
                    self.serve(fd)
            self.reap()
            self.push()
            self.pause(self.output_bytes > OUTPUT_BYTES)
            if time.monotonic() > self.last_line + SILENCE:
                self.quit()

    def start_some(self):
        while self.waiting and len(self.starting) < self.fanout:
            child = self.waiting.popleft()
            try:
                child.start()
            except OSError as error:
                child.code, child.error_text = 126, str(error).encode("ascii", "replace")
                continue
            self.starting.add(child)
            for fd in (child.fd, child.stderr_fd):
                self.running[fd] = child
                self.watch(fd, IN)
            self.feed(child)

    def feed(self, child):
        if child.fd is not None:
            child.push()
            self.watch(
                child.fd, IN | OUT if child.queue and not self.paused else OUT if child.queue else self.reading()
            )

    def reading(self):
        return 0 if self.paused else IN

    def serve(self, fd):
        child = self.running.get(fd)
        if child is None:
            return
        for line in child.pull(fd):
            self.print_line(line)
        if fd not in (child.fd, child.stderr_fd):  # closed by it: epoll has forgotten it
            self.flags.pop(fd, None)
            del self.running[fd]
        elif fd == child.fd and child.queue:
            self.feed(child)
        if child.answered:
            self.starting.discard(child)

    def pause(self, paused):
        """Reads no more from the children while our own output waits."""
        if paused != self.paused:
            self.paused = paused
            for fd, child in self.running.items():
                self.watch(fd, self.reading() | (OUT if fd == child.fd and child.queue else 0))

    def reap(self):
        for child in self.children:
            if not child.reported and child.over():
                child.reported = True
                self.starting.discard(child)
                self.print_line(child.ending())

    def read_lines(self):
        try:
            piece = os.read(0, 1 << 20)
        except BlockingIOError:
            return
        if not piece:
            self.quit()
        self.last_line = time.monotonic()
        self.take_lines(self.lines.split(piece))

    def take_lines(self, lines):
        touched = set()
        for line in lines:
            task = line.partition(b" ")[0]
            to = self.children if task == b"*" else [self.by_task[int(task)]] if int(task) in self.by_task else []
            for child in to:
                if not child.reported:
                    child.put(line + b"\n")
                    touched.add(child)
        for child in touched:
            self.feed(child)

    def print_line(self, line):
        self.queue.append(line)
        self.output_bytes += len(line)

    def push(self):
        try:
            while self.queue:
                data = b"".join(self.queue)
                self.queue.clear()
                count = os.write(1, data)
                self.output_bytes -= count
                if count < len(data):
                    self.queue.append(data[count:])
        except BlockingIOError:
            self.queue.append(data)
        except OSError:
            self.quit()

    def quit(self, *_):
        """The controller has gone."""
        for child in self.children:
            if child.pid is not None:
                child.end_input()
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and any(child.pid is not None for child in self.children):
            for child in self.children:
                for fd in (child.fd, child.stderr_fd):
                    if fd is not None:
                        child.pull(fd)
                child.over()
            time.sleep(0.01)
        for child in self.children:
            child.end()
        os._exit(0)


def read_first_line():
    """The first line of stdin, and what came behind it."""
    data = b""
    while b"\n" not in data:
        piece = os.read(0, 65536)
        if not piece:
            os._exit(0)
        data += piece
    first, _, rest = data.partition(b"\n")
    return first, rest


def main():
    """Runs the relay; a failure goes to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        first, rest = read_first_line()
        Relay(json.loads(first.decode("ascii"))).run(rest)
    except Exception as error:
        sys.stderr.write("doctor-relay: %s: %s\n" % (type(error).__name__, error))
        sys.stderr.flush()
        os._exit(1)
