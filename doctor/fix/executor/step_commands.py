"""Commands of a fix, each run to its end."""

import base64
import os
import select
import signal
import threading
import time

from doctor.fix.executor.file_state import find_files, remember
from doctor.remote.runtime.command_environment import tool_environment
from doctor.remote.runtime.host_texts import filled
from doctor.remote.runtime.processes import ended, exit_code, fork_with_pipes, signal_group
from doctor.remote.runtime.streams import BoundedOutput, write_all

GRACE = 0.5  # seconds for output to end after the command itself has
STATE_SECONDS = 30.0  # for the command that prints the state after a step
STATE_LIMIT = 65536  # bytes of that


def run(request):
    """Runs a command to its end: status, and the first `limit` bytes of stdout and of stderr.

    With `state`, the state that it leaves: what a second command prints, and the files of some patterns. It is kept on
    the host under `token` as well, for a controller that is lost before the answer comes.
    """
    values = request.get("values") or {}
    result = run_shell(request["sh"], request["seconds"], request["limit"], values)
    if request.get("state"):
        result["state"] = state_after(request["state"], values)
        remember(request["token"], result["state"])
    return result


def state_after(request, values):
    """What `sh` prints, None where it fails, and the files that `files` match."""
    output = None
    if request["sh"]:
        printed = run_shell(request["sh"], STATE_SECONDS, STATE_LIMIT, values)
        if not printed["code"] and not printed["cut"]:
            output = printed["out"].strip()
    return {"output": output, "files": {pattern: find_files(pattern) for pattern in request["files"]}}


def pass_through(request):
    """What a command makes of its stdin, byte for byte; it changes nothing."""
    data = base64.b64decode(request["data"])
    result, printed = execute(request["sh"], request["seconds"], request["limit"], request["values"], data)
    return dict(result, out="", data=base64.b64encode(printed).decode("ascii"))


def run_shell(text, seconds, limit, values=None):
    """How a command ended, and what it printed, as text."""
    return execute(text, seconds, limit, values or {}, b"")[0]


def execute(text, seconds, limit, values, data):
    """How a command ended, and the bytes that it printed.

    Background processes of the command are not waited for and not killed: a step may start a service.

    `text` is a fixed text: what differs from host to host comes as `values`, in the environment. A variable that is
    not there ends the command.
    """
    environ = dict(tool_environment(), **values)

    def run_child():
        os.chdir("/")
        os.execve("/bin/sh", ["/bin/sh", "-uc", text], environ)

    pid, stdin, stdout, stderr = fork_with_pipes(run_child)
    threading.Thread(target=feed, args=(stdin, data), daemon=True).start()
    output = {stdout: BoundedOutput(limit), stderr: BoundedOutput(limit)}
    deadline = read_until(pid, dict(output), time.monotonic() + seconds)
    result = {}
    while ended(pid) is None and time.monotonic() < deadline:  # it has closed its output and works on
        time.sleep(0.01)
    if ended(pid) is None:
        result["trouble"] = filled("did not end within {0} s, and was killed", "%g" % seconds)
        signal_group(pid, signal.SIGKILL)
    result["code"] = exit_code(os.waitpid(pid, 0)[1])
    for fd in output:
        os.close(fd)
    result.update(out=output[stdout].text(), err=output[stderr].text())
    result["cut"] = any(stream.cut for stream in output.values())
    return result, bytes(output[stdout].data)


def feed(fd, data):
    """Writes the stdin of a command, and closes it."""
    try:
        write_all(fd, data)
    except OSError:  # it does not read all of it
        pass
    os.close(fd)


def read_until(pid, streams, deadline):
    """Reads what a command prints until it closes its output or the deadline; the deadline, less where it has ended."""
    while streams:
        if ended(pid) is not None:
            deadline = min(deadline, time.monotonic() + GRACE)
        ready = select.select(list(streams), [], [], 0.1)[0]
        for fd in ready:
            piece = os.read(fd, 65536)
            streams[fd].add(piece)
            if not piece:
                del streams[fd]
        if time.monotonic() > deadline:
            break
    return deadline
