"""The agent: the one program of a smoke run that watches the ranks of a host. Standard library, Python 3.6, ASCII.

It comes over stdin and is never written to disk. It starts the job's interpreter with the worker's text, which becomes
the host's ranks, reads their black boxes from outside, and tells the controller in lines of JSON, each behind a marker
so that what a login shell prints is not taken for ours. It judges nothing.

It ends all that it started: when told to, when stdin closes (the controller is gone), when nothing comes over it any
more (the network is gone), on a signal, and after its own time limit. If it is killed itself, the kernel kills the
worker, and that one's end the ranks.
"""

import errno
import fcntl
import json
import mmap
import os
import re
import select
import shlex
import signal
import socket
import struct
import sys
import time

# The black box, as the worker writes it.
MAGIC, PAGE = 0x444F4353, 40960
HEAD = struct.Struct("<IIQ")  # magic, pid, start
NOW = struct.Struct("<QBBBBIIIiQQQ")  # stamp, state, stage, op, dtype, step, group, seq, root, numel, time, stamp
TIMES = struct.Struct("<QQQQ")  # nanoseconds of compute, network, input; calls so far
COUNT = struct.Struct("<III")  # group + 1, entered, done
CALL = struct.Struct("<IIBBBBiQII")  # group, seq, op, dtype, stage, 0, root, numel, step, 0
AT_NOW, AT_TIMES, AT_COUNTS, AT_RING = 64, 192, 256, 8192
SLOTS, RING = 512, 1024
STATES = ("start", "input", "compute", "collective", "done")
STAGES = ("start", "rendezvous", "collectives", "pairs", "training", "learning", "loader", "pace", "native", "teardown")
OPS = (
    "", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "barrier",
    "gather", "scatter",
)  # fmt: skip
DTYPES = ("", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
INPUT, COLLECTIVE = STATES.index("input"), STATES.index("collective")

LOOK = 0.02  # seconds between two looks at the boxes
SEND = 0.05  # seconds between two lines about them, at least
BEAT = 0.2  # and at most
STUCK = 0.1  # a rank that has not moved for so long is looked at through /proc
WAITS = 0.4  # a rank that has been in one collective for so long has its sockets looked at
TAIL = 8192  # bytes kept of what a rank prints
PATIENCE = 15.0  # seconds without a word of the controller, which says something every other second
BACKLOG = 4 << 20  # bytes that may wait for the controller before looks are skipped
BOOT = "import gc,sys;gc.disable();exec(compile(sys.stdin.buffer.read(int(sys.argv[1])),'worker.py','exec'));main()"


# ---- what /proc tells


def read(path, limit=65536):
    """A small file's text; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(fd, limit).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def read_whole(path, limit):
    """Like `read`, for the tables of /proc that come in pieces."""
    pieces = []
    try:
        with open(path, "rb", 0) as file:
            while limit > 0:
                piece = file.read(min(limit, 1 << 16))
                if not piece:
                    break
                pieces.append(piece)
                limit -= len(piece)
    except OSError:
        pass
    return b"".join(pieces).decode("ascii", "replace")


def status(pid):
    """State letter, parent and session of a process; None when there is none."""
    text = read("/proc/%d/stat" % pid)
    fields = text[text.rfind(")") + 2 :].split()
    return (fields[0], int(fields[1]), int(fields[3])) if len(fields) > 4 else None


def descends(pid):
    """Whether a process comes from this one. A number out of another PID namespace would be a stranger's here."""
    for _ in range(50):
        seen = status(pid) if pid > 1 else None
        if not seen:
            return False
        if seen[1] == os.getpid():
            return True
        pid = seen[1]
    return False


def processes():
    """pid -> (state, parent, session) of all that can be seen."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = status(int(name))
            if seen:
                found[int(name)] = seen
    return found


def schedule(pid, threads):
    """Seconds that the main thread ran, that it waited for a CPU, and, if asked, that all threads waited together."""
    fields = read("/proc/%d/task/%d/schedstat" % (pid, pid)).split()
    if len(fields) < 2:
        return None
    ran, delay = int(fields[0]) / 1e9, int(fields[1]) / 1e9
    everyone = delay
    if threads:
        try:
            names = os.listdir("/proc/%d/task" % pid)
        except OSError:
            names = ()
        for name in names:
            if name != str(pid):
                more = read("/proc/%d/task/%s/schedstat" % (pid, name)).split()
                everyone += int(more[1]) / 1e9 if len(more) > 1 else 0.0
    return ran, delay, everyone


def children(pid):
    """Processes that the main thread has forked."""
    path = "/proc/%d/task/%d/children" % (pid, pid)
    if os.path.exists(path):
        return [int(word) for word in read(path).split()]
    return [child for child, (_, parent, _) in processes().items() if parent == pid]


def cgroups(pid):
    """controller -> folder: "freezer", "memory", or "" for the unified tree."""
    found = {}
    for line in read("/proc/%d/cgroup" % pid).splitlines():
        _, names, path = (line.split(":", 2) + ["", ""])[:3]
        for name in names.split(","):
            if name in ("memory", "freezer"):
                found[name] = "/sys/fs/cgroup/%s%s" % (name, path)
        if not names:
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if os.path.isdir(root + path) and os.path.exists(root + "/cgroup.controllers"):
                    found[""] = root + path
    return found


def oom_kills(folders):
    """How often the kernel killed for memory in these control groups."""
    total = 0
    for name, file in (("", "memory.events"), ("memory", "memory.oom_control")):
        if name in folders:
            match = re.search(r"^oom_kill (\d+)", read(folders[name] + "/" + file), re.M)
            total += int(match.group(1)) if match else 0
    return total


def frozen(pid, letter):
    """Whether a cgroup freezer holds the process."""
    if letter not in "DS":
        return False
    where = read("/proc/%d/wchan" % pid)
    if "refrigerator" in where or "freezer" in where:
        return True
    folders = cgroups(pid)
    if "freezer" in folders and read(folders["freezer"] + "/freezer.state").strip() == "FROZEN":
        return True
    return bool("" in folders and re.search(r"^frozen 1$", read(folders[""] + "/cgroup.events"), re.M))


def can_dump(pid):
    """Whether SIGUSR1 has a handler there: without one it would kill."""
    match = re.search(r"^SigCgt:\s*([0-9a-f]+)", read("/proc/%d/status" % pid), re.M)
    return bool(match and int(match.group(1), 16) >> (signal.SIGUSR1 - 1) & 1)


def address(word):
    """The IP address and port of a word in /proc/net/tcp."""
    digits, port = word.split(":")
    data = b"".join(struct.pack("=I", int(digits[i : i + 8], 16)) for i in range(0, len(digits), 8))
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data), int(port, 16)


def sockets_of(pids):
    """[pid, established, local, peer, unacknowledged bytes, retransmits] of the TCP sockets of these processes."""
    owners, found = {}, []
    for pid in pids:
        try:
            names = os.listdir("/proc/%d/fd" % pid)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink("/proc/%d/fd/%s" % (pid, name))
            except OSError:
                continue
            if target.startswith("socket:["):
                owners[target[8:-1]] = pid
    for table in ("tcp", "tcp6") if pids else ():
        for line in read_whole("/proc/%d/net/%s" % (pids[0], table), 8 << 20).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9] in owners and fields[3] in ("01", "0A"):
                unacked = int(fields[4].split(":")[0], 16)
                ends = address(fields[1]), address(fields[2])
                found.append((owners[fields[9]], fields[3] == "01", ends[0], ends[1], unacked, int(fields[6], 16)))
    return found


def addresses():
    """interface -> its addresses."""
    found = {}
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _, name in socket.if_nameindex():
        try:
            answer = fcntl.ioctl(asker.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            found[name] = [socket.inet_ntoa(answer[20:24])]
        except OSError:
            found[name] = []
    asker.close()
    for line in read("/proc/net/if_inet6").splitlines():
        fields = line.split()
        if len(fields) == 6 and fields[5] in found:
            found[fields[5]].append(socket.inet_ntop(socket.AF_INET6, bytes(bytearray.fromhex(fields[0]))))
    return found


def devices():
    """kind -> numbers of the accelerators that this host shows."""
    found = {}
    for kind, prefix in (("npu", "davinci"), ("gpu", "nvidia")):
        names = (re.match(prefix + r"(\d+)$", name) for name in os.listdir("/dev"))
        found[kind] = sorted(int(match.group(1)) for match in names if match)
    return found


def interface_to(target, port):
    """The interface whose address this host would speak to the target from; empty when that cannot be told."""
    try:
        family, _, _, _, place = socket.getaddrinfo(target, port or 1, 0, socket.SOCK_DGRAM)[0]
        asker = socket.socket(family, socket.SOCK_DGRAM)
        try:
            asker.connect(place)
            mine = asker.getsockname()[0].split("%")[0]
        finally:
            asker.close()
    except OSError:
        return ""
    return interface_with([mine])


def interface_with(wanted):
    """The interface that has one of these addresses; empty when none has."""
    return next((name for name, known in sorted(addresses().items()) if set(known) & set(wanted)), "")


# ---- one rank, seen from outside


class Seen:
    """A rank's black box and what /proc says of its process."""

    def __init__(self, rank, box, place):
        self.rank, self.box, self.place = rank, box, place
        self.pid = self.stamp = self.calls = 0
        self.now = None
        self.entered = {}
        self.fresh = []  # calls entered since the last line
        self.base = self.base_stamp = None
        self.unseen = 0.0
        self.spent, self.moved = None, 0.0  # what it ran and waited, and when that last changed
        self.workers, self.held = {}, 0.0  # delay of each loader worker at the stamp, and the longest since
        self.told = (-1, "")
        self.letter, self.waits_for = "R", ""
        self.looked = 0.0
        self.effective = self.cpu = 0.0
        self.folders, self.kills, self.grouped = {}, 0, 0.0
        self.dead = self.error = ""
        self.ended = self.secondary = self.oom = False
        self.tail = b""

    def read_box(self):
        """Takes over what has changed in the box since the last time.

        The worker may be in the middle of writing, which begins with zeros: what is not of one piece, or would be
        older than what was seen, is left for the next look.
        """
        if not self.pid and not self.ended:
            magic, pid, _ = HEAD.unpack_from(self.box, self.place)
            if magic != MAGIC:
                return
            self.pid = pid if descends(pid) else 0
        for _ in range(5):
            now = NOW.unpack_from(self.box, self.place + AT_NOW)
            if now[0] == now[11] and now == NOW.unpack_from(self.box, self.place + AT_NOW):
                break
        else:
            return
        if now[0] <= self.stamp:
            return
        self.stamp, self.now = now[0], now
        self.effective = self.cpu = 0.0
        if self.letter != "X":
            self.letter, self.waits_for = "R", ""
        count = max(self.calls, TIMES.unpack_from(self.box, self.place + AT_TIMES)[3])
        if count - self.calls > RING:
            self.read_counts()
        for number in range(max(self.calls, count - RING), count):
            self.take(CALL.unpack_from(self.box, self.place + AT_RING + number % RING * CALL.size))
        self.calls = count

    def take(self, call):
        group, seq, op, dtype, stage, _, root, numel, step, _ = call
        self.entered[group] = seq
        op, dtype, stage = word(OPS, op), word(DTYPES, dtype), word(STAGES, stage)
        self.fresh.append([group, seq, op, dtype, numel, root, step, stage])

    def read_counts(self):
        """More calls than the ring holds: their groups' counters at least."""
        for slot in range(SLOTS):
            group, entered, _ = COUNT.unpack_from(self.box, self.place + AT_COUNTS + slot * COUNT.size)
            if group:
                self.entered[group - 1] = max(entered, self.entered.get(group - 1, 0))

    def age(self, clock):
        return max(0.0, clock - self.now[10] / 1e9)

    def look(self, clock):
        """What /proc says of a rank that does not move; at most every `SEND` seconds."""
        if self.ended or not self.now or not self.pid:
            return
        if clock - self.grouped > 1.0:
            self.grouped = clock
            self.folders = cgroups(self.pid) or self.folders
            self.kills = oom_kills(self.folders)
        age = self.age(clock)
        waiting = self.now[1] == COLLECTIVE
        if age < STUCK / 2 or clock - self.looked < SEND:
            self.effective = age if age < STUCK / 2 else self.effective
            return
        self.looked = clock
        seen = status(self.pid)
        self.letter = seen[0] if seen and seen[0] != "Z" else "X"
        if age > STUCK and frozen(self.pid, self.letter):
            self.letter = "F"
        self.waits_for = read("/proc/%d/wchan" % self.pid, 64).strip("0")
        spent = schedule(self.pid, waiting)
        anew, self.base_stamp = self.base_stamp != self.stamp, self.stamp
        if anew:
            # Of the time before this first look nobody knows how long the rank waited for a CPU.
            self.base, self.unseen = spent, max(0.0, age - STUCK)
        if not spent or not self.base:
            # The kernel does not tell who waited for a CPU: only half of the time is held against the rank.
            self.effective = age / 2
            return
        self.cpu = spent[0] - self.base[0]
        delay = spent[2] - self.base[2] if waiting else spent[1] - self.base[1]
        if self.now[1] == INPUT:
            delay += self.held_up(anew)
        if anew or spent != self.spent or self.letter != "R":
            self.spent, self.moved = spent, clock
        # A wait for a CPU is booked when it ends; one that goes on is a rank that could run and does not.
        self.effective = max(0.0, age - self.unseen - delay - (clock - self.moved))

    def held_up(self, anew):
        """Seconds since the stamp that a loader worker waited for a CPU, of the one that waited longest."""
        found = dict((pid, schedule(pid, False)) for pid in children(self.pid))
        delays = dict((pid, spent[1]) for pid, spent in found.items() if spent)
        if anew:
            self.workers, self.held = delays, 0.0
        self.held = max([self.held] + [delay - self.workers.get(pid, 0.0) for pid, delay in delays.items()])
        return self.held

    def snapshot(self, clock):
        """What is new, as the controller's Snapshot; None when nothing is. Defaults are left out."""
        if not self.now and not self.ended:
            return None
        said = {"rank": self.rank, "stamp": self.stamp, "state": "start", "stage": "start"}
        age = 0.0
        if self.now:
            _, state, stage, op, dtype, step, group, seq, root, numel, _, _ = self.now
            age = self.age(clock)
            said.update(state=word(STATES, state), stage=word(STAGES, stage), step=step)
            if state == COLLECTIVE:
                said.update(group=group, seq=seq, op=word(OPS, op), dtype=word(DTYPES, dtype), numel=numel, root=root)
        news = (self.stamp, self.dead or str(self.ended))
        if news == self.told and not self.fresh and (age < STUCK or self.ended):
            return None
        self.told = news
        said.update(age=round(age, 4), effective=round(min(self.effective, age), 4))
        for name in ("cpu", "waits_for", "dead", "error", "secondary", "oom"):
            value = getattr(self, name)
            if value:
                said[name] = round(value, 4) if name == "cpu" else value
        if self.letter != "R":
            said["process"] = self.letter
        if self.fresh:
            said["calls"], self.fresh = self.fresh, []
            said["entered"] = dict((str(call[0]), self.entered[call[0]]) for call in said["calls"])
        return said

    def end(self, code, log):
        """The rank's process is gone, with this wait status."""
        self.read_box()
        self.ended, self.letter = True, "X"
        if os.WIFSIGNALED(code):
            self.dead = "signal %d" % os.WTERMSIG(code)
            if os.WTERMSIG(code) == signal.SIGKILL:
                self.oom = bool(log) or oom_kills(self.folders) > self.kills
        else:
            self.dead = "exit status %d" % os.WEXITSTATUS(code)


def word(table, code):
    return table[code] if code < len(table) else "?"


class KernelLog:
    """The kernel's messages from now on, where we may read them."""

    def __init__(self):
        self.lines = []
        try:
            self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.file, 0, os.SEEK_END)
        except OSError:
            self.file = None

    def killed(self, pid):
        """The line that says that this process was killed for memory, or nothing."""
        for _ in range(10000 if self.file is not None else 0):
            try:
                self.lines.append(os.read(self.file, 8192).decode("ascii", "replace"))
            except OSError as error:
                if error.errno != errno.EPIPE:  # EPIPE: lines were lost, the next one is there
                    break
        del self.lines[:-2000]
        for line in self.lines:
            if re.search(r"\bKilled process %d\b" % pid, line):
                return line.partition(";")[2].splitlines()[0][:300]
        return ""


