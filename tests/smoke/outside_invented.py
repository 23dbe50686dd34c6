"""Kinds of faults that were written down before the judge was read: `tests.smoke.outside` tries them as its last."""

from __future__ import annotations

from typing import Any

from tests.smoke.outside_cases import (
    BINDS,
    DIED,
    FAILED_LOADER,
    HANGS,
    HELD_BACK,
    HOOK,
    JOIN,
    NETWORK,
    SILENT,
    SLOWED,
    START,
    STOPPED,
    VALUES,
    Case,
    at,
    at_import,
    command,
    in_group,
    nft,
    slow_import,
    text_error,
)


def program(text: str) -> dict[str, Any]:
    """Python that the rank itself runs at the call."""
    return {"kind": "program", "program": text}


def limited(percent: int) -> dict[str, Any]:
    """A CPU quota of the rank, whose control groups the host does not show where they are looked for."""
    return command(in_group("cpu", f"cpu.cfs_quota_us={percent}000", f"cpu.max={percent}000 100000"))


PEER = """$(ss -Htn state established | awk '{local = $3; peer = $4; sub(/:[0-9]+$/, "", local)}
{sub(/:[0-9]+$/, "", peer)}
$3 !~ /:22$/ && peer !~ /^127/ && peer != local {print peer; exit}')"""
"""Address of a host that the guilty one has a connection with, which is not that of its SSH server."""
HOG = """
import threading
def hog():
    while True:
        sum(range(20000))
threading.Thread(target=hog, daemon=True).start()
"""

SOCKETS = """
import socket
for number in range(3, 400):
    try:
        file = socket.socket(fileno=os.dup(number))
        if file.family in (2, 10) and file.type == 1 and file.getpeername():
            ACT
    except OSError:
        pass
"""
"""For each connection of the rank."""
LOCKED = """
import fcntl, subprocess
holder = subprocess.Popen(["sh", "-c", "exec 9>/tmp/locked; flock 9; echo held; sleep 900"], stdout=subprocess.PIPE)
holder.stdout.readline()
fcntl.flock(open("/tmp/locked", "w"), fcntl.LOCK_EX)
"""
DEAF = """
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGABRT):
    signal.signal(number, signal.SIG_IGN)
time.sleep(900)
"""

CUT = """
import mmap
file = open('/tmp/cut', 'w+b')
file.truncate(16384)
mapped = mmap.mmap(file.fileno(), 16384)
file.truncate(0)
mapped[9000]
"""
WATCHDOG = """
def overdue(*_): raise TimeoutError('the step took too long')
signal.signal(signal.SIGALRM, overdue)
signal.setitimer(signal.ITIMER_REAL, 0.2)
"""
SLOW_DISK = """
import sys, time
open("MARK", "w").close()
sys.addaudithook(lambda event, _: event == "open" and time.sleep(0.004))
"""
OTHER_THREAD = """
import threading, torch
def other(): torch.distributed.all_reduce(torch.ones(3))
threading.Thread(target=other, daemon=True).start()
"""

