"""Kinds of faults in what all ranks must have alike, and in what a rank may call; settings of a job that are none."""

from __future__ import annotations

from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    HANGS,
    HOOK,
    JOIN,
    NETWORK,
    SLOWED,
    STOPPED,
    VALUES,
    Case,
    command,
)
from tests.smoke.outside_hosts import CALLS, OF_NEW, denied
from tests.smoke.outside_invented import program
from tests.smoke.outside_pairs import MISCOMPUTED
from tests.smoke.outside_stack import BROKEN, through
from tests.smoke.outside_work import SLOW_NETWORK

CALLS |= {"getsockname": 51, "writev": 20, "clock_nanosleep": 230, "poll": 7}
SET, DETAIL = "touch MARK; export ", "touch MARK; export TORCH_DISTRIBUTED_DEBUG=DETAIL"
LIMITED = "for p in $(pgrep -f sshd); do prlimit --pid $p --as=900000000:900000000; done; touch MARK"
DATA = HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; {0}").replace("{ ", "{{ ").replace("; }", "; }}")
DIST = "d = sys.modules['torch'].distributed; "
WINDOW = (
    "set -- $(ip -4 route show dev eth0 scope link | head -1); ip route change $1 dev eth0 window 600 && touch MARK"
)
TEMPORARY = "touch MARK; export TMPDIR=/tmp/$(head -c {0} /dev/zero | tr '\\0' d); mkdir -p $TMPDIR"
PRODUCTS = DIST + "a = d.all_reduce; s = d.ReduceOp.SUM\nd.all_reduce = lambda t, op=s, *r, **k: "
PRODUCTS += "a(t, d.ReduceOp.PRODUCT if op == s and t.is_floating_point() else op, *r, **k)"
LIBC = "import ctypes; c = ctypes.CDLL(None); "


def everywhere(name: str, text: str = "", imports: str = "", *arguments: str) -> Case:
    """A setting of all hosts that is no fault: shell lines before the interpreter, or Python that it runs first."""
    wrapper = SET + text if text else ""
    marked = f"open('MARK', 'w').close()\n{imports}\n" if imports else ""
    return Case(name, (), wrapper=wrapper, imports=marked, everywhere=True, arguments=arguments)


ALIKE: tuple[Case, ...] = (
    *(
        Case(f"another {name} than most", BROKEN, wrapper=f"{SET}{name}={value}", must=False)
        for name, value in (
            ("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "1"),
            ("TORCH_DIST_INIT_BARRIER", "1"),
            ("GLOO_DEVICE_TRANSPORT", "UV"),
            ("GLOO_ENABLE_STORE_V2_API", "1"),
        )
    ),
    Case("details of all, and killed", DIED, {"kind": "signal", "signal": "SIGKILL"}, wrapper=DETAIL, everywhere=True),
    Case("details of all, and a call left out", (*HANGS, *DIED), {"kind": "skip"}, wrapper=DETAIL, everywhere=True),
    Case("details of all, and a call twice", (*HANGS, *DIED), {"kind": "twice"}, wrapper=DETAIL, everywhere=True),
    Case(
        "details of all, and stopped", STOPPED, {"kind": "signal", "signal": "SIGSTOP"}, wrapper=DETAIL, everywhere=True
    ),
    everywhere("details of all", "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    everywhere("gloo connects late everywhere", "TORCH_GLOO_LAZY_INIT=1"),
    everywhere("sequences by rank everywhere", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER=1"),
    everywhere("more is printed", "TORCH_DISTRIBUTED_DEBUG=INFO GLOO_LOG_LEVEL=DEBUG TORCH_FR_BUFFER_SIZE=2000"),
    everywhere("no dynamo", "TORCHDYNAMO_DISABLE=1", "", "--native"),
    everywhere("without docstrings", "PYTHONOPTIMIZE=2 PYTHONNODEBUGRANGES=1", "", "--native"),
    everywhere("spawns", "", "import multiprocessing\nmultiprocessing.set_start_method('spawn')"),
    everywhere("shares files", "", "import torch.multiprocessing as m\nm.set_sharing_strategy('file_system')"),
    everywhere("float64 everywhere", "", "import torch\ntorch.set_default_dtype(torch.float64)"),
    everywhere("anomalies everywhere", "", "import torch\ntorch.autograd.set_detect_anomaly(True)"),
    everywhere("threads of 64 kB", "", "import threading\nthreading.stack_size(65536)"),
    everywhere("logs all", "", "import logging, sys\nlogging.basicConfig(level=0, stream=sys.stdout)"),
    Case("TMPDIR of 70 letters", (), wrapper=TEMPORARY.format(65)),
    Case("TMPDIR of 90 letters", FAILED_LOADER, wrapper=TEMPORARY.format(85)),
    Case(
        "900 MB of addresses for all sessions",
        (*BROKEN, "host-unreachable"),
        before=LIMITED,
        whole_host=True,
        must=False,
    ),
    Case(
        "real-time priority, and 0.2 s of it",
        DIED,
        wrapper="chrt -f -p 5 $$ && ulimit -R 200000 && touch MARK",
        must=False,
    ),
    Case("packets with PSH lost", NETWORK, command(DATA.format("tcp flags & psh == psh drop"))),
    Case(
        "no connections with SACK",
        (*NETWORK, *JOIN),
        before=OF_NEW.format("tcp option sack-permitted exists drop") + " && touch MARK",
    ),
    Case("window of its route", SLOW_NETWORK, before=WINDOW, must=False),
    Case(
        "a larger world",
        BROKEN,
        program(DIST + "w = d.get_world_size; d.get_world_size = lambda group=None: w(group) + 1"),
        must=False,
    ),
    Case(
        "clones are the same",
        (*MISCOMPUTED, *DIED, "smoke-update-missing"),
        program("sys.modules['torch'].Tensor.clone = lambda t, *a, **k: t"),
        early=True,
        must=False,
    ),
    Case(
        "products for sums",
        VALUES,
        program(PRODUCTS),
        early=True,
    ),
    *(Case(name, DIED, {"kind": "signal", "signal": name}) for name in ("SIGPWR", "SIGIO")),
    *(
        Case(f"{name} is refused", BROKEN, imports=denied(name), must=False)
        for name in ("getsockname", "writev", "clock_nanosleep", "poll")
    ),
    Case("its memory is protected", DIED, program(LIBC + "c.mprotect(ctypes.c_void_p(id(sys) & ~4095), 4096, 0)")),
    Case("an assertion in C", DIED, program(LIBC + "c.__assert_fail(b'x == y', b'file.c', 7, b'main')")),
    Case("quick_exit", (*DIED, "smoke-rank-left"), program(LIBC + "c.quick_exit(0)")),
    Case("a user namespace", (), wrapper=through("unshare -U -i -u"), must=False),
    Case(
        "a collection at each object",
        SLOWED,
        imports="import gc\nopen('MARK', 'w').close()\ngc.set_threshold(1)\n",
        must=False,
    ),
)
"""Written down before the judge was read."""
