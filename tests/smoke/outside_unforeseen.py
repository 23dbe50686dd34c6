"""Kinds of faults in hooks, timers, limits and priorities of a rank, in packets that come in, in calls of the kernel
that are refused in mid-run, and settings that are no fault, in `tests.smoke.outside`."""

from __future__ import annotations

from tests.smoke.outside_cases import DIED, FAILED_LOADER, HANGS, HOOK, NETWORK, SLOWED, VALUES, Case, command
from tests.smoke.outside_hosts import CALLS, denied
from tests.smoke.outside_invented import PEER, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_sockets import LIBC
from tests.smoke.outside_stack import BROKEN
from tests.smoke.outside_work import SLOW_NETWORK, of_child

CALLS |= {"futex": 202, "mmap": 9, "munmap": 11, "recvfrom": 45, "readv": 19, "recvmsg": 47, "read": 0, "close": 3}
CALLS |= {"bind": 49, "socket": 41, "getsockopt": 55, "epoll_ctl": 233, "gettid": 186, "sched_yield": 24}
MUTE = "import faulthandler; faulthandler.disable(); [faulthandler.unregister(n) for n in (10, 12)]\n"
IN_HOOK = """
import torch
plain = torch.Tensor.register_hook
torch.Tensor.register_hook = lambda tensor, hook: plain(tensor, lambda gradient: time.sleep(900) or hook(gradient))
"""
IN_BACKWARD = """
import torch
class Stuck(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        while True: pass
plain = torch.layer_norm
torch.layer_norm = lambda x, *rest, **more: plain(Stuck.apply(x), *rest, **more)
"""
CHILD_RAISES = "if not os.fork():\n    raise RuntimeError('of a child')"
CHILD_LEAVES = "if not os.fork():\n    sys.exit(3)\nos.wait()"
CHILD_KILLED = "pid = os.fork()\nif not pid:\n    signal.pause()\nos.kill(pid, 9)\nos.waitpid(pid, 0)"
POLICED = HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; meta l4proto tcp limit rate over RATE drop")
POLICED += " && touch MARK"
OWN_ROUTE = "set -- $(ip -4 route show dev eth0 scope link | head -1); ip route change $1 dev eth0 {0} && touch MARK"
GLOO_LAST = """
import ctypes
for task in os.listdir("/proc/self/task"):
    if int(task) != os.getpid():
        os.sched_setscheduler(int(task), os.SCHED_{0}, os.sched_param(0))
"""
GLOO_STOPS = """
import ctypes, threading
libc = ctypes.CDLL(None)
own = {thread.native_id for thread in threading.enumerate()}
for task in os.listdir("/proc/self/task"):
    if int(task) not in own:
        libc.syscall(234, os.getpid(), int(task), NUMBER)
"""
UNMAPS = """
import ctypes
for line in open("/proc/self/maps"):
    if "libtorch_cpu" in line and "r-xp" in line:
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        ctypes.CDLL(None).munmap(ctypes.c_void_p(low), ctypes.c_size_t(high - low))
"""
OTHER_SCALE = "import torch; p = torch.Tensor.softmax\n"
OTHER_SCALE += "torch.Tensor.softmax = lambda x, *a, **k: p(x, *a, **k) * (1 + 2e-3)"
FEWER = "import torch; p = torch.Tensor.div_\n"
FEWER += "torch.Tensor.div_ = lambda x, n, *a, **k: p(x, n + 1 if n == int(n) else n)"
HALF_LR = "import torch; p = torch.Tensor.add_\n"
HALF_LR += "torch.Tensor.add_ = lambda t, o, *, alpha=1: p(t, o, alpha=alpha / 2 if alpha == -0.5 else alpha)"
LOST_STEP = HALF_LR.replace("alpha / 2", "0")
UNEVEN = "import torch; p = torch.Tensor.mean\ntorch.Tensor.mean = lambda x, *a, **k: p(x, *a, **k) * 1.003"
QUIET = "import ctypes; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)"
LIMIT_IN_RUN = "import resource; resource.setrlimit(resource.{0}, ({1}, {1}))"
PATCHED_SEED = "import random, torch\nrandom.seed(1); torch.manual_seed(1)\n"
NICE_LOADER = "os.nice(19)"
SET = "touch MARK; export "

