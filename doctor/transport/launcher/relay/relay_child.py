"""One child of a relay: an ssh process, or a carrier of this very machine."""

import errno
import json
import os
import signal
import socket
from collections import deque

from doctor.remote.runtime.processes import ended, signal_group, spawn
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
