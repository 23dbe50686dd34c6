"""The carrier: the program that a launcher starts once on each host.

Standard library only, Python 3.6 and later, ASCII. It reads orders, one a line, from a stdin that all hosts
share: ``* [...]`` is for all, ``3 [...]`` for task 3, and "task 3" is what the launcher calls us. It starts
commands by sh, each in a session of its own, and tells what they say in frames that no launcher can break:
base64 with a number and a checksum, wherever lines are cut or joined. When stdin ends, or a signal tells us
to, it ends all that it started.
"""

import base64
import binascii
import ctypes
import errno
import json
import os
import select
import signal
import struct
import sys
import time

try:
    import zlib
except ImportError:  # a Python that was built without it
    zlib = None

LINE = 900  # srun cuts lines at 1024 bytes
CHUNK = 48 << 10
WINDOW = 1 << 20
FULL = 1 << 18
BASES = 4
BEAT = 4.0
DEAF = 60.0  # seconds without a word: whoever started us is gone, and stdin does not tell
GRACE = 1.0
HEAD = struct.Struct(">IcBI")
LAUNCHERS = ("SLURM_", "SLURMD_", "SRUN_", "OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_", "OPAL_")


class Voice:
    """Our stdout."""

    def __init__(self):
        self.count, self.queue = 0, bytearray()

    def say(self, kind, number=0, data=b""):
        packed = zlib.compress(data, 1) if zlib and len(data) > 200 else data
        flags = int(len(packed) < len(data))
        body = HEAD.pack(self.count, kind, flags, number) + (packed if flags else data)
        self.count += 1
        text = b"(" + base64.b64encode(body) + b".%08x)" % (binascii.crc32(body) & 0xFFFFFFFF)
        for place in range(0, len(text), LINE):
            self.queue += text[place : place + LINE] + b"\n"

    def push(self):
        try:
            while self.queue:
                del self.queue[: os.write(1, self.queue[:65536])]
        except BlockingIOError:
            pass