# ---- the agent


class Agent:
    def __init__(self, request):
        self.marker = request["marker"].encode("ascii") + b" "
        self.deadline = time.monotonic() + request.get("seconds", 3600)
        self.spoken_to = time.monotonic()
        self.heard, self.waiting = b"", bytearray()
        self.store = None
        self.plan = {}
        self.ranks = {}  # number -> Seen
        self.known = set()  # pids of all that has ended
        self.sessions = set()  # that we began
        self.roots = {}  # pid of what we started -> its ranks, None for the one process of them all
        self.events = None
        self.partial = b""
        self.feeds = {}  # fd -> what is still to be written to an interpreter's stdin
        self.errors = {}  # fd -> rank, -1 for the process that they all come from
        self.stacks = {}  # rank -> fd
        self.tail = b""
        self.log = None
        self.late = self.sent = self.looked = 0.0
        self.evidence, self.surveyed = [], 0.0
        self.over = False
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.writing = False

    # -- lines to the controller

    def say(self, **line):
        self.say_raw(json.dumps(line, separators=(",", ":")).encode("ascii"))

    def say_raw(self, data):
        self.waiting += self.marker + data + b"\n"
        if len(self.waiting) > 16 * BACKLOG:
            self.quit()
        self.push()

    def push(self):
        try:
            while self.waiting:
                del self.waiting[: os.write(1, bytes(self.waiting[:65536]))]
        except BlockingIOError:
            pass
        except OSError:
            self.quit()
        if bool(self.waiting) != self.writing:
            self.writing = bool(self.waiting)
            if self.writing:
                self.poll.register(1, select.POLLOUT)
            else:
                self.poll.unregister(1)

    # -- the loop

    def go(self):
        while True:
            running = bool(self.ranks)
            ready = self.poll.poll(max(0, self.looked + LOOK - time.monotonic()) * 1000 if running else 100)
            for fd, _ in ready:
                if fd == 0:
                    self.listen()
                elif fd == 1:
                    self.push()
                elif fd == self.events:
                    self.hear()
                elif fd in self.feeds:
                    self.feed(fd)
                elif fd in self.errors:
                    self.keep(fd)
            clock = time.monotonic()
            if clock > min(self.deadline, self.spoken_to + (PATIENCE if running else 4 * PATIENCE)):
                self.quit()
            if running and clock >= self.looked + LOOK:
                self.watch(clock)

    def listen(self):
        piece = os.read(0, 65536)
        if not piece:
            self.quit()
        self.spoken_to = time.monotonic()
        self.heard += piece
        while b"\n" in self.heard:
            line, self.heard = self.heard.split(b"\n", 1)
            try:
                order = json.loads(line.decode("ascii"))
                getattr(self, "do_" + order.pop("do"))(**order)
            except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
                self.say(fault="%r cannot be done: %s: %s" % (line[:40], type(error).__name__, error))

    def hear(self):
        """Events of the ranks: passed on as they are, with what we know of an end."""
        try:
            piece = os.read(self.events, 1 << 20)
        except BlockingIOError:
            return
        if not piece:
            self.drop(self.events)
            self.events = None
        self.partial += piece
        lines = self.partial.split(b"\n")
        self.partial = lines.pop()[-65536:]
        for line in lines:
            self.pass_on(line)

    def pass_on(self, line):
        try:
            event = json.loads(line.decode("ascii"))
            kind, rank = event["ev"], event["rank"]
        except (ValueError, TypeError, KeyError):
            self.say(fault="a rank said what is no event: %r" % line[:100])
            return
        if kind == "exit":
            self.ended(rank, event["status"])
            return
        if kind == "error" and rank in self.ranks:
            self.ranks[rank].error = str(event.get("text", ""))[:600]
            self.ranks[rank].secondary = bool(event.get("secondary"))
        self.say_raw(b'{"event":' + line + b"}")

    def keep(self, fd):
        """The end of what a rank prints is kept for the case that it dies."""
        try:
            piece = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not piece:
            self.errors.pop(fd)
            self.drop(fd)
            return
        holder = self.ranks.get(self.errors[fd], self)
        holder.tail = (holder.tail + piece)[-TAIL:]

    def drop(self, fd):
        self.poll.unregister(fd)
        os.close(fd)

    def ended(self, rank, code):
        """A rank's process, or the one that they come from (-1), has ended with this wait status."""
        for fd in [fd for fd, owner in self.errors.items() if owner == rank]:
            self.keep(fd)
        seen = self.ranks.get(rank, self)
        said = {"rank": rank, "ev": "exit", "status": code}
        if seen is not self:
            log = self.log.killed(seen.pid) if seen.pid else ""
            seen.end(code, log)
            said.update(dict((name, value) for name, value in (("oom", seen.oom), ("log", log)) if value))
        if code and seen.tail:
            said["tail"] = seen.tail[-2000:].decode("utf-8", "replace")
        self.say(event=said)

    def watch(self, clock):
        gap = clock - self.looked - LOOK
        if self.looked and gap > 0.1:
            self.late = max(self.late, gap)
        self.looked = clock
        for seen in self.ranks.values():
            seen.read_box()
        self.reap()
        if clock - self.sent < SEND or len(self.waiting) > BACKLOG:
            return
        for seen in self.ranks.values():
            seen.look(clock)
        snaps = [snap for snap in (seen.snapshot(clock) for seen in self.ranks.values()) if snap]
        evidence = self.survey(clock)
        if snaps or evidence or clock - self.sent > BEAT:
            line = {"snaps": snaps, "late": round(self.late, 3)}
            if evidence:
                line["evidence"] = evidence
            self.say(**line)
            self.sent, self.late = clock, 0.0

    def survey(self, clock):
        """Sockets that send the same bytes again and again, of ranks that wait in a collective."""
        stuck = [
            seen.pid for seen in self.ranks.values()
            if seen.pid and seen.now and not seen.ended and seen.now[1] == COLLECTIVE and seen.age(clock) > WAITS
        ]  # fmt: skip
        if stuck and clock - self.surveyed > 0.15:
            self.surveyed = clock
            numbers = dict((seen.pid, rank) for rank, seen in self.ranks.items())
            self.evidence = [
                [numbers[pid], peer[0], peer[1], unacked, again]
                for pid, established, _, peer, unacked, again in sockets_of(stuck)
                if established and again >= 2 and unacked
            ]
        return self.evidence if stuck else []

    def reap(self):
        """Ends of what we started ourselves, and of orphans that came to us."""
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self.known.add(pid)
            if pid in self.roots:
                self.hear_all()
                ranks = self.roots.pop(pid)
                for rank in [-1] if ranks is None else ranks:
                    self.ended(rank, code)
            else:
                for seen in self.ranks.values():
                    if seen.pid == pid and not seen.ended:
                        self.ended(seen.rank, code)

    def hear_all(self):
        """What was said before an end comes before the end."""
        ready = True
        while self.events is not None and ready:
            quick = select.poll()
            quick.register(self.events, select.POLLIN)
            ready = any(how & select.POLLIN for _, how in quick.poll(0))
            if ready:
                self.hear()

    # -- what the controller asks for

    def do_prepare(self, listen=False, port=0):
        """Binds the port that the ranks will meet at, before anything forks."""
        problem = ""
        if listen:
            try:
                self.store = bound(port)
                port = self.store.getsockname()[1]
            except OSError as error:
                problem = "port %d: %s" % (port, error.strerror or error)
        server = os.environ.get("SSH_CONNECTION", "").split()
        self.say(
            hello={
                "host": os.uname()[1],
                "pid": os.getpid(),
                "python": "%d.%d.%d" % sys.version_info[:3],
                "cpus": len(os.sched_getaffinity(0)),
                "addresses": addresses(),
                "port": port if listen and not problem else 0,
                "port_error": problem,
                "server": server[2] if len(server) == 4 else "",
                "devices": devices(),
                "uid": os.getuid(),
                "now": time.time(),
            }
        )

    def do_start(self, plan, mine, worker, master, python="", hosts_store=False, start="fork", seconds=0):
        """Starts the interpreter that becomes the ranks ("fork"), or one for each of them ("exec")."""
        if seconds:
            self.deadline = time.monotonic() + seconds
        self.plan = plan
        self.log = KernelLog()
        box = anonymous("box", PAGE * len(mine))
        memory = mmap.mmap(box, PAGE * len(mine))
        self.ranks = dict((rank, Seen(rank, memory, PAGE * index)) for index, rank in enumerate(mine))
        self.stacks = dict((rank, anonymous("stacks", 0)) for rank in mine)
        orders = {
            "plan": plan, "box": box, "index": dict((rank, index) for index, rank in enumerate(mine)), "start": start,
            "master": master, "stacks": self.stacks, "agent": os.getpid(),
        }  # fmt: skip
        event_pipe = os.pipe()
        orders["events"] = event_pipe[1]
        self.events = event_pipe[0]
        widen(self.events)
        self.attend(self.events)
        pipes = dict((rank, os.pipe()) for rank in mine)
        for rank, ends in pipes.items():
            self.errors[ends[0]] = rank
            self.attend(ends[0])
        for group in [mine] if start == "fork" else [[rank] for rank in mine]:
            own = dict(orders, mine=group, errors=dict((rank, pipes[rank][1]) for rank in group))
            own["hosts_store"] = hosts_store and (start == "fork" or 0 in group)
            own["store"] = self.store.fileno() if self.store and own["hosts_store"] else -1
            self.start(own, worker.encode("utf-8"), words(python), None if start == "fork" else group)
        for fd in [event_pipe[1]] + [ends[1] for ends in pipes.values()]:
            os.close(fd)
        if self.store:
            self.store.close()

    def start(self, orders, text, argv, ranks):
        """One interpreter, with the worker's text and its orders on stdin; stdin stays open as long as we live."""
        feed, output = os.pipe(), os.pipe()
        argv = argv + ["-c", BOOT, str(len(text))]
        kept = [orders["box"], orders["events"]] + list(orders["stacks"].values()) + list(orders["errors"].values())
        kept += [orders["store"]] if orders["store"] >= 0 else []
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            become(parent, argv, environment(self.plan, orders["master"], self.marker), feed[0], output[1], kept)
        os.close(feed[0])
        os.close(output[1])
        self.errors[output[0]] = -1 if ranks is None else ranks[0]
        self.attend(output[0])
        self.roots[pid] = ranks
        self.sessions.add(pid)
        os.set_blocking(feed[1], False)
        self.feeds[feed[1]] = text + json.dumps(orders).encode("ascii") + b"\n"
        self.poll.register(feed[1], select.POLLOUT)

    def feed(self, fd):
        """The worker's text, as fast as it is read. The pipe stays open behind it: its end would mean ours."""
        try:
            while self.feeds[fd]:
                self.feeds[fd] = self.feeds[fd][os.write(fd, self.feeds[fd]) :]
        except BlockingIOError:
            return
        except OSError:  # it has ended already; its exit status and its words will tell
            pass
        self.poll.unregister(fd)

    def attend(self, fd):
        os.set_blocking(fd, False)
        self.poll.register(fd, select.POLLIN)

    def do_stay(self):
        """The controller is still there."""

    def do_stacks(self):
        """Asks every rank, and its loader workers one after the other, to write down where it is."""
        before = dict((rank, os.fstat(fd).st_size) for rank, fd in self.stacks.items())
        limit = time.monotonic() + 0.4
        for number, pids in enumerate(self.turns()):
            asked = {}
            for rank, pid in sorted(pids.items()):
                if number:
                    note = "\nloader worker %d, in %s:\n" % (pid, read("/proc/%d/wchan" % pid) or "?")
                    os.write(self.stacks[rank], note.encode("ascii", "replace"))
                if can_dump(pid):
                    asked[rank] = os.fstat(self.stacks[rank]).st_size
                    os.kill(pid, signal.SIGUSR1)
            self.settle(asked, min(limit, time.monotonic() + 0.25))
        texts = {}
        for rank, fd in self.stacks.items():
            texts[str(rank)] = os.pread(fd, 16384, before[rank]).decode("utf-8", "replace")
        self.say(stacks=texts)

    def turns(self):
        """rank -> pid: the ranks themselves, then the first of their children, the second, and so on."""
        family = {}
        for pid, (_, parent, _) in sorted(processes().items()):
            family.setdefault(parent, []).append(pid)
        alive = [seen for seen in self.ranks.values() if seen.pid and not seen.ended and seen.letter not in "TtF"]
        found = [dict((seen.rank, seen.pid) for seen in alive)]
        for turn in range(4):
            found.append(dict((s.rank, family[s.pid][turn]) for s in alive if turn < len(family.get(s.pid, ()))))
        return [pids for pids in found if pids]

    def settle(self, asked, limit):
        """Waits until all that were asked have begun to write, and no longer do."""
        last, same = None, 0
        while asked and time.monotonic() < limit and same < 2:
            time.sleep(0.008)
            sizes = dict((rank, os.fstat(self.stacks[rank]).st_size) for rank in asked)
            begun = all(sizes[rank] > size for rank, size in asked.items())
            same = same + 1 if begun and sizes == last else 0
            last = sizes

    def do_sockets(self):
        """The ranks' connections, and where they listen."""
        numbers = dict((seen.pid, rank) for rank, seen in self.ranks.items() if seen.pid and not seen.ended)
        found = sockets_of(sorted(numbers))[:4096]
        self.say(
            sockets=[[numbers[s[0]], s[3][0], s[3][1], s[4], s[5]] for s in found if s[1]],
            listening=[[numbers[s[0]], s[2][0], s[2][1]] for s in found if not s[1]],
        )

    def do_probe(self, targets, seconds=0.6):
        """Connects to all targets at once. Refused is an answer too: packets go there and come back."""
        began, poll, tries, results = time.monotonic(), select.poll(), {}, {}
        for place, target in enumerate(targets[:1024]):
            try:
                found = socket.getaddrinfo(target[0], target[1], 0, socket.SOCK_STREAM)[0]
                link = socket.socket(found[0], socket.SOCK_STREAM)
                link.setblocking(False)
                code = link.connect_ex(found[4])
            except OSError as error:
                results[place] = "name" if isinstance(error, socket.gaierror) else str(error.strerror), 0.0
                continue
            if code == errno.EINPROGRESS:
                tries[link.fileno()] = place, link
                poll.register(link.fileno(), select.POLLOUT)
            else:
                results[place] = outcome(code), time.monotonic() - began
                link.close()
        left = seconds
        while tries and left > 0:
            # However late this program is itself, it looks once more after the time is over.
            left = began + seconds - time.monotonic()
            for fd, _ in poll.poll(max(0, left) * 1000):
                place, link = tries.pop(fd)
                poll.unregister(fd)
                code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                results[place] = outcome(code), time.monotonic() - began
                link.close()
        for place, link in tries.values():
            results[place] = "dropped", time.monotonic() - began
            link.close()
        self.say(probes=[list(targets[n][:2]) + [said, round(took, 4)] for n, (said, took) in sorted(results.items())])

    def do_end(self):
        left = self.kill_all()
        self.say(bye={"left": left, "cpu": round(time.process_time(), 3)})
        os.set_blocking(1, True)
        signal.alarm(2)  # nobody listens: no reason to stay
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.push()
        os._exit(0)

    # -- the end

    def quit(self, *_):
        if self.over:
            return
        self.kill_all()
        os._exit(3)

    def kill_all(self):
        """Kills everything that came from us. Never waits for what cannot die, such as a frozen process."""
        self.over = True
        limit = time.monotonic() + 1.0
        while True:
            left = self.ours()
            for pid in left:
                for number in (signal.SIGKILL, signal.SIGCONT):
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except OSError:
                pass
            if not left or time.monotonic() > limit:
                break
            time.sleep(0.005)
        self.sweep()
        return [[pid, state, read("/proc/%d/cmdline" % pid, 200).replace("\0", " ")] for pid, state in left.items()]

    def ours(self):
        """pid -> state of what lives of our processes: all that descend from us, as orphans come to us.

        Where the kernel gives us none, what is in a session that we began and has our mark.
        """
        table, found = processes(), set([os.getpid()])
        before = 0
        while before != len(found):
            before = len(found)
            for pid, (_, parent, session) in table.items():
                if parent in found or (session in self.sessions and pid not in found and self.marked(pid)):
                    found.add(pid)
        self.known |= found
        return dict((pid, table[pid][0]) for pid in found if pid != os.getpid() and table[pid][0] not in "ZX")

    def marked(self, pid):
        mark = b"DOCTOR_SMOKE=" + self.marker.strip()
        return mark.decode("ascii") in read("/proc/%d/environ" % pid, 1 << 20).split("\0")

    def sweep(self):
        """Shared memory and semaphores that killed ranks and loader workers had no time to remove."""
        self.known.update(seen.pid for seen in self.ranks.values())
        try:
            names = os.listdir("/dev/shm")
        except OSError:
            return
        for name in names:
            match = re.match(r"(?:sem\.)?torch_(\d+)_", name)
            if match and int(match.group(1)) in self.known and not os.path.exists("/proc/" + match.group(1)):
                try:
                    os.unlink("/dev/shm/" + name)
                except OSError:
                    pass


