"""The collector: the one program that runs on a host. Standard library only, Python 3.6 and later, ASCII.

It comes over stdin, is never written to disk, and prints one framed JSON record. It starts what the request asks for,
each command in a session of its own that is ended whole: at its timeout, when it says too much, when it leaves
children behind, and when stdin closes, which means that the controller is gone.

A request: {"marker", "seconds", "given": {...}, "boot", "parts": [{"prefix": [...], "probes": {id: probe}}]}.
A part with a prefix (`sudo -n`, `docker exec -i NAME`) is answered by a second collector started behind it.
"""

import glob
import json
import os
import select
import signal
import sys
import time

TOOL_DIRECTORIES = (
    "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin",
    "/usr/local/Ascend/driver/tools", "/usr/local/dcmi",
)  # fmt: skip
DRIVER_LIBRARIES = "/usr/local/Ascend/driver/lib64"
AT_ONCE = 8
PART_LIMIT = 4 << 20
GRACE = 0.25  # seconds for output to end after the command itself has


class Job:
    """One command, question or nested collector, from its start to its output."""

    def __init__(self, name, key, probe, argv=None, feed=b""):
        self.name, self.key, self.probe, self.argv, self.feed = name, key, probe, argv, feed
        self.lane = probe.get("lane", "")
        self.limit = probe.get("limit", 65536)
        self.kept = {}
        self.pid = self.source = None
        self.code = self.ended_at = None
        self.output = {}

    def start(self, given, environ):
        self.began = time.time()
        self.deadline = self.began + self.probe.get("timeout", 10)
        ends = [os.pipe() for _ in range(3)]
        self.pid = os.fork()
        if self.pid == 0:
            self.become(ends, given, environ)
        for mine in (ends[0][0], ends[1][1], ends[2][1]):
            os.close(mine)
        self.source, self.readers = ends[0][1], {ends[1][0]: "out", ends[2][0]: "err"}
        os.set_blocking(self.source, False)
        self.kept = {"out": bytearray(), "err": bytearray()}
        if not self.feed:
            self.close_source()

    def become(self, ends, given, environ):
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            for fd, end in enumerate((ends[0][0], ends[1][1], ends[2][1])):
                os.dup2(end, fd)
            os.chdir("/")
            if self.argv:
                os.execvpe(self.argv[0], self.argv, environ)
            os.environ.update(environ)
            space = {}
            exec(self.probe["text"], space)
            answer = json.dumps(space[self.probe["name"]](dict(given, asked=self.name)))
            with os.fdopen(1, "w") as out:
                out.write(answer)
            os._exit(0)
        except BaseException as error:
            os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("ascii", "replace"))
        os._exit(127 if self.argv else 1)

    def close_source(self):
        if self.source is not None:
            os.close(self.source)
            self.source = None

    def push(self):
        """Feeds what fits. The pipe stays open afterwards: a nested collector takes its end for ours."""
        try:
            while self.feed:
                self.feed = self.feed[os.write(self.source, self.feed[:65536]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.feed = b""
            self.close_source()

    def pull(self, fd):
        stream = self.kept[self.readers[fd]]
        piece = os.read(fd, 65536)
        if not piece:
            del self.readers[fd]
            os.close(fd)
        room = self.limit - len(stream)
        stream.extend(piece[:room])
        if len(piece) > room:
            self.output["cut"] = True
            self.end()

    def end(self):
        """Kills the whole process group; a part behind `sudo` ends itself when its stdin closes."""
        self.close_source()
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def step(self, now):
        """True when the job is over and its output complete."""
        if self.code is None:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                if now < self.deadline or self.output.get("ended"):
                    # A process that cannot be killed (sudo, or stuck in the kernel) is given up, not waited for.
                    return now > self.deadline + 2 and self.finish()
                self.output["ended"] = "timeout"
                self.end()
                return False
            self.ended_at = now
            if not self.readers:
                self.end()
            self.code = 0
        if self.readers and now < self.ended_at + GRACE:
            return False
        self.end()  # before the pid is free: no other group can have its number yet
        status = os.waitpid(self.pid, 0)[1]
        self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.finish()

    def finish(self):
        for fd in self.readers:
            os.close(fd)
        self.readers = {}
        self.close_source()
        self.output["seconds"] = round(time.time() - self.began, 3)
        if self.code and "ended" not in self.output:
            self.output["code"] = self.code
        for stream, data in self.kept.items():
            if data:
                self.output[stream] = bytes(data).decode("utf-8", "replace")
        return True


class Collector:
    def __init__(self, source, request):
        self.source, self.request = source, request
        self.given = request.get("given", {})
        self.outputs = {}
        self.waiting, self.running = [], []
        self.bell = listen_for_children()
        self.environ = environment(self.given)
        self.deadline = time.time() + request["seconds"]

    def load(self):
        for name in self.request.get("modules", ()):
            try:
                __import__(name)
            except ImportError:  # the question that wants it will say so
                pass

    def plan(self):
        for part in self.request["parts"]:
            if part["prefix"]:
                self.waiting.insert(0, self.nested(part))
                continue
            for name, probe in part["probes"].items():
                self.outputs[name] = {}
                getattr(self, "plan_" + probe["kind"])(name, probe)

    def plan_read(self, name, probe):
        for pattern in probe["paths"]:
            paths = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
            for path in paths:
                self.outputs[name][path] = read_file(path, probe.get("limit", 65536))

    def plan_ask(self, name, probe):
        self.waiting.append(Job(name, "", probe))

    def plan_run(self, name, probe):
        missing = lacks(probe.get("requires"), self.environ["PATH"])
        if missing:
            self.outputs[name][""] = {"ended": "absent", "err": missing}
            return
        keys = [""]
        if probe.get("each"):
            keys = numbers(probe["each"])
            if not keys:
                self.outputs[name][""] = {"ended": "absent", "err": "no " + probe["each"]}
        for key in keys:
            self.waiting.append(Job(name, key, probe, ["/bin/sh", "-c", probe["text"], "sh", key]))

    def nested(self, part):
        inner = dict(self.request, parts=[{"prefix": [], "probes": part["probes"]}])
        inner["seconds"] = max(1, self.request["seconds"] - 1)
        feed = json.dumps(inner).encode("ascii")
        boot = self.request["boot"].replace("REQUEST", str(len(feed)))
        probe = {"timeout": self.request["seconds"], "limit": PART_LIMIT}
        return Job("", part, probe, part["prefix"] + ["sh", "-c", boot], self.source + feed)

    def go(self):
        """Runs all jobs."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self.bell, select.POLLIN)
        while self.waiting or self.running:
            self.fill()
            if not self.wait(poll):
                self.quit()
            now = time.time()
            if now > self.deadline:
                self.give_up()
            for job in [job for job in self.running if job.step(now)]:
                self.running.remove(job)
                self.keep(job)

    def quit(self, *_):
        """Nobody waits for the answer any more."""
        for job in self.running:
            job.end()
        os._exit(3)

    def fill(self):
        lanes = set(job.lane for job in self.running)
        for job in list(self.waiting):
            if len(self.running) >= AT_ONCE:
                return
            if job.lane and job.lane in lanes:
                continue
            lanes.add(job.lane)
            self.waiting.remove(job)
            try:
                job.start(self.given, self.environ)
                self.running.append(job)
            except OSError as error:
                job.output = {"ended": "error", "err": str(error)}
                self.keep(job)

    def wait(self, poll):
        watched = {}
        for job in self.running:
            for fd in job.readers:
                watched[fd] = job
                poll.register(fd, select.POLLIN)
            if job.feed and job.source is not None:
                watched[job.source] = job
                poll.register(job.source, select.POLLOUT)
        alive = True
        for fd, _ in poll.poll(200):
            if fd == 0:
                alive = bool(os.read(0, 4096))
            elif fd == self.bell:
                os.read(fd, 4096)
            elif fd == watched[fd].source:
                watched[fd].push()
            else:
                watched[fd].pull(fd)
        for fd in watched:
            poll.unregister(fd)
        return alive

    def give_up(self):
        for job in self.running:
            job.deadline = min(job.deadline, 0)
        for job in self.waiting:
            job.output = {"ended": "timeout", "seconds": self.request["seconds"]}
            self.keep(job)
        self.waiting = []

    def spare(self, job):
        """A device whose tool hung once is not waited for again: the others need the time."""
        for other in [other for other in self.waiting if (other.lane, other.key) == (job.lane, job.key)]:
            self.waiting.remove(other)
            other.output = {"ended": "error", "err": "not tried: an earlier command to it did not answer"}
            self.keep(other)

    def keep(self, job):
        if job.lane and job.key and job.output.get("ended") == "timeout":
            self.spare(job)
        if isinstance(job.key, dict):
            self.outputs.update(unframe(job, self.request["marker"]))
        else:
            self.outputs[job.name][job.key] = job.output


def unframe(job, marker):
    """The outputs of a nested collector, or its failure for each of its probes."""
    said = job.output.get("out", "")
    before, found, rest = said.partition("\n" + marker + "\n")
    record, closed, _ = rest.partition("\n" + marker + " end\n")
    if found and closed:
        return json.loads(record)["outputs"]
    words = (job.output.get("err", "").strip() or before.strip()).splitlines()
    prefix = " ".join(job.argv[: len(job.argv) - 3])
    why = words[-1][:300] if words else "ended with status %s" % job.output.get("code", 0)
    if job.output.get("ended") == "timeout":
        why = "no answer in time"
    error = {"ended": "error", "err": "%s: %s" % (prefix, why)}
    return dict((name, {"": error}) for name in job.key["probes"])


def listen_for_children():
    """A file descriptor that becomes readable whenever a child ends."""
    bell, hammer = os.pipe()
    os.set_blocking(hammer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(hammer)
    return bell


def environment(given):
    environ = dict(os.environ, LC_ALL="C")
    path = environ.get("PATH", "").split(":")
    environ["PATH"] = ":".join(path + [d for d in TOOL_DIRECTORIES if d not in path])
    if os.path.isdir(DRIVER_LIBRARIES):
        parts = [environ.get("LD_LIBRARY_PATH", ""), DRIVER_LIBRARIES]
        parts += [DRIVER_LIBRARIES + "/driver", DRIVER_LIBRARIES + "/common"]
        environ["LD_LIBRARY_PATH"] = ":".join(part for part in parts if part)
    for name, value in given.items():
        if isinstance(value, (str, int)):
            environ["DOCTOR_" + name.upper()] = str(value)
    return environ


def lacks(tool, path):
    if not tool:
        return ""
    for directory in path.split(":"):
        if directory and os.access(os.path.join(directory, tool), os.X_OK):
            return ""
    return tool + " is not installed"


def numbers(pattern):
    """The numbers that end the names matched by a glob, in order: /dev/davinci10 gives 10."""
    found = []
    for path in glob.glob(pattern):
        digits = path[len(path.rstrip("0123456789")) :]
        if digits:
            found.append(int(digits))
    return [str(number) for number in sorted(found)]


def read_file(path, limit):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return {"ended": "absent", "err": path + " does not exist"}
    except OSError as error:
        return {"ended": "error", "err": error.strerror}
    data = b""
    try:
        while len(data) <= limit:
            piece = os.read(fd, limit + 1 - len(data))
            if not piece:
                break
            data += piece
    except OSError as error:
        return {"ended": "error", "err": error.strerror}
    finally:
        os.close(fd)
    output = {"out": data[:limit].decode("utf-8", "replace")}
    if len(data) > limit:
        output["cut"] = True
    return output


def main(source, request):
    began = time.time()
    request = json.loads(request.decode("ascii"))
    collector = Collector(source, request)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, collector.quit)
    collector.load()
    collector.plan()
    collector.go()
    record = {
        "outputs": collector.outputs,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "uid": os.geteuid(),
        "name": os.uname()[1],
        "began": began,
    }
    marker = request["marker"]
    head = "\n%s\n" % marker
    text = json.dumps(record)[:-1]
    # One write for the whole answer: every small one is a packet and two context switches.
    answer = '%s%s, "ended": %.6f}\n%s end\n' % (head, text, time.time(), marker)
    answer = answer.encode("ascii")
    while answer:
        answer = answer[os.write(1, answer) :]
    os._exit(0)
