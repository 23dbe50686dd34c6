"""The excerpter's loop: finds the logs of a request, reads them in turn, and prints what a diagnosis needs of each."""

import base64
import json
import os
import select
import signal
import time
import zlib

from doctor.diagnose.excerpter.excerpt import LogReader
from doctor.diagnose.excerpter.kernel_messages import kernel_messages
from doctor.diagnose.excerpter.line_choice import ShapeIndex
from doctor.diagnose.excerpter.log_search import LogSearch, Omissions, printable_path
from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.host_texts import filled, with_texts
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import write_all

MIN_FILE_BYTES = 1 << 18  # of lines of one log, for any number of logs


class TimeIsUp(Exception):
    """The time that the controller gave has passed."""

    pass


class Excerpter:
    """One request: `sent` counts the bytes that were printed."""

    def __init__(self, request):
        self.request = request
        self.marker = request["marker"].encode("ascii")
        self.omissions = Omissions()
        self.sent = self.kept = self.files = 0
        self.stopped = self.kernel = ""

    def run(self):
        began = time.time()
        search = LogSearch(self.request, self.omissions)
        current, waiting = None, []
        try:
            search.search(self.request["patterns"])
            waiting = [path for path, _ in search.newest_first(self.request["files"])]
            quiet = [word.encode() for word in self.request["quiet"]]
            index = ShapeIndex([([word], word) for word in map(str.encode, self.request["literals"])], quiet)
            limit = max(MIN_FILE_BYTES, self.request["bytes"] // max(1, len(waiting)))
            current = LogReader(index, limit)
            if self.request["kernel"]:
                self.read_kernel(current)
            while waiting and self.has_room():
                self.read(current, waiting.pop(0))
        except TimeIsUp:
            self.stopped = self.stopped or "the time limit"
        signal.setitimer(signal.ITIMER_REAL, 0)
        for path in waiting:
            self.omissions.add(self.stopped, printable_path(path))
        self.send(
            {
                "end": True,
                "files": self.files,
                "stopped": self.stopped,
                "kernel": self.kernel,
                "unmatched": search.unmatched,
                "omitted": self.omissions.rows(),
                "began": began,
                "ended": time.time(),
                "name": os.uname()[1],
            }
        )

    def has_room(self):
        """Whether more may be sent; ends the program where the caller has stopped waiting for it."""
        if select.select([0], [], [], 0)[0] and not os.read(0, 4096):
            os._exit(3)
        if self.kept > self.request["bytes"] or self.sent > self.request["sent"]:
            self.stopped = "the limit of bytes"
        return not self.stopped

    def read_kernel(self, reader):
        """Sends what the kernel said since the time that was asked for; `kernel` says why it cannot be read."""
        age = self.request["age"]
        data, self.kernel = kernel_messages(time.time() - age if age else 0)
        if data is not None:
            reader.read_kernel(data)
            self.kept += reader.excerpt.head_bytes + reader.excerpt.tail_bytes
            self.send(reader.report())

    def read(self, reader, path):
        name = printable_path(path)
        reader.start(name, 0, 0, 0)
        try:
            reader.read(path, name)
        except TimeIsUp:
            self.stopped = "the time limit"
            if not reader.bytes:
                self.omissions.add(self.stopped, name)
                return
            reader.notes.append(filled("was read up to byte {0} of {1}: the time limit", reader.bytes, reader.size))
        except OSError as error:
            self.omissions.add(error.strerror or str(error), name)
            return
        # An alarm that comes now waits: half a report is none.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        self.kept += reader.excerpt.head_bytes + reader.excerpt.tail_bytes
        self.files += 1
        if not self.send(reader.report(), bool(reader.dump)):
            self.omissions.add("a dump beyond the limit of bytes", name)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])

    def send(self, report, may_not_fit=False):
        """Prints it; whether it did: what `may_not_fit` is left out where it would go beyond the limit."""
        data = base64.b64encode(zlib.compress(json.dumps(with_texts(report)).encode("ascii"), 6))
        line = marked_line(self.marker, data)
        if may_not_fit and self.sent + len(line) > self.request["sent"]:
            return False
        self.sent += len(line)
        write_all(1, line)
        return True


def stop(*_):
    """Ends the program: the caller has stopped waiting for it."""
    os._exit(3)


def time_is_up(*_):
    """The handler of the alarm."""
    raise TimeIsUp


def main(request, program):
    """Reads the logs that the request names; prints a line for each and one at the end, and exits with 0."""
    request = json.loads(request.decode("ascii"))
    on_termination(stop)
    os.nice(10)
    write_all(1, b"\n")
    signal.signal(signal.SIGALRM, time_is_up)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    Excerpter(request).run()
    os._exit(0)
