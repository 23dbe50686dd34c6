"""The collector's loop: plans the jobs of a request, runs them, and prints the record."""

import marshal
import os
import select
import sys
import time
import zlib

from doctor.collect.collector.host_files import absent_tool, device_numbers, device_settings, path_error, read_file
from doctor.collect.collector.jobs import Job, nested_outputs
from doctor.collect.collector.questions import Answerer, Questions
from doctor.remote.runtime.command_environment import tool_environment
from doctor.remote.runtime.framing import frame
from doctor.remote.runtime.host_texts import filled, with_texts
from doctor.remote.runtime.notation import to_json
from doctor.remote.runtime.reading import matching_paths
from doctor.remote.runtime.signals import TerminationHeld, on_termination, wake_on_child_exit
from doctor.remote.runtime.streams import read_exactly, write_all

PARALLEL_JOBS = 8
LENGTH_DIGITS = 8  # of a further request, before it
WAITING = 3600  # seconds for a further request
ROOT_HELPER = "/usr/local/sbin/doctor-probe"
PART_LIMIT = 4 << 20  # bytes of a nested collector's record


class Collector:
    """Runs the jobs of one request: at most `PARALLEL_JOBS` at once, and one at once in each lane.

    `outputs` is probe -> key -> output, as the record has it; `program` is the collector's own text, for nested ones.
    """

    def __init__(self, program, request, child_exits):
        self.program, self.request, self.child_exits = program, request, child_exits
        self.job_input = dict(request.get("given", {}), **request.get("own", {}))
        self.outputs = {}
        self.waiting, self.running = [], []
        self.questions = Questions(self.job_input, self.outputs)
        self.environ = command_environment(self.job_input)
        self.deadline = time.monotonic() + request["seconds"]

    def plan(self):
        for part in self.request["parts"]:
            if part["prefix"]:
                self.waiting.insert(0, self.nested(part))
                continue
            for name, probe in part["probes"].items():
                self.outputs[name] = {}
                getattr(self, "plan_" + probe["kind"])(name, probe)
        self.questions.open()

    def plan_read(self, name, probe):
        for pattern in probe["paths"]:
            try:
                paths = matching_paths(pattern) if "*" in pattern else [pattern]
            except OSError as error:
                self.outputs[name][""] = {"ended": "error", "err": error.strerror or str(error)}
                return
            for path in paths:
                self.outputs[name][path] = read_file(path, probe.get("limit", 65536))

    def plan_ask(self, name, probe):
        path = probe.get("requires")
        if path and not os.path.exists(path):
            self.outputs[name][""] = path_error(path)
            return
        self.questions.add(name, probe)

    def plan_run(self, name, probe):
        absent = absent_tool(probe.get("requires"), self.environ["PATH"])
        if absent:
            settings = device_settings(probe) if probe.get("stand_in") else {}
            for key, text in settings.items() or [("", "")]:
                self.outputs[name][key] = {"ended": "absent", "err": absent, "out": text}
            return
        keys = [""]
        if probe.get("each"):
            keys = device_numbers(probe["each"])
            if not keys:
                self.outputs[name][""] = {"ended": "absent", "err": filled("no {0}", probe["each"])}
        for key in keys:
            self.waiting.append(Job(name, key, probe, ["/bin/sh", "-c", probe["text"], "sh", key]))

    def nested(self, part):
        inner = dict(self.request, parts=[{"prefix": [], "probes": part["probes"]}], more=False)
        inner["seconds"] = max(1, self.request["seconds"] - 1)
        request = marshal.dumps(inner, 2)
        script = self.request["boot"].replace("REQUEST", str(len(request)))
        probe = {"timeout": self.request["seconds"], "limit": PART_LIMIT}
        if part.get("digests") and os.path.exists(ROOT_HELPER):
            fields = {"marker": self.request["marker"], "seconds": inner["seconds"], "probes": part["digests"]}
            line = to_json(dict(fields, ports=list(self.job_input.get("ports", ())))) + "\n"
            return Job("", part, probe, part["prefix"] + [ROOT_HELPER], line.encode("ascii"))
        return Job("", part, probe, part["prefix"] + ["sh", "-c", script], self.program + request)

    def run(self):
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self.child_exits, select.POLLIN)
        while self.waiting or self.running or self.questions.waiting:
            self.start_jobs()
            if not self.wait(poll):
                self.quit()
            now = time.monotonic()
            if now > self.deadline:
                self.give_up()
            for job in [job for job in self.running if job.step(now)]:
                self.running.remove(job)
                self.record(job)

    def quit(self, *_):
        """Ends all jobs and the program: the caller has stopped waiting for the answer."""
        for job in self.running:
            job.end()
        os._exit(3)

    def start_jobs(self):
        lanes = set(job.lane for job in self.running)
        for job in list(self.waiting):
            if len(self.running) >= PARALLEL_JOBS:
                return
            if job.lane and job.lane in lanes:
                continue
            lanes.add(job.lane)
            self.waiting.remove(job)
            self.start(job)
        if len(self.running) < PARALLEL_JOBS and self.questions.need_child(self.running, time.monotonic()):
            self.start(Answerer(self.questions))

    def start(self, job):
        try:
            with TerminationHeld():
                job.start(self.environ)
                self.running.append(job)
        except OSError as error:
            job.output = {"ended": "error", "err": str(error)}
            self.record(job)

    def wait(self, poll):
        """Reads and writes ready descriptors. False when the controller has closed the connection."""
        watched = {}
        for job in self.running:
            for fd in job.readers:
                watched[fd] = job
                poll.register(fd, select.POLLIN)
            if job.stdin_data and job.stdin_fd is not None:
                watched[job.stdin_fd] = job
                poll.register(job.stdin_fd, select.POLLOUT)
        alive = True
        for fd, _ in poll.poll(100 if self.questions.waiting else 200):
            if fd == 0:
                alive = bool(os.read(0, 4096))
            elif fd == self.child_exits:
                os.read(fd, 4096)
            elif fd == watched[fd].stdin_fd:
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
            self.record(job)
        self.waiting = []
        self.questions.abandon({"ended": "timeout", "seconds": self.request["seconds"]})

    def skip_device(self, job):
        """A device whose tool hung once is not waited for again: the others need the time."""
        for other in [other for other in self.waiting if (other.lane, other.key) == (job.lane, job.key)]:
            self.waiting.remove(other)
            other.output = {"ended": "error", "err": "not run: an earlier command to it timed out"}
            self.record(other)

    def record(self, job):
        if job.lane and job.key and job.output.get("ended") == "timeout":
            self.skip_device(job)
        if isinstance(job, Answerer):
            job.record()
        elif isinstance(job.key, dict):
            self.outputs.update(nested_outputs(job, self.request["marker"]))
        else:
            self.outputs[job.name][job.key] = job.output