def outcome(code):
    if code in (0, errno.ECONNREFUSED):
        return "refused" if code else "ok"
    if code in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "no-route"
    return "dropped" if code == errno.ETIMEDOUT else os.strerror(code)


def bound(port):
    """A listening socket on all addresses, of both families where the host has them."""
    try:
        server = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        place = "::"
    except OSError:
        server, place = socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0"
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((place, port))
        server.listen(1024)
    except OSError:
        server.close()
        raise
    return server


def anonymous(name, size):
    """A file without a name, inherited by what we start. Not in /dev/shm, which may be as small as 1 MB."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("doctor-" + name)
    else:
        import tempfile  # it takes as long to load as all else together

        fd, path = tempfile.mkstemp(prefix="doctor-")
        os.unlink(path)
    if size:
        os.ftruncate(fd, size)
    else:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def widen(pipe):
    """Room for a burst of events while this program waits for a CPU."""
    try:
        fcntl.fcntl(pipe, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError:
        pass


def prctl(option, value):
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # then stdin's end is the only sign
        pass


def become_reaper():
    """Ranks whose parent dies come to us, not to an init that a container may lack."""
    prctl(36, 1)


def become(parent, argv, environ, source, output, kept):
    """The child: its own session, killed with us, and nothing inherited but what it was meant to have."""
    try:
        os.setsid()
        prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for target, fd in ((0, source), (1, output), (2, output)):
            os.dup2(fd, target)
        last = 2
        for fd in sorted(kept):
            os.set_inheritable(fd, True)
            os.closerange(last + 1, fd)
            last = fd
        os.closerange(last + 1, 65536)
        os.chdir("/")
        os.execvpe(argv[0], argv, environ)
    except BaseException as error:
        os.write(2, ("%s: %s\n" % (argv[0], getattr(error, "strerror", None) or error)).encode("ascii", "replace"))
    os._exit(127)


def words(python):
    """The job's interpreter as words; without a name, the first python3 or python that is found."""
    if python:
        return shlex.split(python)
    for name in ("python3", "python"):
        for folder in os.environ.get("PATH", "").split(":") + ["/usr/local/bin", "/usr/bin"]:
            if os.access(os.path.join(folder or ".", name), os.X_OK):
                return [os.path.join(folder or ".", name)]
    return ["python3"]


