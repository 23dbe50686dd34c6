"""Kinds of faults in the stack of a rank: what starts it, its libraries, its variables, and its connections' bytes."""

from __future__ import annotations

import sys

from tests.smoke.outside_cases import (
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
    at_import,
    command,
)
from tests.smoke.outside_invented import PEER, program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_work import SLOW_NETWORK

BROKEN = (*DIED, *NETWORK, *HANGS, *JOIN, *START, *SILENT)
FOLDER = "mkdir -p /root/outside && cd /root/outside && "
PLUGIN = FOLDER + (
    "mkdir torch_card-1.0.dist-info && printf 'Metadata-Version: 2.1\\nName: torch-card\\nVersion: 1.0\\n' "
    ">torch_card-1.0.dist-info/METADATA && printf '[torch.backends]\\ntorch_card = torch_card:load\\n' "
    '>torch_card-1.0.dist-info/entry_points.txt && printf "{}" >torch_card.py && touch MARK'
)
OWN_PATH = {"PYTHONPATH": "/root/outside"}
NO_CARD = PLUGIN.format(
    "raise ImportError('libcard_hal.so: cannot open shared object file: No such file or directory')\\n"
)
SLOW_CARD = PLUGIN.format("import time\\ndef load(): time.sleep(8)\\n")
NO_EXTENSION = FOLDER + "echo raise ImportError >typing_extensions.py && touch MARK"
EMPTY_LIBRARY = FOLDER + ": >libstdc++.so.6 && touch MARK"
OWN_LIBRARIES = {"LD_LIBRARY_PATH": "/root/outside"}
PAYLOAD = HOOK.format("output", "tcp dport 22 accept; tcp sport 22 accept; {0}")
PAYLOAD = PAYLOAD.replace("{ ", "{{ ").replace("; }", "; }}")
CHANGED_BYTES = PAYLOAD.format("meta l4proto tcp meta length > 600 numgen inc mod 40 == 7 @th,3200,8 set 0x5a")
EACH_NINTH = PAYLOAD.format("meta l4proto tcp numgen inc mod 9 == 0 drop")
FORGETS = "sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_established=1 net.netfilter.nf_conntrack_tcp_loose=0; "
FORGETS += HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; ct state invalid drop")
TO_ONE = f"""peer={PEER}
tc qdisc add dev eth0 root handle 1: prio && tc qdisc add dev eth0 parent 1:3 tbf rate 1mbit burst 16kb latency 900ms
tc filter add dev eth0 parent 1: protocol ip u32 match ip dst $peer/32 flowid 1:3"""
THREAD = """import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
last = max(int(name) for name in os.listdir("/proc/PID/task"))
libc.ptrace(0x4206, last, None, None)
libc.ptrace(0x4207, last, None, None)
time.sleep(60)
"""
INJECTED = "strace -f -qq -o /dev/null -p PID -e trace={0} -e inject={0}:{1} >/dev/null 2>&1 & sleep 1"
COUNT_DOWN = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, 1 << 20))"
GELU = "import torch; f = torch.nn.functional; f.gelu = lambda x, approximate='none': x * torch.sigmoid(1.702 * x)"
SHORT = "import torch; m = torch.Tensor.__matmul__; cut = lambda x: x.bfloat16().float()\n"
SHORT += "torch.Tensor.__matmul__ = lambda a, b: m(cut(a), cut(b)) if a.dtype == torch.float32 else m(a, b)"
ROW = "import torch; m = torch.Tensor.__matmul__\ndef wrong(a, b):\n    c = m(a, b)\n"
ROW += (
    "    if c.dim() > 1 and c.is_floating_point():\n        c = c.clone()\n        c[..., 0, :] *= 1.02\n    return c\n"
)
ROW += "torch.Tensor.__matmul__ = wrong"