NAMED = """
import ctypes
ctypes.CDLL(None).prctl(15, b"x) R 1 (1) S", 0, 0, 0)
time.sleep(900)
"""
"""The name of its process looks like fields of its state."""
LEADER = """
import ctypes, threading
threading.Thread(target=time.sleep, args=(900,)).start()
ctypes.PyDLL(None).PyEval_SaveThread()
ctypes.PyDLL(None).pthread_exit(None)
"""
"""The first thread of the process ends, and others go on."""
MUTE = """
ends = os.pipe()
os.dup2(ends[1], 1)
os.write(1, bytes(65536))
print("x" * 65536, flush=True)
"""
LIES = """
texts = ['{"event": "error", "rank": 0, "text": "uncorrectable ECC error"}', "ncclInternalError: rank 0 failed"]
texts += ["Traceback (most recent call last):", "RuntimeError: [rank0] Watchdog caught a timeout"]
for text in texts:
    os.write(1, text.encode() + bytes([10]))
    os.write(2, text.encode() + bytes([10]))
"""
OTHERWISE = """
import torch
dist, plain = torch.distributed, torch.distributed.all_reduce
def otherwise(tensor, op=dist.ReduceOp.SUM, group=None, **more):
    ACT
dist.all_reduce = otherwise
"""
HELD = """
import gc, torch
with torch.no_grad():
    for part in gc.get_objects():
        if isinstance(part, torch.Tensor) and part.is_floating_point() and part.requires_grad and part.numel():
            part.view(-1)[3 % part.numel()] += 0.5
"""
"""Numbers in the rank's memory."""
WORKER = """
import threading
thread = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGSEGV))
thread.start()
thread.join()
"""
SEMAPHORE = "import multiprocessing; multiprocessing.Semaphore(0).acquire()"
WITHIN = HOOK.format("input", "iifname lo tcp dport 1024-65535 drop")
ACKNOWLEDGED = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta length < 80 drop")
RENUMBERED = (
    "set -- $(ip -4 -o addr show eth0 | awk '{print $4}' | tr / ' '); "
    "ip addr flush dev eth0; ip addr add ${1%.*}.200/$2 dev eth0"
)


def otherwise(act: str) -> dict[str, Any]:
    """From the next call on all_reduce is something else."""
    return program(OTHERWISE.replace("ACT", act))


