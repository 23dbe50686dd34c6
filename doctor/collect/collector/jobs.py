"""Commands that the collector starts on a host."""

import os
import time

from doctor.remote.runtime.framing import split_frame
from doctor.remote.runtime.host_texts import HOST_TEXTS, filled
from doctor.remote.runtime.processes import ended, exit_code, signal_group, spawn_with_pipes
from doctor.remote.runtime.streams import BoundedOutput

GRACE = 0.25  # seconds for output to end after the command itself has
GIVE_UP = 2  # seconds after which a process that was killed, and has not ended, is not waited for


class Job:
    """One command or nested collector, from its start to its output.

    `name` is the probe's, `key` the device's number, or the part of the request that a nested collector answers.
    """

    def __init__(self, name, key, probe, argv=(), stdin_data=b""):
        self.name, self.key, self.probe, self.argv, self.stdin_data = name, key, probe, argv, stdin_data
        self.lane = probe.get("lane", "")
        if probe.get("lanes") and not isinstance(key, dict) and key.isdigit():
            self.lane += "-%d" % (int(key) % probe["lanes"])
        self.streams = {}  # "out" and "err" -> what was printed there
        self.readers = {}  # fd -> "out" or "err", until it ends
        self.pid = self.stdin_fd = None
        self.code = self.ended_at = None
        self.output = {}

    def start(self, environ):
        self.begin_with(spawn_with_pipes(self.argv, environ))
        os.set_blocking(self.stdin_fd, False)
        if not self.stdin_data:
            self.close_stdin()

    def begin_with(self, process):
        """`process`: its pid, and our ends of its stdin, stdout and stderr."""
        self.began = time.monotonic()
        self.deadline = self.began + self.probe.get("timeout", 10)
        self.pid, self.stdin_fd, out, err = process
        self.readers = {out: "out", err: "err"}
        limit = self.probe.get("limit", 65536)
        self.streams = {"out": BoundedOutput(limit), "err": BoundedOutput(limit)}

    def close_stdin(self):
        if self.stdin_fd is not None:
            os.close(self.stdin_fd)
            self.stdin_fd = None

    def push(self):
        """Writes what fits. The pipe stays open afterwards: a nested collector takes its end for ours."""
        try:
            while self.stdin_data:
                self.stdin_data = self.stdin_data[os.write(self.stdin_fd, self.stdin_data[:65536]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.stdin_data = b""
            self.close_stdin()

    def pull(self, fd):
        name = self.readers[fd]
        piece = os.read(fd, 65536)
        if not piece:
            del self.readers[fd]
            os.close(fd)
        self.take(name, piece)

    def take(self, name, piece):
        """A job that prints more than its limit is ended."""
        stream = self.streams[name]
        stream.add(piece)
        if stream.cut:
            self.output["cut"] = True
            self.end()

    def end(self):
        """Kills the whole process group; a part behind `sudo` ends itself when its stdin closes."""
        self.close_stdin()
        signal_group(self.pid)

    def step(self, now):
        """True when the job is over and its output complete."""
        if self.code is None:
            if ended(self.pid) is None:
                if now < self.deadline or self.output.get("ended"):
                    # A process that cannot be killed (sudo, or stuck in the kernel) is given up, not waited for.
                    return now > self.deadline + GIVE_UP and self.finish()
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
        self.code = exit_code(os.waitpid(self.pid, 0)[1])
        return self.finish()

    def finish(self):
        for fd in self.readers:
            os.close(fd)
        self.readers = {}
        self.close_stdin()
        self.output["seconds"] = round(time.monotonic() - self.began, 3)
        if self.code and "ended" not in self.output:
            self.output["code"] = self.code
        for name, stream in self.streams.items():
            if stream.data and name not in self.output:
                self.output[name] = stream.text()
        return True


def nested_outputs(job, marker):
    """The outputs of a nested collector, or its failure for each of its probes."""
    import json  # in here: it takes longer to load than Python itself

    before, record, _ = split_frame(job.output.get("out", ""), marker)
    probes = job.key["probes"]
    if record is not None:
        try:
            record = json.loads(record)
            outputs = record["outputs"]
            HOST_TEXTS.update(record.get("texts", {}))
            return dict((name, outputs[name]) for name in probes)
        except (ValueError, LookupError, TypeError):
            before = "its answer cannot be read"
    lines = (job.output.get("err", "").strip() or before.strip()).splitlines()
    prefix = " ".join(job.argv[: len(job.argv) - 3])
    reason = lines[-1][:300] if lines else filled("ended with status {0}", job.output.get("code", 0))
    if job.output.get("ended") == "timeout":
        reason = "no answer in time"
    error = {"ended": "error", "err": filled("{0}: {1}", prefix, reason)}
    return dict((name, {"": error}) for name in probes)
