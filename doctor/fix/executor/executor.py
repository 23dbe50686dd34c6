"""The executor's loop: takes the host's lock, and answers one request after another."""

import json
import os
import signal
import sys

from doctor.fix.executor.device_holders import busy
from doctor.fix.executor.file_changes import RequestRejected, relink, tidy, write
from doctor.fix.executor.file_state import peek, peek_many
from doctor.fix.executor.host_lock import lock_host, unlock
from doctor.fix.executor.kept_states import forget, recall
from doctor.fix.executor.step_commands import pass_through, run
from doctor.fix.executor.system_log import log_line, log_outcome
from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.host_texts import with_texts
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import LineBuffer, write_all

OPERATIONS = {
    "run": run,
    "filter": pass_through,
    "peek": peek,
    "peek_many": peek_many,
    "write": write,
    "relink": relink,
    "tidy": tidy,
    "recall": recall,
    "forget": forget,
    "busy": busy,
    "log": log_line,
}


def answer(request):
    """The answer to one request; a request that failed or was rejected gives its reason as `refused`.

    One with the text `log` is written to the host's log with its outcome, also where the caller has stopped waiting.
    """
    try:
        result = OPERATIONS[request["op"]](request)
    except RequestRejected as error:
        result = {"refused": str(error)}
    except OSError as error:
        result = {"refused": error.strerror or str(error)}
    if request.get("log"):
        log_outcome(request["log"], result)
    return result


def send(marker, message):
    """Writes one marked line to stdout."""
    try:
        write_all(1, b"\n" + marked_line(marker, json.dumps(with_texts(message)).encode("ascii")))
    except OSError:  # no reader is left: what was begun is done all the same
        pass


def main(request, _program):
    """Locks the host, then answers the requests from stdin one by one. Exits with 4 when the lock is held."""
    on_termination(signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request.decode("ascii"))
    marker, lock = request["marker"].encode("ascii"), (None, "")
    try:
        lock = lock_host(request["lock"]) if request["lock"] >= 0 else lock
    except RequestRejected as error:
        send(marker, {"refused": str(error)})
        os._exit(4)
    send(marker, {"uid": os.geteuid(), "python": "%d.%d.%d" % sys.version_info[:3], "name": os.uname()[1]})
    lines = LineBuffer()
    while True:
        piece = os.read(0, 65536)
        if not piece:
            break
        for line in lines.split(piece):
            send(marker, answer(json.loads(line.decode("ascii"))))
    unlock(*lock)
    os._exit(0)