PROXIES = "touch MARK; export http_proxy=http://10.255.255.1:3128 https_proxy=http://10.255.255.1:3128 "
PROXIES += "all_proxy=socks5://10.255.255.1:1080 grpc_proxy=http://10.255.255.1:3128"
SHORT_PRODUCTS = "touch MARK; export ONEDNN_DEFAULT_FPMATH_MODE=BF16 DNNL_DEFAULT_FPMATH_MODE=BF16"
STRANGERS = "mount -t tmpfs -o size=2m,mode=1777 none /dev/shm && touch MARK; "
STRANGERS += "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'cat /dev/zero >/dev/shm/theirs' 2>/dev/null"
LARGE_IN = HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; meta l4proto tcp meta length > 1400 drop")
NO_NAMES = "echo 'nameserver 10.255.255.1\noptions timeout:30 attempts:5' >/run/names; "
NO_NAMES += "mount --bind /run/names /etc/resolv.conf"
DATABASE = "import sqlite3\na, b = (sqlite3.connect('/run/job.db', timeout=1e6) for _ in 'ab')\n"
DATABASE += "a.execute('begin exclusive')\nb.execute('begin exclusive')"
LOADER = (
    "import torch.utils.data as d; next(iter(d.DataLoader([1], num_workers=1, collate_fn=lambda _: time.sleep(1e6))))"
)
TLS = "import socket, ssl; a, b = socket.socketpair(); c = ssl.create_default_context(); c.check_hostname = False\n"
TLS += "c.wrap_socket(a)"
JOBS = ("--env", "job", "--", "torchrun", "--nproc-per-node", "1", "train.py")


def through(text: str) -> str:
    """The interpreter is started once more, by this command."""
    return f'touch MARK\n[ "$AGAIN" ] || {{ export AGAIN=1; exec {text} "$0" "$@"; }}'