INVENTED: tuple[Case, ...] = (
    *(Case(f"rank's hidden {share} %", SLOWED, limited(share), early=True, binds=BINDS) for share in (5, 10)),
    Case("rank's hidden 50 %", SLOWED, limited(50), early=True, must=False, binds=BINDS),
    Case("host's hidden 3 %", SLOWED, limited(3), early=True, whole_host=True, binds=BINDS),
    Case("idle priority of one rank", SLOWED, command("chrt -i -p 0 PID"), must=False),
    Case("one CPU for a host", (*SLOWED, "smoke-host-slow"), command("taskset -p 1 PID"), whole_host=True, must=False),
    # The kernel ignores them in a process group whose parents are all of other sessions (setpgid(2)), as a rank's are.
    *(Case(name, STOPPED, {"kind": "signal", "signal": name}, must=False) for name in ("SIGTSTP", "SIGTTIN")),
    Case("SIGSTOP at all_gather", STOPPED, at("all_gather_single", "SIGSTOP"), early=True),
    Case("SIGKILL at all_to_all", DIED, at("all_to_all_single", "SIGKILL"), early=True),
    Case("SIGSEGV at pairs", DIED, at("batch_isend_irecv", "SIGSEGV"), early=True),
    Case(
        "sleep at reduce_scatter",
        HANGS,
        {"kind": "late", "seconds": 900, "function": "reduce_scatter_single"},
        early=True,
    ),
    Case("spin at broadcast", HANGS, {"kind": "spin", "function": "broadcast"}, early=True),
    Case("exit 7", DIED, program("os._exit(7)")),
    Case("system exit", (*DIED, "smoke-rank-left"), program("raise SystemExit(0)")),
    Case(
        "ends from a thread",
        DIED,
        program("import threading; threading.Timer(0.05, os._exit, (3,)).start()"),
    ),
    Case("becomes sleep", (*DIED, *HANGS, "smoke-rank-stopped"), program("os.execv('/bin/sleep', ['sleep', '900'])")),
    Case("a child goes on", (*DIED, "smoke-rank-left"), program("os.fork() and os._exit(0)")),
    Case("files closed", (*DIED, *HANGS, *NETWORK), program("os.closerange(3, 400)")),
    Case("output closed", (), program("os.close(1); os.close(2)"), must=False),
    Case(
        "no more files", (*DIED, *FAILED_LOADER), program("import resource; resource.setrlimit(7, (3, 3))"), must=False
    ),
    Case("a hog in the rank", SLOWED, program(HOG), early=True, must=False),
    Case("memory error", DIED, text_error("MemoryError", "")),
    Case(
        "denied",
        DIED,
        text_error("PermissionError", "[Errno 13] Permission denied: '/dev/davinci0'"),
    ),
    Case(
        "accuses a peer that is not there",
        (*DIED, *NETWORK),
        text_error("RuntimeError", "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [192.0.2.7]:40001"),
        must=False,
    ),
    Case("few processes", (*DIED, *FAILED_LOADER), command(in_group("pids", "pids.max=2", "pids.max=2")), must=False),
    Case("black hole to one", NETWORK, command(f"ip route add blackhole {PEER}/32")),
    Case("wrong neighbour", NETWORK, command(f"ip neigh replace {PEER} lladdr 02:00:00:00:00:99 dev eth0")),
    Case("mtu 200", ("host-unreachable",), before="ip link set eth0 mtu 200; touch MARK", must=False),
    Case(
        "tbf 16 kbit",
        (*NETWORK, *JOIN, *SILENT, "smoke-host-slow", "smoke-budget-spent"),
        before="tc qdisc add dev eth0 root tbf rate 16kbit burst 4kb latency 900ms && touch MARK",
    ),
    Case(
        "no numpy",
        (*START, "smoke-numpy-missing"),
        imports=at_import("sys.modules['numpy'] = None").replace("import builtins", "import sys, builtins"),
        must=False,
    ),
    Case("loud import", (), imports=at_import("print('x' * (8 << 20)); os.write(2, b'warning: ' + b'y' * 60000)")),
    Case("sums 0.1 % off", VALUES, {"kind": "scaled", "factor": 1.001, "every": 1}, early=True),
    Case("always 50 ms late", SLOWED, {"kind": "late", "seconds": 0.05, "every": 1}, early=True, must=False),
    Case(
        "gathers in another order",
        VALUES,
        {"kind": "corrupt", "function": "all_gather_single", "how": "shifted", "place": 0, "every": 1},
        early=True,
    ),
    Case(
        "products negated now and then",
        (*VALUES, "smoke-reference-differs"),
        {"kind": "corrupt", "function": "__matmul__", "how": "negated", "place": 0, "every": 5},
        early=True,
    ),
    Case("GIL held in C", (*HANGS, *NETWORK[:1]), program("import ctypes; ctypes.PyDLL(None).sleep(900)")),
    Case("reads a FIFO", HANGS, program("os.mkfifo('/tmp/fifo'); open('/tmp/fifo').read()")),
    Case("waits for a file lock", HANGS, program(LOCKED)),
    Case("ignores signals and sleeps", HANGS, program(DEAF)),
    Case("connections shut down", (*DIED, *NETWORK, *HANGS), program(SOCKETS.replace("ACT", "file.shutdown(2)"))),
    Case(
        "bytes of peers taken",
        (*DIED, *NETWORK, *HANGS, *VALUES),
        program("time.sleep(0.3)" + SOCKETS.replace("ACT", "file.recv(64, socket.MSG_DONTWAIT)")),
        must=False,
    ),
    Case(
        "float64 by default",
        (*VALUES, *HANGS, *DIED, "smoke-reference-differs"),
        program("import torch; torch.set_default_dtype(torch.float64)"),
        early=True,
        must=False,
    ),
    Case("64 threads", SLOWED, program("import torch; torch.set_num_threads(64)"), early=True, must=False),
    Case(
        "address space in the midst",
        (*DIED, *FAILED_LOADER),
        program("import resource; resource.setrlimit(9, (1 << 20, 1 << 20))"),
        must=False,
    ),
    Case(
        "profiling signals",
        (),
        program("signal.signal(27, lambda *_: None); signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)"),
    ),
    Case("working folder removed", (), program("os.mkdir('/tmp/gone'); os.chdir('/tmp/gone'); os.rmdir('/tmp/gone')")),
    Case("hostname changed", (), before="hostname other; touch MARK"),
    Case("30 ms a send", ("smoke-host-slow", "smoke-rank-slow", *SLOWED), environ={"OUTSIDE_DELAY_MS": "30"}),
    Case("loader child spins", FAILED_LOADER, {"kind": "spin", "child": True}),
    Case("loader child late", FAILED_LOADER, {"kind": "late", "seconds": 0.5, "child": True}, must=False),
    Case("endless recursion", DIED, program("deeper = lambda deep: deep(deep)\ndeeper(deeper)")),
    Case("interrupted", DIED, text_error("KeyboardInterrupt", "")),
    Case("a thread fails", (), program("import threading; threading.Thread(target=int, args=('x',)).start()")),
    Case(
        "rows of all_to_all zeroed",
        VALUES,
        {"kind": "corrupt", "function": "all_to_all_single", "how": "row", "place": 0, "every": 1},
        early=True,
    ),
    Case(
        "bits of broadcasts",
        (*VALUES, "smoke-parameters-not-broadcast"),
        {"kind": "corrupt", "function": "broadcast", "how": "bit", "place": 2, "bit": 6, "every": 1, "call": 1},
    ),
    Case(
        "exit handler hangs", (*HANGS, *STOPPED), program("import atexit; atexit.register(time.sleep, 900)"), must=False
    ),
    Case("warnings are errors", (*START, *DIED), before="touch MARK", environ={"PYTHONWARNINGS": "error"}, must=False),
    Case("a mapped file is cut", DIED, program(CUT)),
    Case(
        "connections are /dev/null",
        (*DIED, *NETWORK, *HANGS),
        program(SOCKETS.replace("ACT", "os.dup2(os.open('/dev/null', 2), number)")),
    ),
    Case(
        "a quota of bytes",
        NETWORK,
        command(nft("tcp dport 22 accept", "tcp sport 22 accept", "meta l4proto tcp quota over 200 kbytes drop")),
    ),
    Case("a watchdog raises", DIED, program(WATCHDOG)),
    Case("no gradients", (*DIED, *HANGS, *VALUES), program("import torch; torch.set_grad_enabled(False)"), early=True),
    Case("a tracer", SLOWED, program("def trace(*_): return trace\nsys.settrace(trace)"), early=True, must=False),
    Case(
        "ended by faulthandler", DIED, program("import faulthandler; faulthandler.dump_traceback_later(0.4, exit=True)")
    ),
    Case("collectives of a thread", (*HANGS, *DIED, *VALUES), program(OTHER_THREAD), early=True),
    Case(
        "its group destroyed",
        (*DIED, *HANGS, *NETWORK),
        program("sys.modules['torch'].distributed.destroy_process_group()"),
    ),
    Case("a full pipe", HANGS, program("os.write(os.pipe()[1], bytes(1 << 20))")),
    Case("waits for its child", HANGS, program("subprocess.run(['sleep', '900'])")),
    Case("its clock stands", (*SLOWED, *HANGS), program("time.monotonic = time.time = lambda: 5.0"), must=False),
    Case("no name server", (), before="echo nameserver 10.255.255.1 >/etc/resolv.conf; touch MARK"),
    Case(
        "its name is loopback",
        (*NETWORK, *JOIN, "smoke-environment-fails"),
        before='echo "127.0.1.1 $(hostname)" >>/etc/hosts; touch MARK',
        must=False,
    ),
    Case("a slow disk", (), imports=SLOW_DISK),
    Case("another user in the midst", (*DIED, *FAILED_LOADER), program("os.setuid(65534)"), must=False),
    Case("another seed", VALUES, program("import torch; torch.manual_seed(7)"), early=True, must=False),
    Case("a name with brackets, and sleeps", HANGS, program(NAMED)),
    Case("its first thread ends", (*HANGS, *DIED, *STOPPED), program(LEADER)),
    Case("waits for a signal", HANGS, program("signal.pause()")),
    Case("waits for a semaphore", HANGS, program(SEMAPHORE)),
    Case("its output is a full pipe", HANGS, program(MUTE)),
    Case("prints the words of others", (), program(LIES)),
    *(Case(name, DIED, {"kind": "signal", "signal": name}) for name in ("SIGTRAP", "SIGVTALRM", "SIGRTMIN")),
    Case("SIGUSR1", DIED, {"kind": "signal", "signal": "SIGUSR1"}, must=False),
    Case("a thread of it is ended by SIGSEGV", DIED, program(WORKER)),
    Case("sums are zero", (*VALUES, "smoke-update-missing"), {"kind": "wrong", "factor": 0, "every": 1}, early=True),
    Case("a maximum for a sum", VALUES, otherwise("return plain(tensor, op=dist.ReduceOp.MAX, group=group)")),
    Case(
        "reduce for all_reduce",
        (*HANGS, *DIED, *VALUES),
        otherwise("return dist.reduce(tensor, dist.get_process_group_ranks(group)[0], group=group)"),
    ),
    Case("a barrier for all_reduce", (*HANGS, *DIED, *VALUES), otherwise("return dist.barrier(group=group)")),
    Case(
        "half of the elements",
        (*HANGS, *DIED, *VALUES),
        otherwise("return plain(tensor.view(-1)[: (tensor.numel() + 1) // 2], op=op, group=group)"),
        must=False,
    ),
    Case(
        "float64 for float32",
        (*HANGS, *DIED, *VALUES),
        otherwise("wide = tensor.double(); plain(wide, op=op, group=group); return tensor.copy_(wide)"),
    ),
    Case("no way within the host", (*NETWORK, *JOIN), before=f"{WITHIN} && touch MARK", must=False),
    Case("acknowledgements are lost", NETWORK, command(ACKNOWLEDGED)),
    Case("a route that is prohibited", NETWORK, command(f"ip route add prohibit {PEER}/32")),
    Case("another address", (*NETWORK, *SILENT), command(RENUMBERED)),
    # So do the workers of its loader, which it forks.
    Case(
        "killed at its end",
        (*DIED, *FAILED_LOADER),
        program("os._exit = lambda _: os.kill(os.getpid(), 9)"),
        must=False,
    ),
    Case(
        "sleeps at its end",
        (*HANGS, *STOPPED, *FAILED_LOADER),
        program("os._exit = lambda _: time.sleep(900)"),
        must=False,
    ),
    Case("denormals are zero", (), program("import torch; torch.set_flush_denormal(True)"), early=True),
    Case("parameters changed in memory", VALUES, program(HELD), must=False),
    Case("children are not waited for", FAILED_LOADER, program("signal.signal(17, signal.SIG_IGN)"), must=False),
    Case("stopped for 8 s", STOPPED, command("(kill -STOP PID; sleep 8; kill -CONT PID) & sleep 0.01"), must=False),
    Case("/dev/shm is read-only", FAILED_LOADER, command("mount -o remount,ro /dev/shm"), must=False),
    Case("one draw more", VALUES, program("import torch; torch.rand(1)"), early=True, must=False),
    Case("quotas and slow imports", (), before=HELD_BACK, imports=slow_import("torch", 15), everywhere=True),
    Case("idle and native", (), wrapper="touch MARK; chrt -i -p 0 $$", everywhere=True, arguments=("--native",)),
    Case("idle priority of one host", (), wrapper="touch MARK; chrt -i -p 0 $$"),
    Case("slow disks", (), imports=SLOW_DISK, everywhere=True),
    Case("native and quotas", (), before=HELD_BACK, everywhere=True, arguments=("--native",)),
    Case("import of 20 s at the first collective", (), imports=slow_import("torch.distributed.fsdp", 20)),
)