class Command:
    """One command, from its start until it is forgotten."""

    def __init__(self, number, text):
        self.number, self.feed, self.shut = number, bytearray(), False
        self.unheard = self.taken = 0
        self.code = self.deadline = None
        ends = [os.pipe() for _ in range(3)]
        self.pid = os.fork()
        if self.pid == 0:
            become(ends, text)
        for mine in (ends[0][0], ends[1][1], ends[2][1]):
            os.close(mine)
        self.source, self.readers = ends[0][1], {ends[1][0]: b"o", ends[2][0]: b"e"}
        for fd in (self.source, *self.readers):
            os.set_blocking(fd, False)

    def push(self):
        """Feeds what fits."""
        try:
            while self.feed and self.source is not None:
                count = os.write(self.source, self.feed[:65536])
                del self.feed[:count]
                self.taken += count
        except BlockingIOError:
            return
        except OSError:
            self.taken += len(self.feed)
            self.feed, self.shut = bytearray(), True
        if self.shut and not self.feed:
            self.close_source()

    def close_source(self):
        if self.source is not None:
            os.close(self.source)
            self.source = None

    def pull(self, fd, voice):
        """Whether there was something, or the end."""
        try:
            piece = os.read(fd, CHUNK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return False
            piece = b""
        if piece:
            self.unheard += len(piece)
            voice.say(self.readers[fd], self.number, piece)
        else:
            del self.readers[fd]
            os.close(fd)
            if not self.readers:
                voice.say(b"z", self.number)
        return True

    def look(self, voice):
        """Tells of the end of the leader, behind what it said."""
        if self.code is not None or self.unheard >= WINDOW:
            return
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        while any([self.pull(fd, voice) for fd in list(self.readers)]):
            if self.unheard >= WINDOW or len(voice.queue) > FULL:
                return
        status = ended.si_status
        self.code = status if ended.si_code == os.CLD_EXITED else -status
        voice.say(b"x", self.number, b"%d" % self.code)

    def signal(self, number):
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass

    def end(self):
        """Asks first; who stays is killed later."""
        self.close_source()
        if self.deadline is None:
            self.deadline = time.time() + GRACE
            self.signal(signal.SIGTERM)

    def over(self, now):
        """Whether it is ended for good. The leader is reaped last: until then its number is nobody else's."""
        if self.deadline is None and (self.code is None or self.readers):
            return False
        gone = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if self.deadline is not None:
            if gone or now > self.deadline:
                self.signal(signal.SIGKILL)
            if not gone and now < self.deadline + GRACE:  # after that it is stuck in the kernel, and given up
                return False
        self.close_source()
        for fd in self.readers:
            os.close(fd)
        self.readers = {}
        os.waitpid(self.pid, os.WNOHANG)
        return True


def become(ends, text):
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for fd, end in enumerate((ends[0][0], ends[1][1], ends[2][1])):
            os.dup2(end, fd)
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die when the carrier does
        except (OSError, AttributeError):
            pass
        environ = dict((name, value) for name, value in os.environ.items() if not name.startswith(LAUNCHERS))
        try:
            os.chdir(environ.get("HOME", "/"))
        except OSError:
            os.chdir("/")
        os.execve("/bin/sh", ["/bin/sh", "-c", text], environ)
    except BaseException as error:
        os.write(2, ("%s\n" % error).encode("ascii", "replace"))
    os._exit(127)


class Carrier:
    def __init__(self):
        self.name = ""
        for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
            self.name = self.name or os.environ.get(name, "")
        self.mine = (b"* ", self.name.encode("ascii", "replace") + b" ")
        self.voice, self.commands = Voice(), {}
        self.line, self.bases = bytearray(), {}
        self.bell, hammer = os.pipe()
        for fd in (0, 1, self.bell, hammer):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self.quit)
        signal.set_wakeup_fd(hammer)
        self.beat = 0
        self.heard = time.monotonic()

    def hello(self):
        names = [os.environ.get("SLURMD_NODENAME", ""), os.uname()[1]]
        self.voice.say(b"h", 0, json.dumps({"task": self.name, "names": names}).encode("ascii"))

    def go(self):
        self.hello()
        poll = select.poll()
        while True:
            watched = self.register(poll)
            for fd, _ in poll.poll(100 if any(one.deadline for one in self.commands.values()) else 1000):
                if fd == 0:
                    self.listen()
                elif fd == self.bell:
                    os.read(fd, 4096)
                elif fd in watched:
                    command = watched[fd]
                    command.push() if fd == command.source else command.pull(fd, self.voice)
            for fd in list(watched) + [1]:
                try:
                    poll.unregister(fd)
                except KeyError:
                    pass
            self.tend(time.time())

    def register(self, poll):
        poll.register(0, select.POLLIN)
        poll.register(self.bell, select.POLLIN)
        watched = {}
        if self.voice.queue:
            poll.register(1, select.POLLOUT)
        for command in self.commands.values():
            if command.unheard < WINDOW and len(self.voice.queue) < FULL:
                for fd in command.readers:
                    watched[fd] = command
                    poll.register(fd, select.POLLIN)
            if command.feed and command.source is not None:
                watched[command.source] = command
                poll.register(command.source, select.POLLOUT)
        return watched

    def tend(self, now):
        for command in list(self.commands.values()):
            if command.taken >= WINDOW // 4 or (command.taken and not command.feed):
                self.voice.say(b"t", command.number, b"%d" % command.taken)
                command.taken = 0
            command.look(self.voice)
            if command.over(now):
                del self.commands[command.number]
        if now > self.beat + BEAT or now < self.beat:
            self.beat = now
            self.voice.say(b"b")
        if time.monotonic() > self.heard + DEAF:
            self.quit()
        try:
            self.voice.push()
        except OSError:
            self.quit()

    def listen(self):
        try:
            piece = os.read(0, 65536)
        except BlockingIOError:
            return
        if not piece:
            self.quit()
        self.heard = time.monotonic()
        self.line += piece
        if b"\n" in piece:
            *lines, rest = bytes(self.line).split(b"\n")
            self.line = bytearray(rest)
            for line in lines:
                if line.startswith(self.mine):
                    order = json.loads(line.partition(b" ")[2].decode("ascii"))
                    getattr(self, "do_" + order[0])(*order[1:])

    def do_beat(self):
        pass

    def do_base(self, number, text):
        self.bases[number] = unpack(text)
        self.bases.pop(number - BASES, None)

    def do_start(self, number, text):
        try:
            self.commands[number] = Command(number, text)
        except OSError as error:
            self.voice.say(b"f", number, str(error).encode("utf-8", "replace"))

    def do_data(self, number, text):
        self.feed(number, unpack(text))

    def do_like(self, number, base, prefix, suffix, text):
        model = self.bases[base]
        self.feed(number, model[:prefix] + unpack(text) + model[len(model) - suffix :])

    def feed(self, number, data):
        command = self.commands.get(number)
        if command is not None:
            if command.source is None or command.shut:
                command.taken += len(data)
            else:
                command.feed += data
                command.push()

    def do_shut(self, number):
        command = self.commands.get(number)
        if command is not None:
            command.shut = True
            command.push()

    def do_heard(self, number, count):
        command = self.commands.get(number)
        if command is not None:
            command.unheard -= count

    def do_end(self, number):
        command = self.commands.get(number)
        if command is not None:
            command.end()

    def quit(self, *_):
        """Nobody is there any more."""
        for command in self.commands.values():
            command.end()
        deadline = time.time() + 2 * GRACE
        while self.commands and time.time() < deadline:
            for command in list(self.commands.values()):
                if command.over(time.time()):
                    del self.commands[command.number]
            time.sleep(0.005)
        for command in self.commands.values():
            command.signal(signal.SIGKILL)
        os._exit(0)  # anything else has some launchers end the others too


def unpack(text):
    """Bytes that were sent as they are, or as ``z`` and their compressed form."""
    data = base64.b64decode(text[1:])
    return zlib.decompress(data) if text[0] == "z" else data


def main():
    try:
        Carrier().go()
    except Exception as error:
        sys.stderr.write("doctor-carrier: %s: %s\n" % (type(error).__name__, error))
        sys.stderr.flush()
        os._exit(0)
