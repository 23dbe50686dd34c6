"""The carrier's loop: orders in, frames out."""

import base64
import binascii
import json
import os
import select
import signal
import struct
import sys
import time

from doctor.remote.runtime.processes import signal_group
from doctor.remote.runtime.signals import TerminationHeld, on_termination, wake_on_child_exit
from doctor.remote.runtime.streams import LineBuffer
from doctor.transport.launcher.carrier.carried_commands import GRACE, QUEUE_LIMIT, WINDOW, Command

try:
    import zlib
except ImportError:  # a Python that was built without it
    zlib = None
LINE = 900  # srun cuts lines at 1024 bytes
HEAD = struct.Struct(">IcBI")  # count, kind, flags, number of the command


class FrameWriter:
    """Our stdout: frames wait in `queue` until they can be written."""

    def __init__(self):
        self.count, self.queue = 0, bytearray()

    def send(self, kind, number=0, data=b""):
        packed = zlib.compress(data, 1) if zlib and len(data) > 200 else data
        flags = int(len(packed) < len(data))
        body = HEAD.pack(self.count, kind, flags, number) + (packed if flags else data)
        self.count += 1
        text = b"(" + base64.b64encode(body) + b".%08x)" % (binascii.crc32(body) & 0xFFFFFFFF)
        for start in range(0, len(text), LINE):
            self.queue += text[start : start + LINE] + b"\n"

    def push(self):
        try:
            while self.queue:
                del self.queue[: os.write(1, self.queue[:65536])]
        except BlockingIOError:
            pass


# Every command needs it (die_with_parent): loaded once, before the first fork.
try:
    import ctypes  # noqa: F401
except ImportError:
    pass
BASES = 4
BEAT = 4.0
SILENCE = 60.0  # seconds without an order: the controller has gone, and stdin does not show it


class Carrier:
    """Carries out the orders for this host; `do_...` are the orders, by their names on the wire.

    `bases` are inputs that were sent to all hosts, which other inputs refer to.
    """

    def __init__(self):
        self.name = ""
        for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
            self.name = self.name or os.environ.get(name, "")
        self.prefixes = (b"* ", self.name.encode("ascii", "replace") + b" ")
        self.writer, self.commands = FrameWriter(), {}
        self.lines, self.bases = LineBuffer(), {}
        for fd in (0, 1):
            os.set_blocking(fd, False)
        on_termination(self.quit)
        self.child_exits = wake_on_child_exit()
        self.beat = 0
        self.last_order = time.monotonic()

    def hello(self):
        names = [os.environ.get("SLURMD_NODENAME", ""), os.uname()[1]]
        self.writer.send(b"h", 0, json.dumps({"task": self.name, "names": names}).encode("ascii"))

    def run(self):
        self.hello()
        poll = select.poll()
        while True:
            watched = self.register(poll)
            ending = any(command.deadline for command in self.commands.values())
            for fd, _ in poll.poll(100 if ending else 1000):
                if fd == 0:
                    self.read_orders()
                elif fd == self.child_exits:
                    os.read(fd, 4096)
                elif fd in watched:
                    command = watched[fd]
                    command.push() if fd == command.stdin_fd else command.pull(fd, self.writer)
            for fd in list(watched) + [1]:
                try:
                    poll.unregister(fd)
                except KeyError:
                    pass
            self.tend(time.monotonic())

    def register(self, poll):
        poll.register(0, select.POLLIN)
        poll.register(self.child_exits, select.POLLIN)
        watched = {}
        if self.writer.queue:
            poll.register(1, select.POLLOUT)
        for command in self.commands.values():
            if command.unconfirmed < WINDOW and len(self.writer.queue) < QUEUE_LIMIT:
                for fd in command.readers:
                    watched[fd] = command
                    poll.register(fd, select.POLLIN)
            if command.stdin_data and command.stdin_fd is not None:
                watched[command.stdin_fd] = command
                poll.register(command.stdin_fd, select.POLLOUT)
        return watched

    def tend(self, now):
        for command in list(self.commands.values()):
            if command.consumed >= WINDOW // 4 or (command.consumed and not command.stdin_data):
                self.writer.send(b"t", command.number, b"%d" % command.consumed)
                command.consumed = 0
            command.report_exit(self.writer)
            if command.over(now):
                del self.commands[command.number]
        if now > self.beat + BEAT or now < self.beat:
            self.beat = now
            self.writer.send(b"b")
        if time.monotonic() > self.last_order + SILENCE:
            self.quit()
        try:
            self.writer.push()
        except OSError:
            self.quit()

    def read_orders(self):
        try:
            piece = os.read(0, 65536)
        except BlockingIOError:
            return
        if not piece:
            self.quit()
        self.last_order = time.monotonic()
        for line in self.lines.split(piece):
            if line.startswith(self.prefixes):
                order = json.loads(line.partition(b" ")[2].decode("ascii"))
                getattr(self, "do_" + order[0])(*order[1:])

    def do_beat(self):
        """The controller is still there."""
        pass

    def do_base(self, number, text):
        self.bases[number] = unpack(text)
        self.bases.pop(number - BASES, None)

    def do_start(self, number, text):
        try:
            with TerminationHeld():
                self.commands[number] = Command(number, text)
        except OSError as error:
            self.writer.send(b"f", number, str(error).encode("utf-8", "replace"))

    def do_data(self, number, text):
        self.feed(number, unpack(text))

    def do_like(self, number, base, prefix, suffix, text):
        model = self.bases[base]
        self.feed(number, model[:prefix] + unpack(text) + model[len(model) - suffix :])

    def feed(self, number, data):
        command = self.commands.get(number)
        if command is not None:
            if command.stdin_fd is None or command.stdin_ended:
                command.consumed += len(data)
            else:
                command.stdin_data += data
                command.push()

    def do_shut(self, number):
        command = self.commands.get(number)
        if command is not None:
            command.stdin_ended = True
            command.push()

    def do_heard(self, number, count):
        command = self.commands.get(number)
        if command is not None:
            command.unconfirmed -= count

    def do_end(self, number):
        command = self.commands.get(number)
        if command is not None:
            command.end()

    def quit(self, *_):
        """The controller has gone."""
        for command in self.commands.values():
            command.end()
        deadline = time.monotonic() + 2 * GRACE
        while self.commands and time.monotonic() < deadline:
            for command in list(self.commands.values()):
                if command.over(time.monotonic()):
                    del self.commands[command.number]
            time.sleep(0.005)
        for command in self.commands.values():
            signal_group(command.pid, signal.SIGKILL)
        os._exit(0)  # anything else has some launchers end the others too


def main():
    """Runs the carrier; a failure goes to stderr, and the exit code stays 0."""
    try:
        Carrier().run()
    except Exception as error:
        sys.stderr.write("doctor-carrier: %s: %s\n" % (type(error).__name__, error))
        sys.stderr.flush()
        os._exit(0)


def unpack(text):
    """Bytes that were sent as they are, or as ``z`` and their compressed form."""
    data = base64.b64decode(text[1:])
    return zlib.decompress(data) if text[0] == "z" else data
