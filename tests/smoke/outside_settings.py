"""Kinds of faults in what a host has set: its shell, its Python, its limits, its queueing disciplines, one address."""

from __future__ import annotations

from tests.faults.kernel import grouped
from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    HANGS,
    JOIN,
    NETWORK,
    SLOWED,
    START,
    VALUES,
    Case,
    command,
    slow_import,
)
from tests.smoke.outside_hosts import CALLS, OF_NEW, REFUSED, denied
from tests.smoke.outside_invented import PEER, program
from tests.smoke.outside_pairs import MISCOMPUTED, within

CALLS |= {"pipe2": 293, "socketpair": 53, "madvise": 28, "epoll_wait": 232}
SLOW_NETWORK = ("smoke-host-slow", "smoke-link-slow", *SLOWED, *NETWORK)
LESS_MEMORY = grouped("memory", "memory.limit_in_bytes", "60000000", "memory.max=60000000")[0]
PEERS_HARDWARE = (
    f"peer={PEER}; ping -c 1 -W 1 $peer; mac=$(ip neigh show $peer | awk '{{print $5; exit}}'); "
    "ip link set eth0 address $mac"
)
HOOK = "import sys\nopen('MARK', 'w').close()\n"
CHILD_RAISES = "import signal; signal.signal(signal.SIGCHLD, lambda *_: 1 / 0)"
TORCH = "sys.modules['torch']"
ODD_NUMBERS = (*VALUES, *DIED, *HANGS)
EVERY_THREAD = slow_import("torch", 0).replace(
    "time.sleep(0)",
    """
        torch = plain("torch")
        set_threads = torch.set_num_threads
        torch.set_num_threads = lambda _: set_threads(64)
        set_threads(64)""".strip(),
)
"""Every rank computes on 64 threads, also where it sets another number."""
FPE = "import ctypes; ctypes.CDLL('libm.so.6').{0}({1})"
INTERRUPTED = "signal.signal(14, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)"
ZOMBIES = "for _ in range(300):\n    os.fork() or os._exit(0)"
ODD_PORTS = OF_NEW.format("tcp sport & 1 == 1 tcp dport & 1 == 1 drop")
OTHER_SOURCE = "ip addr add 192.0.2.77/32 dev eth0; set -- $(ip -4 route show dev eth0 scope link | head -1); "
OTHER_SOURCE += "ip route replace $1 dev eth0 src 192.0.2.77; touch MARK"
SETTINGS: tuple[Case, ...] = (
    Case("prefix of 32 bits in mid-run", NETWORK, command("ip addr flush dev eth0; ip addr add 10.77.9.9/32 dev eth0")),
    Case("its name is ::1", REFUSED, before='echo "::1 $(hostname)" >/etc/hosts; touch MARK', must=False),
    Case("pipe2 is denied", REFUSED, imports=denied("pipe2"), must=False),
    Case("socketpair is denied", (*REFUSED, *FAILED_LOADER), imports=denied("socketpair"), must=False),
    Case("madvise is denied", (), imports=denied("madvise")),
    Case("less memory in mid-run", (*DIED, *NETWORK), command(LESS_MEMORY), must=False),
    Case("no /dev/shm", FAILED_LOADER, before="umount -l /dev/shm; touch MARK", must=False),
    Case("hardware address of a peer", NETWORK, command(PEERS_HARDWARE)),
    Case(
        "HOME is read-only",
        (),
        before="mkdir /run/ro && mount -t tmpfs -o ro none /run/ro && touch MARK",
        wrapper="export HOME=/run/ro",
    ),
    Case("no NUMA nodes", (), before="mount -t tmpfs none /sys/devices/system/node; touch MARK"),
    Case("mtu 1400", (), before="ip link set eth0 mtu 1400; touch MARK"),
    Case("shell with set -e", (), before="printf 'echo hello\\nset -eu\\n' >>/root/.bashrc; touch MARK"),
    Case(
        "sshrc prints",
        (),
        before="mkdir -p /root/.ssh; echo 'printf \"\\\\033[31m{}\\\\n\"' >/root/.ssh/rc; touch MARK",
    ),
    Case("shell that ends", ("host-unreachable", "python3-missing"), before="echo exit 3 >/root/.bashrc; touch MARK"),
    Case(
        "sockets that give up",
        (*REFUSED, *FAILED_LOADER),
        imports=HOOK + "import socket; socket.setdefaulttimeout(0.001)\n",
        must=False,
    ),
    Case("an alarm", (*DIED, *START), program("import signal; signal.setitimer(signal.ITIMER_REAL, 0.2)")),
    Case(
        "threads of 16 GiB",
        (*DIED, *START, *FAILED_LOADER, *JOIN),
        imports=HOOK + "import threading; threading.stack_size(1 << 34)\n",
        must=False,
    ),
    Case("no oneDNN", (), program("import torch; torch.backends.mkldnn.enabled = False"), early=True),
    Case(
        "seeds are not taken",
        (*VALUES, "smoke-reference-differs", "smoke-parameters-not-broadcast", "smoke-loader-seed-differs"),
        program("import torch; torch.manual_seed = lambda *_: torch.default_generator"),
        early=True,
        must=False,
    ),
    Case("CPUs not counted", (), imports=HOOK + "import os; os.cpu_count = lambda: None\n"),
    Case(
        "audit hook prints",
        (),
        imports=HOOK + "sys.addaudithook(lambda name, _: name == 'open' and sys.stderr.write('open\\n'))\n",
    ),
    Case(
        "4 kB to send", SLOW_NETWORK, before="echo 4096 4096 4096 >/proc/sys/net/ipv4/tcp_wmem; touch MARK", must=False
    ),
    Case("all_gather left out", HANGS, within("all_gather_single", kind="skip"), early=True),
    Case("reduce_scatter left out", HANGS, within("reduce_scatter_single", kind="skip"), early=True),
    Case("a message left out", HANGS, within("send", kind="skip", call=1), early=True),
    Case("a message not taken", HANGS, within("recv", kind="skip"), early=True),
    Case("garbage collector that complains", (), program("import gc; gc.callbacks.append(lambda *_: 1 / 0)")),
    Case(
        "children whose ends raise",
        (*DIED, *FAILED_LOADER),
        program("import signal; signal.signal(signal.SIGCHLD, lambda *_: 1 / 0)"),
        must=False,
    ),
    Case("64 threads for torch", (), program("import torch; torch.set_num_threads(64)")),
    Case(
        "float16 by default",
        (*VALUES, *DIED, *HANGS),
        program("import torch; torch.set_default_dtype(torch.float16)"),
        early=True,
    ),
    Case(
        "inference mode",
        (*VALUES, *DIED, *HANGS),
        program("import torch; sys.held = torch.inference_mode(); sys.held.__enter__()"),
        early=True,
    ),
    Case("bfloat16 by default", ODD_NUMBERS, program(f"{TORCH}.set_default_dtype({TORCH}.bfloat16)"), early=True),
    Case("64 threads everywhere", (), imports=EVERY_THREAD, everywhere=True),
    Case("a route that is unreachable", NETWORK, command(f"ip route add unreachable {PEER}/32")),
    Case("a route that throws", NETWORK, command(f"ip route add throw {PEER}/32"), must=False),
    Case("interrupted each millisecond", (), program(INTERRUPTED)),
    Case("children that nobody waits for", (), program(ZOMBIES)),
    Case(
        "another number of itself",
        (*ODD_NUMBERS, *NETWORK),
        program(f"d = {TORCH}.distributed; r = d.get_rank; d.get_rank = lambda group=None: r(group) ^ 1"),
        early=True,
        must=False,
    ),
    Case("odd ports are lost", (*NETWORK, *JOIN, *DIED), before=f"{ODD_PORTS} && touch MARK", must=False),
    Case("a source that others do not know", (*NETWORK, *JOIN, *REFUSED[-1:]), before=OTHER_SOURCE, must=False),
    Case("rounds upwards", MISCOMPUTED, program(FPE.format("fesetround", 0x800)), early=True, must=False),
    Case("inexact results are errors", DIED, program(FPE.format("feenableexcept", 0x20)), early=True, must=False),
    Case(
        "dropout is left out",
        MISCOMPUTED,
        program(f"{TORCH}.nn.functional.dropout = lambda x, *_, **__: x"),
        early=True,
        must=False,
    ),
    Case(
        "powers of two lost",
        MISCOMPUTED,
        program(f"m = {TORCH}.Tensor.mul; {TORCH}.Tensor.mul = lambda a, b: m(a, b) * 0.5"),
        early=True,
        must=False,
    ),
    Case("a counter that stands", (), program("import time; time.perf_counter = lambda: 7.0"), early=True, must=False),
)
"""Those without a check may disturb no run."""
