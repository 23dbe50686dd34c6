"""The relay's loop: lines for carriers in, lines of carriers out. Its children: ssh, or a carrier of this machine."""

import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque

from doctor.remote.runtime.processes import ended, signal_group, spawn
from doctor.remote.runtime.signals import on_termination, wake_on_child_exit
from doctor.remote.runtime.streams import LineBuffer, last_lines

PIECE = 8192  # bytes of a carrier's line that go on together
RELAY_LINE = 1 << 18  # bytes of a line of a relay
TEXT_BYTES = 2000
STRAY_LINES = 1000  # lines of a child that are none of ours: beyond that it is ended
QUEUE_BYTES = 32 << 20


class Child:
    """`tasks`: the numbers of the carriers below; `gateways`: the relays below, by name.

    `node` is its part of the tree: "host" (empty: this machine), "login" (options of ssh), "task" of a carrier or
    "below" of a relay.
    """

    def __init__(self, node, common):
        self.node, self.common = node, common
        self.host, self.is_relay = node["host"], "below" in node
        self.tasks, self.gateways, self.names = set(), set(), set()
        collect_below(node, self)
        self.queue, self.queued_bytes = deque(), 0
        self.pid = self.fd = self.stderr_fd = self.code = None
        self.lines, self.error_text, self.stray = LineBuffer(RELAY_LINE), b"", 0
        self.reported = self.answered = self.input_ended = False
        if self.is_relay:
            self.put(json.dumps(dict(common, below=node["below"], name=self.host)).encode("ascii") + b"\n")

    def argv(self):
        program = self.common["relay"] if self.is_relay else self.common["carrier"] % self.node["task"]
        if not self.host:
            return ["/bin/sh", "-c", program]
        return self.common["ssh"] + self.node["login"] + ["--", self.host, program]

    def start(self):
        """Raises: OSError."""
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        try:
            self.pid = spawn(["/usr/bin/env"] + self.argv(), os.environ, (theirs.fileno(), theirs.fileno(), writer))
        finally:
            theirs.close()
            os.close(writer)
            self.fd, self.stderr_fd = ours.detach(), reader
            for fd in (self.fd, self.stderr_fd):
                os.set_blocking(fd, False)

    def put(self, line):
        if self.queued_bytes > QUEUE_BYTES:
            self.error_text = self.error_text or b"it reads no input"
            self.end()
        elif self.fd is not None or self.pid is None:
            self.queue.append(line)
            self.queued_bytes += len(line)

    def push(self):
        try:
            while self.queue:
                count = os.write(self.fd, self.queue[0][:65536])
                self.queued_bytes -= count
                if count == len(self.queue[0]):
                    self.queue.popleft()
                else:
                    self.queue[0] = self.queue[0][count:]
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                self.queue.clear()
                self.queued_bytes = 0

    def pull(self, fd):
        """The lines to print of what has come; closes what has ended."""
        try:
            piece = os.read(fd, 65536)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return []
            piece = b""
        if fd == self.stderr_fd:
            self.error_text = (self.error_text + piece)[-TEXT_BYTES - 1 :]
            if not piece:
                os.close(fd)
                self.stderr_fd = None
            return [] if self.is_relay else self.labelled(b"e", piece)
        self.answered = True
        if not piece:
            self.close_files()
        return self.checked(self.lines.split(piece)) if self.is_relay else self.labelled(b"o", piece)

    def labelled(self, kind, piece):
        """Nothing of a host can pass for a line of another: each of its lines gets its number in front."""
        prefix = b"%s %d " % (kind, self.node["task"])
        lines = [line[start : start + PIECE] for line in piece.split(b"\n") for start in range(0, len(line), PIECE)]
        return [prefix + line + b"\n" for line in lines if line]

    def checked(self, lines):
        """The lines of a relay that are about what is below it."""
        fine = []
        for line in lines:
            try:
                fine.append(self.checked_line(line) + b"\n")
            except (ValueError, KeyError, TypeError, IndexError, ArithmeticError, RecursionError):
                self.stray += 1
        if self.stray > STRAY_LINES:
            self.error_text = self.error_text or b"it sent too much that was not asked of it"
            self.end()
        return fine

    def checked_line(self, line):
        """Raises: ValueError and the like."""
        kind, _, rest = line.partition(b" ")
        if kind in (b"o", b"e") and int(rest.partition(b" ")[0]) in self.tasks:
            return line
        value = json.loads(rest.decode("ascii"))
        if kind == b"u" and value in self.gateways:
            return line
        tasks = self.tasks.intersection(value["tasks"])
        if kind != b"x" or not tasks or value["host"] not in self.names:
            raise ValueError(kind)
        report = {"host": value["host"], "code": int(value["code"]), "text": str(value["text"])[:TEXT_BYTES]}
        return b"x " + json.dumps(dict(report, tasks=sorted(tasks))).encode("ascii")

    def over(self):
        if self.pid is None or self.fd is not None or self.stderr_fd is not None:
            return self.pid is None and self.code is not None
        if self.code is None:
            end = ended(self.pid)
            if end is None:
                return False
            self.code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
            signal_group(self.pid)
            os.waitpid(self.pid, os.WNOHANG)
            self.pid = None
        return True

    def ending(self):
        text = last_lines(self.error_text, TEXT_BYTES)
        report = {"host": self.host, "code": self.code, "text": text, "tasks": sorted(self.tasks)}
        return b"x " + json.dumps(report).encode("ascii") + b"\n"

    def end_input(self):
        """Its carriers end by this."""
        if self.fd is not None and not self.input_ended:
            self.input_ended = True
            try:
                socket.socket(fileno=os.dup(self.fd)).shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def end(self):
        if self.pid is not None:
            signal_group(self.pid, signal.SIGKILL)

    def close_files(self):
        """Its output has ended: it takes no input either."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
            self.queue.clear()


def collect_below(node, child):
    """Adds the carriers' numbers, the relays' names and all hosts of a part of the tree, itself included."""
    child.names.add(node["host"])
    if node.get("task") is not None:
        child.tasks.add(node["task"])
    if "below" in node:
        child.gateways.add(node["host"])
        for other in node["below"]:
            collect_below(other, child)


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
