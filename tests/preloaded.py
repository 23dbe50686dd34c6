"""`doctor` for tests whose proof is not its start: a process forked from one that has imported all its modules.

`run` is `subprocess.run` of ``[sys.executable, "-m", "doctor", ...]``, at half the cost: an interpreter that starts and
imports doctor takes 0.3 CPU s. Each run is a process of its own with its own streams, environment, folder, signal
handlers and exit code; no module of doctor reads the environment while it is imported (a test holds that). What
measures or proves the start itself (`tests/test_startup.py`, `tests/test_cli.py`, ...) runs the interpreter.

A server belongs to the process that asked first, and ends with it. It answers a request, a JSON object and the three
streams, on a socket of the request's own: with the pid at first, and with the exit status at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
SENT = ("doctor.smoke.programs.", "doctor.watch.hook", "doctor.watch.probe", "doctor.net.prober")
"""Programs that run elsewhere; some need torch."""
AT_IMPORT = ("PYTHON", "LC_", "LANG", "TYPER_", "PROMETHEUS", "prometheus", "PSUTIL_")
"""Variables that the interpreter or a library reads when it starts."""
OPTIONS = {"env", "cwd", "timeout", "text", "capture_output", "check", "stdin"}
MAX_REQUEST = 1 << 20
NEW_NETWORK, NEW_MOUNTS = 0x40000000, 0x00020000
PRIVATE, BIND = 0x44000, 0x1000


class Hub(NamedTuple):
    """The network namespace and the file of host names of a fleet's hub, as `tests.hosts.testbed.hub_argv` has them."""

    namespace: str
    hosts: str


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    hub: Hub | None = None,
    otherwise: Sequence[str] | None = None,
    own_server: bool = False,
    limits: Mapping[int, int] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of ``argv``, or of ``otherwise`` where it needs an interpreter of its own: see `can_run`.

    ``own_server``: many runs follow with the same variables that an interpreter reads at its start, other ones than
    this process has; a server that has started with them serves these. ``limits``: resource limits of the process.

    Raises: subprocess.TimeoutExpired, subprocess.CalledProcessError, as `subprocess.run` does.

    >>> run([sys.executable, "-m", "doctor", "list", "disk-full"], capture_output=True).returncode
    0
    """
    arguments = [os.fspath(word) for word in argv]
    if not can_run(arguments, options, own_server):
        assert not limits, "an interpreter of its own would have no limits"
        return subprocess.run(otherwise or arguments, **options)
    request = {
        "argv": arguments[3:],
        "env": dict(_environ(options)),
        "cwd": os.fspath(options.get("cwd") or os.getcwd()),
        "hub": hub,
        "limits": list((limits or {}).items()),
    }
    server = _server(os.getpid(), tuple(sorted(_read_at_import(_environ(options)).items())))
    with _started(server, request) as (answers, streams):
        return _finished(arguments, answers, streams, options)


def can_run(arguments: Sequence[str], options: Mapping[str, Any], own_server: bool = False) -> bool:
    """Doctor, its output captured, nothing on stdin, and the variables that an interpreter reads at its start."""
    if arguments[:3] != [sys.executable, "-m", "doctor"] or set(options) - OPTIONS or not options.get("capture_output"):
        return False
    if options.get("stdin") not in (None, subprocess.DEVNULL):
        return False
    return own_server or _read_at_import(_environ(options)) == _read_at_import(os.environ)


def _environ(options: Mapping[str, Any]) -> Mapping[str, str]:
    return os.environ if options.get("env") is None else options["env"]


def _read_at_import(environ: Mapping[str, str]) -> dict[str, str]:
    results = {name: value for name, value in environ.items() if name.startswith(AT_IMPORT)}
    if results.get("PYTHONPATH") == str(ROOT):
        del results["PYTHONPATH"]
    return results


@contextlib.contextmanager
def _started(server: socket.socket, request: Mapping[str, Any]) -> Iterator[tuple[socket.socket, list[int]]]:
    """The socket of the answers, and the ends of stdout and stderr to read from."""
    answers, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # the pid and the status stay apart
    pipes = [os.pipe(), os.pipe()]
    nothing = os.open(os.devnull, os.O_RDONLY)
    theirs = [far.fileno(), nothing, pipes[0][1], pipes[1][1]]
    try:
        socket.send_fds(server, [json.dumps(request).encode()], theirs)
    finally:
        far.close()
        for number in theirs[1:]:
            os.close(number)
    try:
        yield answers, [pipe[0] for pipe in pipes]
    finally:
        answers.close()
        for pipe in pipes:
            os.close(pipe[0])


def _finished(
    arguments: list[str], answers: socket.socket, streams: list[int], options: Mapping[str, Any]
) -> subprocess.CompletedProcess[Any]:
    """Waits for the end, and for that of both streams."""
    pid = int(_answer(answers))
    texts: list[bytes] = [b"", b""]

    def read(index: int) -> None:
        with open(os.dup(streams[index]), "rb") as file:
            texts[index] = file.read()

    readers = [threading.Thread(target=read, args=(index,), daemon=True) for index in range(2)]
    for reader in readers:
        reader.start()
    answers.settimeout(options.get("timeout"))
    try:
        status = int(_answer(answers))
        for reader in readers:
            reader.join(options.get("timeout"))
        if any(reader.is_alive() for reader in readers):
            raise TimeoutError
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if isinstance(error, TimeoutError):
            raise subprocess.TimeoutExpired(arguments, options["timeout"], *texts) from None
        raise
    outputs: list[Any] = list(texts)
    if options.get("text"):
        outputs = [text.decode().replace("\r\n", "\n") for text in texts]
    done = subprocess.CompletedProcess(arguments, status, *outputs)
    if options.get("check"):
        done.check_returncode()
    return done


def _answer(answers: socket.socket) -> bytes:
    answer = answers.recv(64)
    assert answer, "the server of preloaded doctors has ended"
    return answer


@functools.cache
def _server(owner: int, variables: tuple[tuple[str, str], ...]) -> socket.socket:
    """The requests' socket to the server of the process ``owner``: one that is forked does not share its parent's.

    ``variables``: those of `AT_IMPORT` that the server starts with.
    """
    ours, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, far):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST)
    argv = [sys.executable, "-m", "tests.preloaded", str(far.fileno())]
    others = {name: value for name, value in os.environ.items() if not name.startswith(AT_IMPORT)}
    environ = {**others, **dict(variables), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(argv, cwd=ROOT, env=environ, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL)
    far.close()
    atexit.register(_end, owner, ours, server)
    return ours


def _end(owner: int, requests: socket.socket, server: subprocess.Popen[bytes]) -> None:
    requests.close()
    if os.getpid() == owner:
        server.wait(10)


# ---- the server


def load() -> None:
    """Imports every module of doctor that runs in the controller, and reads the checks and playbooks."""
    doctor = importlib.import_module("doctor")
    for module in pkgutil.walk_packages(doctor.__path__, "doctor."):
        if not module.name.startswith(SENT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for check in importlib.import_module("doctor.engine.catalog").load_checks():
        assert check.claim
        for fact in check.facts:
            if fact.probe.function is not None:
                importlib.import_module("doctor.collect.collector_request").function_source(fact.probe.function)
    importlib.import_module("doctor.engine.catalog").deferred_checks()
    importlib.import_module("doctor.job.variable_names").intended_name("HCCL_TIMEOUT")
    importlib.import_module("doctor.remedy.catalog").load_playbooks()
    importlib.import_module("doctor.remedy.fixable").fixable_checks()


def serve(requests: socket.socket) -> list[str]:
    """Forks a process for each request, until its owner has ended. Returns in the forked ones: with doctor's words."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for doctor
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        text, passed, _, _ = socket.recv_fds(requests, MAX_REQUEST, 4)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            answers = socket.socket(fileno=passed[0])
            ready, go = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.read(ready, 1)
                for number in (ready, go):
                    os.close(number)
                answers.close()
                return become(json.loads(text), passed[1:])
            for number in passed[1:]:
                os.close(number)
            answers.send(str(pid).encode())
            os.write(go, b"1")
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(BrokenPipeError):
                answers.send(str(status).encode())
            os._exit(0)
        for number in passed:
            os.close(number)


def become(request: Mapping[str, Any], streams: Sequence[int]) -> list[str]:
    """Takes over the request's streams, network, folder and environment."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
    if request["hub"]:
        enter(Hub(*request["hub"]))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number, most in request["limits"]:
        resource.setrlimit(number, (most, most))
    sys.path[0] = os.getcwd()
    return list(request["argv"])


def enter(hub: Hub) -> None:
    """Enters the hub's network, with the hosts' names in /etc/hosts of this process alone. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: Any) -> None:
        if getattr(libc, name)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    with open(hub.namespace) as namespace:
        call("setns", namespace.fileno(), NEW_NETWORK)
    call("unshare", NEW_MOUNTS)
    call("mount", b"none", b"/", None, PRIVATE, None)
    call("mount", os.fsencode(hub.hosts), b"/etc/hosts", None, BIND, None)


def end(status: int) -> NoReturn:
    """Ends as an interpreter does, but leaves the modules to the kernel: to clear them costs twice what a run does."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    load()
    gc.collect()
    gc.freeze()
    sys.argv[1:] = serve(requests)
    try:
        runpy.run_module("doctor", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            raise
        end(stop.code or 0)
    end(0)


if __name__ == "__main__":
    main()
