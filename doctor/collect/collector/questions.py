"""Questions: functions that are answered in children of the collector, by one child as long as none takes long."""

import os
import time

from doctor.collect.collector.jobs import Job
from doctor.remote.runtime.connecting import connect_all
from doctor.remote.runtime.keyed_hash import is_keyed_hash, keyed_hash, make_proof, read_proof
from doctor.remote.runtime.neighbours import ask_neighbours
from doctor.remote.runtime.netlink import (
    driver_values,
    listed_addresses,
    name_text,
    neighbour_table,
    netlink_attributes,
    netlink_entries,
    netlink_messages,
    sending_delays,
)
from doctor.remote.runtime.notation import to_json
from doctor.remote.runtime.processes import fork_child, run_tool
from doctor.remote.runtime.reading import (
    effective_time,
    find_interpreter,
    find_tool,
    interpreter_of,
    matching_paths,
    names_in,
    read_text,
    table_address,
    table_rows,
)
from doctor.remote.runtime.streams import kernel_records, last_lines, write_all

# Of questions, beside what they import.
HELPERS = (
    ask_neighbours,
    connect_all,
    driver_values,
    effective_time,
    find_interpreter,
    find_tool,
    interpreter_of,
    matching_paths,
    kernel_records,
    table_address,
    table_rows,
    names_in,
    is_keyed_hash,
    keyed_hash,
    last_lines,
    make_proof,
    read_proof,
    listed_addresses,
    name_text,
    netlink_attributes,
    netlink_entries,
    netlink_messages,
    neighbour_table,
    sending_delays,
    read_text,
    run_tool,
)
PATIENCE = 0.2  # seconds that a question may take before another child goes on with the others
NUMBER_BYTES = 2
ANSWER_LIMIT = 65536  # bytes of an answer, where the probe has no other
LINE_LIMIT = 64  # bytes of a line before an answer
BEGUN = -1  # in place of an exit code: the question is being answered


class Questions:
    """The questions of a request, in a pipe from which each child takes the next one when it is free.

    A child that hangs or dies costs the one question that it had begun, as if each had a child of its own.
    """

    def __init__(self, job_input, outputs):
        self.job_input, self.outputs = job_input, outputs
        self.distinct = []  # (name, probe)
        self.alike = {}  # the text of a question -> its number; a name that asks the same gets the same answer
        self.names = {}  # number -> the names that asked it
        self.waiting = set()  # numbers of those that were not begun
        self.tasks = None

    def add(self, name, probe):
        number = self.alike.get(probe["text"])
        if number is None:
            number = len(self.distinct)
            self.distinct.append((name, probe))
            self.waiting.add(number)
            if "asked" not in probe["text"]:  # else it wants to know by which name
                self.alike[probe["text"]] = number
        self.names.setdefault(number, []).append(name)

    def open(self):
        """Fills the pipe, once all are known."""
        self.tasks, writer = os.pipe()
        os.write(writer, b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in sorted(self.waiting)))
        os.close(writer)

    def need_child(self, running, now):
        """Whether no running child will be free to begin the next question soon."""
        return bool(self.waiting) and not any(isinstance(job, Answerer) and job.is_quick(now) for job in running)

    def answer_limit(self, number):
        """Bytes of an answer, at most. Raises: KeyError for what is no question's number."""
        self.names[number]
        return self.distinct[number][1].get("limit", ANSWER_LIMIT)

    def store(self, number, output):
        for name in self.names[number]:
            self.outputs[name][""] = output

    def abandon(self, output):
        """Those that were not begun are not answered any more."""
        for number in self.waiting:
            self.store(number, output)
        self.waiting.clear()


class Answerer(Job):
    """A child that answers questions, and its side of the pipe.

    It writes lines, `NUMBER CODE CUT SIZE`, each followed by as many bytes: the answer, or why there is none.
    """

    def __init__(self, questions):
        Job.__init__(self, "", "", {"limit": 1 << 20})
        self.questions, self.received = questions, b""
        self.current = None  # the number of the question that it has begun
        self.idle = True  # it has begun none yet

    def start(self, environ):
        out, err = os.pipe(), os.pipe()
        questions = self.questions
        body = lambda: answer_all(questions.distinct, questions.job_input, environ)  # noqa: E731
        pid = fork_child(body, questions.tasks, out[1], err[1], 1)
        os.close(out[1])
        os.close(err[1])
        self.begin_with((pid, None, out[0], err[0]))
        self.deadline = float("inf")

    def is_quick(self, now):
        return self.code is None and not self.output and now - self.began < PATIENCE

    def take(self, name, piece):
        if name == "err":
            Job.take(self, name, piece)
            return
        if "ended" in self.output:
            return
        self.received += piece
        try:
            while self.take_line():
                pass
        except (ValueError, KeyError):
            self.received = b""
            self.output.update(ended="error", err="a question wrote among the answers of its child")
            self.end()

    def take_line(self):
        """One message; False when none is complete. Raises: ValueError, KeyError for what no `answer_all` writes."""
        line, newline, rest = self.received.partition(b"\n")
        if not newline:
            if len(line) > LINE_LIMIT:
                raise ValueError("no line")
            return False
        number, code, cut, size = [int(word) for word in line[: LINE_LIMIT + 1].split()]
        if size > self.questions.answer_limit(number) or size < 0:
            raise ValueError("no size")
        if len(rest) < size:
            return False
        self.received = rest[size:]
        if code == BEGUN:
            self.begin(number)
        else:
            self.finish_one(number, code, cut, rest[:size].decode("ascii", "replace"))
        return True

    def begin(self, number):
        self.current, self.began, self.idle = number, time.monotonic(), False
        self.deadline = self.began + self.questions.distinct[number][1].get("timeout", 10)
        self.questions.waiting.discard(number)

    def finish_one(self, number, code, cut, text):
        output = {"seconds": round(time.monotonic() - self.began, 3), "err" if code else "out": text}
        if code:
            output["code"] = code
        if cut:
            output["cut"] = True
        self.questions.store(number, output)
        self.current, self.deadline = None, float("inf")

    def record(self):
        """After its end: how the question ended that it had begun."""
        if self.current is not None:
            output = dict(self.output)
            if "ended" not in output and not output.get("code"):
                output.update(ended="error", err="the child that had to answer ended before")
            self.questions.store(self.current, output)
        elif self.idle:
            self.questions.abandon({"ended": "error", "err": "no child was there to answer"})


def answer_all(distinct, job_input, environ):
    """In the child: answers questions until there is none."""
    os.environ.update(environ)
    tasks, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a question prints is no answer
    message = b""
    while True:
        task = os.read(tasks, NUMBER_BYTES)
        number = int.from_bytes(task, "big")
        if task:
            message += b"%d %d 0 0\n" % (number, BEGUN)
        write_all(answers, message)
        if not task:
            os._exit(0)
        name, probe = distinct[number]
        code, text = answer(name, probe, job_input)
        limit = probe.get("limit", ANSWER_LIMIT)
        message = b"%d %d %d %d\n" % (number, code, len(text) > limit, len(text[:limit])) + text[:limit]


def answer(name, probe, job_input):
    """The exit code that a program would have had, and the answer or the error, as ASCII."""
    namespace = {function.__name__: globals()[function.__name__] for function in HELPERS}
    try:
        exec(probe["text"], namespace)
        return 0, to_json(namespace[probe["name"]](dict(job_input, asked=name))).encode("ascii")
    except BaseException as error:
        return 1, ("%s: %s\n" % (type(error).__name__, error)).encode("ascii", "replace")
