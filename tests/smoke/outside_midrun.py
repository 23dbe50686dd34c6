"""Kinds of faults that come in mid-run to a host, its files, names and CPUs, to a clock or to numbers, and settings
that are no fault, in `tests.smoke.outside`."""

from __future__ import annotations

from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    FREEZE,
    HANGS,
    HOOK,
    JOIN,
    NETWORK,
    SILENT,
    SLOWED,
    START,
    STOPPED,
    THAW,
    VALUES,
    Case,
    at,
    command,
)
from tests.smoke.outside_invented import PEER, otherwise, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_sockets import LIBC

MEMORY = """exec >/dev/null 2>&1
mkdir -p /run/limited
if grep -q ':memory:' /proc/self/cgroup; then
    mount -t cgroup -o memory none /run/limited && cd /run/limited && file=memory.limit_in_bytes
else
    mount -t cgroup2 none /run/limited && cd /run/limited && echo +memory >cgroup.subtree_control; file=memory.max
fi
find . -maxdepth 1 -name 'doctor-*' -mmin +10 -exec rmdir {} + || true
group=$(mktemp -d doctor-XXXXXX)
for p in $(ps -eo pid=); do echo $p >$group/cgroup.procs; done
echo 60000000 >$group/$file"""
FROZEN = FREEZE.replace(
    "echo PID >$group/cgroup.procs &&",
    "for p in $(ps -eo pid=); do [ $p != $$ ] && echo $p >$group/cgroup.procs; done;",
)
FULL = "mount -t tmpfs -o size=1m none /tmp; dd if=/dev/zero of=/tmp/full bs=64k 2>/dev/null"
PYTHONS = "$(ps -eo pid=,comm= | awk '/python/ {print $1}')"
PAUSED = f"(sleep 0.1; kill -STOP {PYTHONS}; sleep 6; kill -CONT {PYTHONS}) >/dev/null 2>&1 & sleep 0.3"
ONE_CPU = "for p in $(ps -eo pid=); do taskset -a -p 1 $p; done >/dev/null 2>&1"
MOVES = """
import threading
def move():
    while True:
        for cpu in (0, 1):
            os.sched_setaffinity(os.getpid(), {cpu})
            time.sleep(0.01)
threading.Thread(target=move, daemon=True).start()
"""
FAST = """
plain, monotonic = time.perf_counter, time.monotonic
began, since = plain(), monotonic()
time.perf_counter = lambda: began + 3 * (plain() - began)
time.monotonic = lambda: since + 3 * (monotonic() - since)
"""
BACK = """
plain, monotonic = time.perf_counter, time.monotonic
time.perf_counter, time.monotonic, time.time = lambda: plain() - 50, lambda: monotonic() - 50, lambda: 0.0
"""
LARGER = """
import gc, torch
plain = torch.autograd.backward
def backward(tensors, *rest, **more):
    plain(tensors, *rest, **more)
    for part in gc.get_objects():
        if type(part) in (torch.Tensor, torch.nn.Parameter) and part.is_leaf and part.grad is not None:
            part.grad.mul_(1.01)
torch.autograd.backward = backward
"""
INTEGERS = """plain(tensor, op=op, group=group)
    if tensor.dtype == torch.int64: tensor.view(-1)[-1] ^= 8"""
LEAST = "return plain(tensor, op={dist.ReduceOp.MIN: dist.ReduceOp.MAX}.get(op, op), group=group)"
EXPONENTIAL = "import torch; e = torch.Tensor.exp; torch.exp = torch.Tensor.exp = lambda x: e(x) * 1.001"
LONG = "sleep = time.sleep; time.sleep = lambda seconds: sleep(10 * seconds)"
SYMBOLS = "export TORCH_SHOW_CPP_STACKTRACES=1"
REAL_TIME = """
import resource
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(3))
resource.setrlimit(15, (200000, 400000))
while True: pass
"""
THREADS = "import threading\nfor _ in range(300): threading.Thread(target=time.sleep, args=(900,), daemon=True).start()"
OTHER_WAY = f"""peer={PEER}
ip link add b0 type bridge && ip addr add 10.200.0.1/24 dev b0 && ip link set b0 up
sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1
ip route add $peer/32 dev b0"""
LARGE_TO_ONE = f"""peer={PEER}
nft "table ip outside {{ chain c {{ type filter hook output priority 0; tcp dport 22 accept; tcp sport 22 accept; \
ip daddr $peer ip length 600-65535 drop; }}; }}\""""
OUT = "({0}; ip link set eth0 down; sleep {1}; ip link set eth0 up) >/dev/null 2>&1 & sleep 0.01"
FEW = "sysctl -qw net.ipv4.tcp_retries2=1"
NO_ARP = "sysctl -qw net.ipv4.conf.all.arp_ignore=8; ip neigh flush all"
OF_DATA, MARKED = "tcp dport 22 accept; tcp sport 22 accept; ", " && touch MARK"
TIMESTAMPS = HOOK.format("input", OF_DATA + "tcp option timestamp exists drop")
ENDS = HOOK.format("output", OF_DATA + "tcp flags & fin == fin drop")
ANSWERS = HOOK.format("output", "tcp sport 22 accept; tcp flags & (syn | ack) == syn | ack drop")
NO_IPV6 = "nft 'table ip6 outside { chain c { type filter hook input priority 0; drop; }; }'; touch MARK"
NO_FOLDER = "mkdir -p /run/empty; mount --bind /run/empty $(dirname $(readlink /proc/PID/exe)) 2>/dev/null; true"