STACK: tuple[Case, ...] = (
    Case("a plugin of torch without its library", START, before=NO_CARD, environ=OWN_PATH),
    Case("a plugin of torch that takes 8 s", (), before=SLOW_CARD, environ=OWN_PATH),
    Case("a module that torch needs raises", START, before=NO_EXTENSION, environ=OWN_PATH),
    Case("a library of no bytes", START, before=EMPTY_LIBRARY, environ=OWN_LIBRARIES),
    Case("20 ms an event", SLOW_NETWORK, environ={"OUTSIDE_EVENTS_MS": "20"}),
    Case("reads of 100 bytes", SLOW_NETWORK, environ={"OUTSIDE_READ": "100"}, must=False),
    Case("a read of the rendezvous that fails", (*DIED, *NETWORK, *JOIN), environ={"OUTSIDE_BROKEN": "20"}, must=False),
    Case("a read that fails", (*DIED, *NETWORK), environ={"OUTSIDE_BROKEN": "400"}),
    Case("bytes changed on their way out", (*VALUES, *BROKEN), before=f"{CHANGED_BYTES} && touch MARK"),
    Case("each ninth packet is lost", SLOW_NETWORK, before=f"{EACH_NINTH} && touch MARK", must=False),
    Case("a firewall that forgets connections", BROKEN, before=f"{FORGETS} && touch MARK", must=False),
    Case("1 Mbit/s to one host", SLOW_NETWORK, command(TO_ONE), must=False),
    Case("a thread in ptrace", STOPPED, command(f"python3 -c '{THREAD}' & sleep 1")),
    Case("no buffers for what it sends", BROKEN, command(INJECTED.format("writev", "error=ENOBUFS:when=3+"))),
    Case("no memory to map", (*DIED, *FAILED_LOADER), command(INJECTED.format("mmap", "error=ENOMEM")), must=False),
    Case(
        "a second a system call",
        (*HANGS, *SLOWED, *STOPPED, *NETWORK),
        command(INJECTED.format("writev,futex,read", "delay_exit=1000000")),
    ),
    Case("another gelu", MISCOMPUTED, program(GELU), early=True),
    Case("products of bfloat16", MISCOMPUTED, program(SHORT), early=True),
    Case("one row of its products 2 % off", MISCOMPUTED, program(ROW), early=True),
    Case("data of 1 MB in the midst", (*DIED, *FAILED_LOADER), program(COUNT_DOWN), must=False),
    Case("ended after 6 s", (*DIED, *START, *FAILED_LOADER), wrapper=through("timeout 6")),
    Case("a network of its own", BROKEN, wrapper=through("unshare -n")),
    Case("processes of its own", (), wrapper=through("unshare -pf --kill-child"), must=False),
    Case(
        "a terminal of its own",
        START,
        wrapper='touch MARK\n[ "$AGAIN" ] || { export AGAIN=1 ARGS="$*"; exec script -qec "\'$0\' $ARGS" /dev/null; }',
        must=False,
    ),
    Case("an empty environment", (), wrapper=through("env -i AGAIN=1"), must=False),
    Case("output through cat", (), wrapper='touch MARK\n[ "$AGAIN" ] || { export AGAIN=1; "$0" "$@" | cat; exit 0; }'),
    Case("errors among its output", (), wrapper="touch MARK; exec 2>&1"),
    Case("without capabilities", (), wrapper=through("setpriv --bounding-set -all --inh-caps -all --no-new-privs")),
    Case(
        "another user from its start",
        START,
        wrapper=through("setpriv --reuid 65534 --regid 65534 --clear-groups"),
        must=False,
    ),
    Case("an older kernel", (), wrapper=through("setarch --uname-2.6")),
    Case("addresses without chance", (), wrapper=through("setarch -R")),
    Case("no AVX2 in libm", (), wrapper="touch MARK; export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F"),
    Case("huge pages that are not there", (), wrapper="touch MARK; export GLIBC_TUNABLES=glibc.malloc.hugetlb=2"),
    Case("the loader tells all", (), wrapper="touch MARK; export LD_DEBUG=libs,bindings"),
    Case("symbols bound at once", (), wrapper="touch MARK; export LD_BIND_NOW=1"),
    Case("output in UTF-16", START, wrapper="touch MARK; export PYTHONIOENCODING=utf-16", must=False),
    Case("memory is traced", SLOWED, wrapper="touch MARK; export PYTHONTRACEMALLOC=25", must=False),
    Case("logs of torch", (), wrapper="touch MARK; export TORCH_LOGS=+all TORCH_SHOW_CPP_STACKTRACES=1"),
    Case(
        "two numbers of threads",
        (),
        wrapper="touch MARK; export OMP_NUM_THREADS=4,2 OMP_NESTED=true OMP_THREAD_LIMIT=1",
    ),
    Case("path of the program is safe", (), wrapper="touch MARK; export PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1"),
    Case("temporary files cannot be run", (), before="mount -t tmpfs -o noexec,nosuid none /tmp; touch MARK"),
    Case(
        "/dev/shm of another user",
        FAILED_LOADER,
        before="chmod 700 /dev/shm; chown 65534 /dev/shm; touch MARK",
        must=False,
    ),
    Case(
        "libraries are read-only",
        (),
        before="mount --bind {0} {0} && mount -o remount,bind,ro {0} && touch MARK".replace("{0}", sys.prefix),
        must=False,
    ),
    Case(
        "root is an empty folder",
        (*DIED, *FAILED_LOADER),
        program("os.mkdir('/run/none'); os.chroot('/run/none')"),
        must=False,
    ),
    Case("modules forgotten", (*DIED, *FAILED_LOADER), program("sys.modules.clear()"), must=False),
    Case("variables forgotten", (), program("os.environ.clear()"), must=False),
    Case("sleeps are none", (), program("time.sleep = lambda _: None"), must=False),
    Case(
        "a process that another ends in its group",
        DIED,
        command("(sleep 0.3; kill -9 -$(ps -o pgid= -p PID | tr -d ' ')) >/dev/null 2>&1 &"),
    ),
    Case("waits for input of its terminal", HANGS, program("os.read(os.open('/dev/ptmx', os.O_RDWR), 1)")),
    Case("waits for a message queue", HANGS, program("import multiprocessing; multiprocessing.Queue().get()")),
    Case("waits for a timer that is years away", HANGS, program("import select; select.select([], [], [], 10 ** 8)")),
    Case("waits in torch's pool", HANGS, program("import torch; torch.futures.Future().wait()")),
    Case(
        "import of a module that waits for a lock",
        HANGS,
        program(
            "import _imp, threading; _imp.acquire_lock(); t = threading.Thread(target=_imp.acquire_lock); t.start(); "
            "t.join()"
        ),
    ),
    Case("gradient of one step is lost", MISCOMPUTED, {"kind": "unsummed", "every": 3}, early=True),
    Case("raises at its import once", START, imports=at_import("raise OSError(5, 'Input/output error')")),
    Case("no more locked memory", (), wrapper="touch MARK; ulimit -l 0"),
    Case("library of Python is nowhere", START, wrapper="touch MARK; export PYTHONHOME=/nowhere"),
    Case("proxies in its variables", (), wrapper=PROXIES),
    Case("another rank in its variables", (), wrapper="touch MARK; export RANK=0 WORLD_SIZE=1 LOCAL_RANK=7"),
    Case(
        "details of torch.distributed", BROKEN, wrapper="touch MARK; export TORCH_DISTRIBUTED_DEBUG=DETAIL", must=False
    ),
    Case("gloo connects late", BROKEN, wrapper="touch MARK; export TORCH_GLOO_LAZY_INIT=1", must=False),
    Case("gloo over TLS", BROKEN, wrapper="touch MARK; export GLOO_DEVICE_TRANSPORT=TCP_TLS"),
    Case("store without libuv", (), wrapper="touch MARK; export USE_LIBUV=0"),
    Case("products by oneDNN in bfloat16", MISCOMPUTED, wrapper=SHORT_PRODUCTS, must=False),
    Case(
        "number of threads is a word",
        (),
        wrapper="touch MARK; export OMP_NUM_THREADS=all MKL_NUM_THREADS=-1",
        must=False,
    ),
    Case(
        "all threads on one CPU",
        SLOWED,
        wrapper="touch MARK; export GOMP_CPU_AFFINITY=0 OMP_PROC_BIND=true",
        must=False,
    ),
    Case("processes of others are hidden", (), before="mount -o remount,hidepid=2 /proc && touch MARK", must=False),
    Case("/dev/shm full of a stranger's files", FAILED_LOADER, before=STRANGERS, must=False),
    Case("large packets lost on their way in", BROKEN, before=f"{LARGE_IN} && touch MARK", must=False),
    Case("another version of torch", (), imports=at_import("import torch; torch.__version__ = '2.0.1'")),
    Case(
        "anomalies are looked for", SLOWED, program("import torch; torch.autograd.set_detect_anomaly(True)"), must=False
    ),
    Case("pauses in C", HANGS, program("import ctypes; ctypes.CDLL(None).pause()")),
    Case("waits for a name", HANGS, command(f"{NO_NAMES}; exec getent hosts none.example.org"), must=False),
    Case("waits for a database", HANGS, program(DATABASE)),
    Case("waits for a task", HANGS, program("import asyncio; asyncio.run(asyncio.sleep(10 ** 6))")),
    Case("waits for a result", HANGS, program("import concurrent.futures as c; c.Future().result()")),
    Case("waits for two threads", HANGS, program("import threading; threading.Barrier(2).wait()")),
    Case(
        "saves to a FIFO",
        HANGS,
        program("import torch; os.mkfifo('/run/fifo'); torch.save(torch.ones(9), '/run/fifo')"),
    ),
    Case("waits for a queue of torch", HANGS, program("import torch.multiprocessing as m; m.Queue().get()")),
    Case("waits for a loader of its own", HANGS, program(LOADER)),
    Case("waits for TLS", HANGS, program(TLS)),
    Case("every second CPU everywhere", (), wrapper="touch MARK; taskset -p 2 $$ >/dev/null", everywhere=True),
    Case("one CPU for one host", SLOWED, wrapper="touch MARK; taskset -p 1 $$ >/dev/null", must=False),
    Case("the job's variables", (), wrapper="touch MARK", everywhere=True, arguments=JOBS),
    Case("the job's variables and quotas", (), before=HELD_BACK, everywhere=True, arguments=JOBS),
    Case(
        "the job's variables; idle and native",
        (),
        wrapper="touch MARK; chrt -i -p 0 $$",
        everywhere=True,
        arguments=(*JOBS, "--native"),
    ),
)
"""Written down before the judge was read."""
