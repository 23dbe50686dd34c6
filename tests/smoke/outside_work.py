"""What a rank or a worker of its loader does for ever in C, or waits for, in `tests.smoke.outside`; links that lose and
delay; and settings that are no fault."""

from __future__ import annotations

from typing import Any

from tests.smoke.outside_cases import DIED, FAILED_LOADER, HANGS, NETWORK, SLOWED, STOPPED, VALUES, Case
from tests.smoke.outside_invented import program

SLOW_NETWORK = ("smoke-host-slow", "smoke-link-slow", "smoke-fleet-slow", *SLOWED, *NETWORK)
ENDLESS = "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"
PACKS = "import zlib\nwhile True:\n    zlib.compress(os.urandom(1 << 20))"
FORKS = "pid = os.fork()\nif pid == 0:\n    time.sleep(600)\n    os._exit(0)\nos.waitpid(pid, 0)"
SHUTS = """
import socket
for name in os.listdir("/proc/self/fd"):
    try:
        if os.readlink("/proc/self/fd/" + name).startswith("socket:"):
            socket.socket(fileno=os.dup(int(name))).shutdown(2)
    except OSError:
        pass
"""
UNANSWERED = "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nserver.accept()"
FLOODS = "for number in range(200):\n    sys.stderr.write('warning: \\x1b[31mloss is 0.%d\\n' % number)"
LOCKS = "import _thread as t\nk = t.allocate_lock()\nk.acquire()\nk.acquire()"
PRODUCTS = "import torch\nx = torch.ones(64, 64)\nwhile True:\n    x = (x @ x).clamp(0, 1)"
COLLECTS = "import gc\nx = [[] for _ in range(10 ** 5)]\nwhile True:\n    gc.collect()"
ABORTS = "import ctypes\nctypes.CDLL(None).abort()"


def of_child(text: str) -> dict[str, Any]:
    """A worker of the loader does it."""
    return {**program(text), "child": True}


def corrupted(function: str, damage: str) -> dict[str, Any]:
    return {"kind": "corrupt", "function": function, "how": damage, "place": 11, "every": 1}


def tc(discipline: str) -> str:
    return f"tc qdisc add dev eth0 root {discipline} && touch MARK"


WORK = (
    Case("loader child in a regular expression", FAILED_LOADER, of_child(ENDLESS)),
    Case("loader child compresses", FAILED_LOADER, of_child(PACKS)),
    Case("loader child sorts", FAILED_LOADER, of_child("while True:\n    sorted(range(1 << 20))")),
    Case("loader child in a sum", FAILED_LOADER, of_child("sum(range(10 ** 14))")),
    Case("loader child yields", FAILED_LOADER, of_child("while True:\n    os.sched_yield()")),
    Case("loader child asks every ms", FAILED_LOADER, of_child("while True:\n    time.sleep(0.001)")),
    Case("loader child reads a pipe", FAILED_LOADER, of_child("os.read(os.pipe()[0], 1)")),
    Case(
        "loader child locks twice",
        FAILED_LOADER,
        of_child(LOCKS),
    ),
    Case("loader child waits for a child", FAILED_LOADER, of_child(FORKS)),
    Case("loader child aborts", FAILED_LOADER, of_child(ABORTS)),
    Case("in a regular expression", HANGS, program(ENDLESS)),
    Case("compresses", HANGS, program(PACKS)),
    Case("yields", HANGS, program("while True:\n    os.sched_yield()")),
    Case("asks every ms", HANGS, program("while True:\n    time.sleep(0.001)")),
    Case("waits for a child", HANGS, program(FORKS)),
    Case("waits for a connection", HANGS, program(UNANSWERED)),
    Case("waits for a queue", HANGS, program("import queue\nqueue.Queue().get()")),
    Case("waits for a signal", (*HANGS, *STOPPED), program("signal.pause()")),
    Case(
        "computes in torch",
        HANGS,
        program(PRODUCTS),
    ),
    Case(
        "in the collector of garbage",
        HANGS,
        program(COLLECTS),
    ),
    Case("leaves with 3", DIED, program("sys.exit(3)")),
    Case("memory error", DIED, program("raise MemoryError()")),
    Case("bus error", DIED, program("signal.signal(7, signal.SIG_DFL); os.kill(os.getpid(), 7)")),
    Case("aborts in C", DIED, program(ABORTS)),
    Case("shuts its sockets", (*DIED, *NETWORK, *HANGS), program(SHUTS)),
    Case("3 Mbit/s", SLOW_NETWORK, before=tc("tbf rate 3mbit burst 16kb latency 400ms")),
    Case("40 ms of delay", SLOW_NETWORK, before=tc("netem delay 40ms")),
    Case("a fifth is lost", SLOW_NETWORK, before=tc("netem loss 20%"), must=False),
    Case("packets out of order", SLOW_NETWORK, before=tc("netem delay 5ms reorder 50%"), must=False),
    Case("packets twice", (), before=tc("netem duplicate 10%")),
    Case("MTU of 576", (), before="ip link set eth0 mtu 576; touch MARK"),
    Case("gathered numbers shifted", VALUES, corrupted("all_gather_single", "shifted"), early=True),
    Case("sums rounded", VALUES, corrupted("all_reduce", "rounded")),
    Case("sums negated", VALUES, corrupted("all_reduce", "negated")),
    Case("scattered sums swapped", VALUES, corrupted("reduce_scatter_single", "swapped"), early=True),
    Case("many warnings in colour", (), program(FLOODS)),
    Case("development mode", (), wrapper="touch MARK; export PYTHONDEVMODE=1"),
    Case("optimized", (), wrapper="touch MARK; export PYTHONOPTIMIZE=2"),
    Case("stack of 1 MB", (), wrapper="touch MARK; ulimit -s 1024"),
    Case("threads that spin", (), wrapper="touch MARK; export OMP_WAIT_POLICY=ACTIVE GOMP_SPINCOUNT=100000"),
    Case("nice 10", (), wrapper="touch MARK; renice 10 $$ >/dev/null"),
    Case("no core and another umask", (), wrapper="touch MARK; ulimit -c 0; umask 077"),
)
"""Written down before the judge was read, after `tests.smoke.outside_files`."""