def environment(plan, master, marker):
    """Ours, and what this run alone is to have: short timeouts, one thread a rank, the interface to the master."""
    environ = dict(os.environ, DOCTOR_SMOKE=marker.decode("ascii").strip(), PYTHONDONTWRITEBYTECODE="1")
    backend = plan["backend"]
    if backend == "gloo":
        environ["OMP_NUM_THREADS"] = "1"
        if os.sysconf("SC_PAGE_SIZE") == 4096:
            # Fork copies an entry for every page: the loader's workers begin and end in half the time.
            environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    name = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME", "hccl": "HCCL_SOCKET_IFNAME"}[backend]
    chosen = plan.get("interface", "")
    if not chosen and not environ.get(name):
        alone = len(set(place["host"] for place in plan["places"])) == 1
        chosen = interface_to(master[0], master[1]) if not alone else "" if backend == "hccl" else "lo"
        if chosen == "lo" and not alone:
            # The master's own name for itself is often a loopback address: nobody else would reach us there.
            chosen = interface_with(os.environ.get("SSH_CONNECTION", "").split()[2:3])
    if chosen:
        environ[name] = chosen
    if backend == "hccl":
        environ["HCCL_CONNECT_TIMEOUT"] = str(max(120, int(plan.get("timeout", 60))))
        environ["HCCL_EXEC_TIMEOUT"] = str(max(68, int(plan.get("timeout", 60))))
    return environ


def main(request):
    request = json.loads(request.decode("ascii"))
    os.set_blocking(1, False)
    agent = Agent(request)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, agent.quit)
    os.write(1, b"\n")  # behind whatever a login shell left on its last line
    if "prepare" in request:
        agent.do_prepare(**request["prepare"])
    become_reaper()
    try:
        agent.go()
    except Exception as error:
        agent.over = False
        agent.say(fault="the agent failed: %s: %s" % (type(error).__name__, error))
        agent.quit()
