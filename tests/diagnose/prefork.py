"""Starts Python programs that need torch without importing it again: one process imports it, and forks for each.

`Prefork` is the process; `COMMAND` starts a program through it, so that torchrun, mpirun and srun can start ranks:
the command's environment, working folder, standard streams, signals and end are those of the forked process.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_CLIENT = """
import json, os, signal, socket, struct, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
request = json.dumps({"argv": sys.argv[2:], "environ": dict(os.environ), "cwd": os.getcwd()}).encode()
socket.send_fds(link, [struct.pack("I", len(request))], [0, 1, 2])
link.sendall(request)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: link.send(bytes([number])))
answer = b""
while len(answer) < 4:
    part = link.recv(4 - len(answer))
    if not part:
        os._exit(97)
    answer += part
status, = struct.unpack("i", answer)
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) not in (9, 19) else None
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.WEXITSTATUS(status))
"""


class Prefork:
    """The process that has imported torch. ``command`` is what starts a program in a fork of it."""

    def __init__(self, program: Path) -> None:
        self.folder = tempfile.mkdtemp(prefix="prefork-")
        self.address = f"{self.folder}/socket"
        client = Path(self.folder, "client.py")
        client.write_text(_CLIENT)
        self.command = [sys.executable, "-I", "-S", str(client), self.address]
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen(256)
        self.pid = os.fork()
        if not self.pid:
            _serve(listener, str(program))
        listener.close()

    def start(self, argv: Sequence[str], environ: Mapping[str, str], log: int) -> Job:
        """A program whose output goes to the open file ``log``."""
        return Job(self.address, argv, environ, log)

    def end(self) -> None:
        """Ends it and all that it started."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)


class Job:
    """A program that runs in a fork."""

    def __init__(self, address: str, argv: Sequence[str], environ: Mapping[str, str], log: int) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(address)
        request = json.dumps({"argv": list(argv), "environ": dict(environ), "cwd": os.getcwd()}).encode()
        socket.send_fds(self._link, [struct.pack("I", len(request))], [log, log, log])
        self._link.sendall(request)

    def wait(self, deadline: float) -> int | None:
        """Its wait status; None where it did not end until ``deadline`` of the monotonic clock, and was killed."""
        self._link.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            answer = self._link.recv(4, socket.MSG_WAITALL)
        except TimeoutError:
            answer = b""
        self._link.close()
        return int(struct.unpack("i", answer)[0]) if len(answer) == 4 else None


def _serve(listener: socket.socket, program: str) -> None:
    """Never returns."""
    for module in ("torch", "torch.distributed", "torch.distributed.run", "torch.multiprocessing", "torch.utils.data"):
        __import__(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        link, _ = listener.accept()
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(link, program)
        link.close()


def _attend(link: socket.socket, program: str) -> None:
    """Starts one program, passes signals on, and reports its end. Its client's end ends it. Never returns."""
    head, streams, _, _ = socket.recv_fds(link, 4, 3)
    size = struct.unpack("I", head)[0]
    request = json.loads(link.recv(size, socket.MSG_WAITALL))
    child = os.fork()
    if not child:
        link.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        _run(program, request)
    for stream in streams:
        os.close(stream)
    handle = os.pidfd_open(child)
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        selector.register(handle, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if handle in ready:
                _, status = os.waitpid(child, 0)
                try:
                    link.sendall(struct.pack("i", status))
                finally:
                    os._exit(0)
            wish = link.recv(1)
            os.kill(child, wish[0] if wish else signal.SIGKILL)
            if not wish:
                os._exit(0)


def _run(program: str, request: dict[str, object]) -> None:
    """Runs the program as `python program` would: with its own traceback and exit code. Never returns."""
    import runpy

    os.environ.clear()
    os.environ.update(request["environ"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    argv = list(request["argv"])  # type: ignore[call-overload]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = argv if argv[0] == "torchrun" else [program, *argv]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    code: object = 0
    try:
        if argv[0] == "torchrun":
            from torch.distributed import run

            run.main(argv[1:])
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else 0)
