"""Commands of a fix, each run to its end."""

import os
import select
import signal
import time

from doctor.remote.runtime.environment import tool_environment
from doctor.remote.runtime.processes import ended, exit_code, fork_with_pipes, signal_group
from doctor.remote.runtime.streams import BoundedOutput

GRACE = 0.5  # seconds for output to end after the command itself has


def run(request):
    """Runs a command to its end: status, and the first `limit` bytes of stdout and of stderr."""
    return run_shell(request["sh"], request["seconds"], request["limit"])


def run_shell(text, seconds, limit):
    """Background processes of the command are not waited for and not killed: a step may start a service."""
    environ = tool_environment()

    def run_child():
        os.chdir("/")
        os.execve("/bin/sh", ["/bin/sh", "-c", text], environ)

    pid, stdin, stdout, stderr = fork_with_pipes(run_child)
    os.close(stdin)
    output = {stdout: BoundedOutput(limit), stderr: BoundedOutput(limit)}
    deadline = read_until(pid, dict(output), time.time() + seconds)
    result = {}
    while ended(pid) is None and time.time() < deadline:  # it has closed its output and works on
        time.sleep(0.01)
    if ended(pid) is None:
        result["trouble"] = "did not end within %g s, and was killed" % seconds
        signal_group(pid, signal.SIGKILL)
    result["code"] = exit_code(os.waitpid(pid, 0)[1])
    for fd in output:
        os.close(fd)
    result.update(out=output[stdout].text(), err=output[stderr].text())
    result["cut"] = any(stream.cut for stream in output.values())
    return result


def read_until(pid, streams, deadline):
    """Reads what a command prints until it closes its output or the deadline; the deadline, less where it has ended."""
    while streams:
        if ended(pid) is not None:
            deadline = min(deadline, time.time() + GRACE)
        ready = select.select(list(streams), [], [], 0.1)[0]
        for fd in ready:
            piece = os.read(fd, 65536)
            streams[fd].add(piece)
            if not piece:
                del streams[fd]
        if time.time() > deadline:
            break
    return deadline