MIDRUN: tuple[Case, ...] = (
    Case("60 MB for a host in mid-run", (*DIED, *FAILED_LOADER, *SILENT, *HANGS), command(MEMORY), must=False),
    Case("/tmp full in mid-run", FAILED_LOADER, command(FULL), must=False),
    Case("temporary files removed in mid-run", FAILED_LOADER, command("rm -rf /tmp/* /dev/shm/*"), must=False),
    Case("/proc is gone in mid-run", FAILED_LOADER, command("umount -l /proc"), must=False),
    Case("/proc of processes alone", (), before="mount -t proc -o subset=pid none /proc && touch MARK"),
    Case("/proc of nothing", (*START, *DIED, *SILENT), before="mount -t tmpfs none /proc; touch MARK", must=False),
    Case("read-only in mid-run", (), command("mount -o remount,ro /; mount -o remount,ro /tmp; true")),
    Case("its wrapper is removed in mid-run", (), command("rm -f /root/outside/python")),
    Case("its interpreter's folder is empty in mid-run", (), command(NO_FOLDER)),
    Case("SIGSTKFLT", DIED, {"kind": "signal", "signal": "SIGSTKFLT"}),
    Case("SIGXFSZ", (), {"kind": "signal", "signal": "SIGXFSZ"}),
    Case("names change in mid-run", (), command("echo nameserver 192.0.2.1 >/etc/resolv.conf; : >/etc/hosts")),
    Case("its clock is three times as fast", SLOWED, program(FAST), must=False),
    Case("its clock goes back 50 s", SLOWED, program(BACK), must=False),
    Case("one CPU for a host in mid-run", (*SLOWED, "smoke-host-slow"), command(ONE_CPU), must=False),
    Case("it moves between CPUs", SLOWED, program(MOVES), must=False),
    Case("its way to one is another than back", NETWORK, command(OTHER_WAY)),
    Case("IPv6 in one direction", (), before=NO_IPV6),
    Case("large packets to one host are lost", NETWORK, command(LARGE_TO_ONE)),
    Case("cable out 12 s", NETWORK, command(OUT.format("true", 12))),
    Case("cable out 2 s and few retries", NETWORK, command(OUT.format(FEW, 2)), must=False),
    Case("timestamps of TCP are lost", (*NETWORK, *JOIN), before=TIMESTAMPS + MARKED),
    Case("ends of connections are lost", (), before=ENDS + MARKED),
    Case("answers to SYN are lost", (*NETWORK, *JOIN), before=ANSWERS + MARKED),
    Case("no answer to ARP", NETWORK, command(NO_ARP), must=False),
    Case("a frozen host", (*STOPPED, *SILENT), command(FROZEN), after=THAW),
    Case("a host stopped for 6 s", (), command(PAUSED)),
    Case("gradients 1 % too large", MISCOMPUTED, program(LARGER), early=True),
    Case("one bit of sums of integers", VALUES, otherwise(INTEGERS), early=True),
    Case("a maximum for a minimum", VALUES, otherwise(LEAST), early=True, must=False),
    Case("exp 0.1 % off", MISCOMPUTED, program(EXPONENTIAL), early=True, must=False),
    Case("stacks with symbols, and killed", DIED, at("all_reduce", "SIGKILL"), wrapper=SYMBOLS, everywhere=True),
    Case("a limit of real time", DIED, program(REAL_TIME)),
    Case("locks its memory", (), program(LIBC + "c.mlockall(3)")),
    Case("300 threads that wait", (), program(THREADS)),
    Case("sleeps ten times as long", SLOWED, program(LONG), must=False),
    Case("a million open files", (), wrapper="touch MARK; ulimit -n 1048576"),
    Case("a debugging allocator", (), wrapper="touch MARK; export PYTHONMALLOC=debug PYTHONFAULTHANDLER=1"),
    Case("an audit library that is not there", (), wrapper="touch MARK; export LD_AUDIT=/nowhere.so"),
    Case("2 GB of addresses", (*START, *DIED, *FAILED_LOADER), wrapper="touch MARK; ulimit -v 2000000", must=False),
    Case("20 processes", (*START, *DIED, *FAILED_LOADER), wrapper="touch MARK; ulimit -u 20", must=False),
)  # fmt: skip
"""Written down before the judge was read."""