def command_environment(job_input):
    """The environment of commands: the tools' directories, and what is known of the job as DOCTOR_... variables."""
    environ = tool_environment()
    for name, value in job_input.items():
        if isinstance(value, (str, int)):
            environ["DOCTOR_" + name.upper()] = str(value)
    return environ


def main(request, program):
    """Runs the requested probes and writes one framed record to stdout, for each request; exits with 0."""
    os.chdir("/")  # where all that it starts runs
    child_exits = wake_on_child_exit()
    while request:
        fields = marshal.loads(request)
        if "common" in fields:
            fields.update(marshal.loads(zlib.decompress(request[-fields.pop("common") :])))
        answer_request(fields, program, child_exits)
        request = next_request() if fields.get("more") else b""
    os._exit(0)


def next_request():
    """What the controller asks for in the next round; empty when it has gone, or asks for nothing."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    length = read_exactly(0, LENGTH_DIGITS) if poll.poll(1000 * WAITING) else b""
    return read_exactly(0, int(length)) if length else b""


def answer_request(request, program, child_exits):
    """Prints the record of one request; ends the process when the controller goes meanwhile."""
    began = time.time()
    collector = Collector(program, request, child_exits)
    on_termination(collector.quit)
    collector.plan()
    collector.run()
    print_record(request["marker"], collector.outputs, began)


def print_record(marker, outputs, began):
    """Prints the framed record of a request that came at the time `began`."""
    record = {
        "outputs": outputs,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "uid": os.geteuid(),
        "name": os.uname()[1],
        "began": began,
    }
    text = '%s, "ended": %.6f}' % (to_json(with_texts(record))[:-1], time.time())
    # One write for the whole answer: every small one is a packet and two context switches.
    write_all(1, frame(marker, text).encode("ascii"))
