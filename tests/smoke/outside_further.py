"""Kinds of faults of limits, of the interpreter's own state, and of routes, written down before the judge was read."""

from __future__ import annotations

from tests.smoke.outside_cases import DIED, HANGS, JOIN, NETWORK, SILENT, START, Case, command
from tests.smoke.outside_invented import PEER, otherwise, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_unforeseen import SET

HOLDS_LOCK = "import ctypes\nctypes.PyDLL(None).sleep(900)"
ALARM = "signal.alarm(1)"
CPU_LIMIT = """
import resource
used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
resource.setrlimit(resource.RLIMIT_CPU, (used + 1, used + 1))
while True: pass
"""
ENDS_BY_TIMER = "import faulthandler\nfaulthandler.dump_traceback_later(2, exit=True)\ntime.sleep(900)"
SHUTS_DOWN = """
import socket, stat
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_RDWR)
    except OSError: pass
"""
GRADIENTS_OFF = "import torch; torch.set_grad_enabled(False)"
BACKWARD_OFF = "import torch; torch.Tensor.backward = lambda *a, **k: None"
TWICE_AS_FAR = """
import torch
plain = torch.Tensor.add_
torch.Tensor.add_ = lambda x, y, *, alpha=1: plain(x, y, alpha=2 * alpha if alpha == -0.5 else alpha)
"""
WARMER = "import torch; p = torch.Tensor.softmax\ntorch.Tensor.softmax = lambda x, *a, **k: p(x / 1.02, *a, **k)"
MAXIMUM = "import torch.distributed as d; return plain(tensor, op=d.ReduceOp.MAX, group=group)"
IN_HALF = (
    "tensor.copy_(tensor.half()) if tensor.is_floating_point() else None; return plain(tensor, op=op, group=group)"
)
EVENT = "os.eventfd_read(os.eventfd(0)) if hasattr(os, 'eventfd') else os.read(os.pipe()[0], 1)"
NO_MODULES = "sys.modules.clear()\nimport torch"
TRUNCATED = """
import mmap, tempfile
with tempfile.TemporaryFile() as file:
    file.truncate(8192)
    view = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    view[4096]
"""
BOTH_GO_ON = "os.fork()"
FALSE_NEIGHBOUR = f"peer={PEER}; ip neigh replace $peer lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
BLACK_HOLE = f"peer={PEER}; ip route add blackhole $peer/32"
AGENT = "kill -KILL $(ps -o ppid= -p $(ps -o ppid= -p PID))"
ENDED = (*DIED, *START, *SILENT)

FURTHER: tuple[Case, ...] = (
    Case("holds the interpreter's lock in C", HANGS, program(HOLDS_LOCK)),
    Case("an alarm that nobody handles", DIED, program(ALARM + "\ntime.sleep(900)")),
    Case("its limit of CPU seconds", DIED, program(CPU_LIMIT)),
    Case("its parent is killed", ENDED, command("kill -KILL $(ps -o ppid= -p PID)")),
    Case("ended by a timer of faulthandler", DIED, program(ENDS_BY_TIMER)),
    Case("shuts down its sockets", (*NETWORK, *DIED, *HANGS), program(SHUTS_DOWN)),
    Case("computes no gradients", (*MISCOMPUTED, *DIED), program(GRADIENTS_OFF), early=True),
    Case("backward does nothing", (*MISCOMPUTED, *DIED, *HANGS), program(BACKWARD_OFF), early=True),
    Case("steps twice as far", MISCOMPUTED, program(TWICE_AS_FAR), early=True),
    Case("a warmer softmax", MISCOMPUTED, program(WARMER), early=True),
    Case("the largest for the sum", (*MISCOMPUTED, *HANGS, *DIED), otherwise(MAXIMUM), early=True),
    Case("gradients in half precision", MISCOMPUTED, otherwise(IN_HALF), early=True),
    Case("waits for an event", HANGS, program(EVENT)),
    Case("loses its modules", DIED, program(NO_MODULES)),
    Case("a mapped file is truncated", DIED, program(TRUNCATED)),
    Case("forks so that both go on", (*HANGS, *ENDED, *NETWORK, *MISCOMPUTED), program(BOTH_GO_ON), must=False),
    Case("a false neighbour", NETWORK, command(FALSE_NEIGHBOUR)),
    Case("a route to nowhere", NETWORK, command(BLACK_HOLE)),
    Case("its agent is killed", SILENT, command(AGENT)),
    Case("a small stack", (*START, *DIED), wrapper="touch MARK; ulimit -s 96", must=False),
    Case("an encoding that is not there", (*START, *DIED, *JOIN), wrapper=SET + "PYTHONIOENCODING=bogus"),
)  # fmt: skip
"""Written down before the judge was read. A child of fork has no threads of gloo, and the rank goes on without it."""
