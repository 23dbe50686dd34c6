"""Runs the testbed's commands in processes that are forked from one which has loaded it.

An interpreter that starts and loads the testbed takes 0.06 CPU s, as long as a host needs to be made anew. A server
belongs to the process that asked first, and ends with it.
"""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); import testbed_server; testbed_server.serve(int(sys.argv[1]))"
_turn = threading.Lock()


def run(argv: Sequence[str], text: str) -> tuple[int, str]:
    """Runs the testbed with these words and this text on stdin. Returns its exit status and stderr."""
    with _turn:
        requests = _server(os.getpid())
        try:
            requests.send((list(argv), text))
            status, errors = requests.recv()
        except BaseException:  # such as a test's time limit: a later answer would be taken for another request's
            requests.close()
            _server.cache_clear()
            raise
    return int(status), str(errors)


@functools.cache
def _server(owner: int) -> Connection:
    """The connection to the server of the process ``owner``: one that is forked does not share its parent's."""
    ours, theirs = Pipe()
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(Path(__file__).parent), str(theirs.fileno())]
    null = subprocess.DEVNULL
    process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=null, stdout=null)
    theirs.close()
    _processes.append(process)
    return ours


_processes: list[subprocess.Popen[bytes]] = []
"""They end with their owner, who need not wait for them."""


# ---- the server


def serve(number: int) -> None:
    """Forks a process for each request that comes on this descriptor, one after the other."""
    __import__("testbed")  # by its file: the server has no other path
    os.set_inheritable(number, False)
    requests = Connection(number)
    while True:
        try:
            argv, text = requests.recv()
        except EOFError:
            return
        errors = os.memfd_create("errors")
        pid = os.fork()
        if pid == 0:
            requests.close()
            become(argv, text, errors)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.lseek(errors, 0, os.SEEK_SET)
        with open(errors, errors="replace") as file:
            requests.send((status, file.read()))


def become(argv: Sequence[str], text: str, errors: int) -> None:
    """The testbed's own command; never returns."""
    testbed = sys.modules["testbed"]
    status = 1
    try:
        os.dup2(errors, 2)
        sys.argv, sys.stdin = ["testbed", *argv], io.StringIO(text)
        testbed.main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
