"""The executor's loop: takes the host's lock, and answers one request after another."""

import json
import os
import signal
import socket
import sys
import time

from doctor.fix.executor.commands import run
from doctor.fix.executor.devices import busy
from doctor.fix.executor.file_changes import RequestRejected, restore, write
from doctor.fix.executor.file_state import peek
from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.lines import LineBuffer
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import write_all

OPERATIONS = {"run": run, "peek": peek, "write": write, "restore": restore, "busy": busy}


def lock_host(seconds):
    """Held as long as this process lives, and no file that stays. One `doctor fix` at a time works on a host."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deadline = time.time() + seconds
    while True:
        try:
            lock.bind("\0doctor-fix-%d" % os.geteuid())
            return lock
        except OSError:
            time.sleep(0.1)
        if time.time() > deadline:
            raise RequestRejected("another doctor fix is running on it")


def answer(request):
    """The answer to one request; a request that failed or was rejected gives its reason as `refused`."""
    try:
        return OPERATIONS[request["op"]](request)
    except RequestRejected as error:
        return {"refused": str(error)}
    except OSError as error:
        return {"refused": error.strerror or str(error)}


def send(marker, message):
    """Writes one marked line to stdout."""
    try:
        write_all(1, b"\n" + marked_line(marker, json.dumps(message).encode("ascii")))
    except OSError:  # nobody listens: what was begun is done all the same
        pass


def main(request, _program):
    """Locks the host, then answers the requests from stdin one by one. Exits with 4 when the lock is held."""
    on_termination(signal.SIG_IGN)
    os.umask(0o022)
    request = json.loads(request.decode("ascii"))
    marker, lock = request["marker"].encode("ascii"), None
    try:
        lock = lock_host(request["lock"]) if request["lock"] >= 0 else None
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
    del lock
    os._exit(0)