UNFORESEEN: tuple[Case, ...] = (
    Case("sleeps without stacks", HANGS, program(MUTE + "time.sleep(900)")),
    Case("a hook of a gradient sleeps", HANGS, program(IN_HOOK), early=True, must=False),
    Case("spins in the backward pass", HANGS, program(IN_BACKWARD), early=True),
    Case("a child raises", DIED, program(CHILD_RAISES), must=False),
    Case("a child exits", DIED, program(CHILD_LEAVES), must=False),
    Case("a child is killed", (), program(CHILD_KILLED)),
    Case("1 Mbit/s comes in", SLOW_NETWORK, before=POLICED.replace("RATE", "125 kbytes/second")),
    Case("200 Mbit/s come in", SLOW_NETWORK, before=POLICED.replace("RATE", "25 mbytes/second"), must=False),
    Case("its threads have idle priority", SLOWED, program(GLOO_LAST.format("IDLE")), must=False),
    Case("its threads are of batches", (), program(GLOO_LAST.format("BATCH"))),
    Case("its threads get SIGSTOP", (*HANGS, "smoke-rank-stopped"), program(GLOO_STOPS.replace("NUMBER", "19"))),
    Case("its threads get SIGSEGV", DIED, program(GLOO_STOPS.replace("NUMBER", "11"))),
    Case("torch is unmapped", DIED, program(UNMAPS)),
    Case("reads are denied in mid-run", (*NETWORK, *DIED, *HANGS), program(denied("recvfrom", "readv", "recvmsg"))),
    Case("bind is denied", BROKEN, imports=denied("bind")),
    Case("socket is denied", BROKEN, imports=denied("socket", errno=97)),
    Case("getsockopt is denied", BROKEN, imports=denied("getsockopt"), must=False),
    Case("mmap is denied in mid-run", (*DIED, *FAILED_LOADER, *HANGS), program(denied("mmap", errno=12)), must=False),
    Case("epoll_ctl is denied in mid-run", (*DIED, *HANGS, *NETWORK), program(denied("epoll_ctl")), must=False),
    Case("128 files in mid-run", FAILED_LOADER, program(LIMIT_IN_RUN.format("RLIMIT_NOFILE", 20)), must=False),
    Case("no stack in mid-run", (), program(LIMIT_IN_RUN.format("RLIMIT_STACK", 1 << 20)), must=False),
    Case("weights of attention 0.2 % too large", MISCOMPUTED, program(OTHER_SCALE), early=True),
    Case("mean over one too many", MISCOMPUTED, program(FEWER), early=True),
    Case("half of the learning rate", (*MISCOMPUTED, "smoke-update-missing"), program(HALF_LR), early=True),
    Case("steps are lost", (*MISCOMPUTED, "smoke-update-missing"), program(LOST_STEP), early=True),
    Case("means 0.3 % too large", MISCOMPUTED, program(UNEVEN), early=True),
    Case("segments of 100 bytes by its route", SLOW_NETWORK, before=OWN_ROUTE.format("advmss 100"), must=False),
    Case("one packet at first by its route", (), before=OWN_ROUTE.format("initcwnd 1")),
    Case("late repeats by its route", SLOW_NETWORK, before=OWN_ROUTE.format("rto_min 2s"), must=False),
    Case("its route to one is reno of small windows", (), command(
        f"peer={PEER}; ip route add $peer/32 dev eth0 congctl reno initcwnd 2 || true"), must=False),
    Case("seeds set anew in mid-run", MISCOMPUTED, program(PATCHED_SEED), must=False),
    Case("dies with its parent's thread", (), program(QUIET)),
    Case("loader child is nice", SLOWED, of_child(NICE_LOADER), must=False),
    Case("aborts of overflowing connections", (), before="sysctl -qw net.ipv4.tcp_abort_on_overflow=1; touch MARK"),
    Case("one SYN is sent again", (), before="sysctl -qw net.ipv4.tcp_syn_retries=1; touch MARK"),
    Case("verbose products", (), wrapper=SET + "MKL_VERBOSE=1 ONEDNN_VERBOSE=1"),
    Case("OMP shows its settings", (), wrapper=SET + "OMP_DISPLAY_ENV=VERBOSE KMP_SETTINGS=1"),
    Case("waiting threads spin for ever", (), wrapper=SET + "KMP_BLOCKTIME=infinite GOMP_SPINCOUNT=infinite"),
    Case("OMP stacks of 16 kB", (), wrapper=SET + "OMP_STACKSIZE=16k", must=False),
    Case("its bytes are not cached", (), wrapper=SET + "PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX=/nowhere"),
    Case("umask of 0", (), wrapper="touch MARK; umask 0"),
    Case("a dropped capability of the network", (), program(LIBC + "[c.prctl(24, n, 0, 0, 0) for n in (12, 13)]")),
    Case("sums in bfloat16 of one layer", VALUES, program(
        "import torch; p = torch.Tensor.sum\n"
        "torch.Tensor.sum = lambda x, *a, **k: p(x.bfloat16().to(x.dtype) if x.dim() > 3 else x, *a, **k)"),
        early=True, must=False),
)  # fmt: skip
"""Written down before the judge was read."""
