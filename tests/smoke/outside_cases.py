"""What happens to a rank, a host or a network in `tests.smoke.outside`, and what a right report may say of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.faults.kernel import grouped

SIGNALS = ("SIGSTOP", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGINT", "SIGBUS")


class Case(NamedTuple):
    """A kind of fault: what is done at a call of a guilty rank, and what a right report may say."""

    name: str
    checks: tuple[str, ...]
    """Empty: nothing may be reported as an error."""
    fault: dict[str, Any] = {}
    before: str = ""
    """Run on the guilty host before the run; ``MARK`` is the mark file."""
    environ: dict[str, str] = {}
    """Of the ranks of the guilty host."""
    whole_host: bool = False
    """All ranks of the host are struck, not one."""
    must: bool = True
    """False: the fault may go unnoticed, as the job itself may not suffer from it."""
    early: bool = False
    """The fault strikes at one of the first calls, so that most of the run has it."""
    everywhere: bool = False
    """``before`` is run on all hosts, and ``wrapper`` is that of all."""
    wrapper: str = ""
    """Shell lines before the interpreter of the ranks."""
    imports: str = ""
    """Python that the interpreter runs as its sitecustomize module."""
    arguments: tuple[str, ...] = ()
    """Of doctor smoke."""
    after: str = ""
    """Run on the guilty host before it is removed: takes back what would outlive it."""
    binds: str = ""
    """Run on the guilty host afterwards: without output the fault changed nothing, and is no trial."""
    beside: Any = None
    """A case that strikes the next host in the same run."""

    def strikes(self, guilty: bool) -> bool:
        """Whether a host has the sitecustomize module."""
        return bool(self.fault and guilty) or bool(self.imports and (guilty or self.everywhere))


def command(text: str) -> dict[str, Any]:
    """Run once, in a shell of the guilty host, by a rank that goes on afterwards."""
    return {"kind": "command", "command": text}


def nft(*rules: str) -> str:
    """A ruleset with these rules, for what comes in and goes out alike."""
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority 0; {'; '.join(rules)}; }}; " for hook in ("input", "output")
    )
    return f"nft 'table inet outside {{ {chains}}}'"


DIED, STOPPED, NETWORK = ("smoke-rank-died",), ("smoke-rank-stopped",), ("smoke-network-silent", "smoke-host-silent")
VALUES = (
    "smoke-collective-wrong",
    "smoke-gradient-not-synchronised",
    "smoke-parameters-diverge",
    "smoke-loss-differs",
    "smoke-learning-differs",
    "smoke-not-finite",
    "smoke-gradient-summed",
    "smoke-loss-stalled",
)
HANGS = ("smoke-rank-left", "smoke-rank-blocked", "smoke-collective-mismatched", "smoke-collective-order")

PAUSES = "for i in 1 2 3; do kill -STOP PID; sleep 0.05; kill -CONT PID; sleep 0.5; done & sleep 0.01"
NO_SSH = nft("tcp dport 22 drop", "tcp sport 22 drop") + " && (sleep 4; nft flush ruleset) >/dev/null 2>&1 &"
NO_DATA = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta l4proto tcp drop")
SMALL_ONLY = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta length 1000-65535 drop")
RESETS = nft("tcp dport 22 accept", "tcp sport 22 accept", "numgen random mod 300 0 reject with tcp reset")
FEW = nft("tcp dport 22 accept", "tcp sport 22 accept", "ct state new ct count over 3 drop")
SLOW = "tc qdisc add dev eth0 root tbf rate 2mbit burst 32kb latency 400ms && touch MARK"
HELD_BACK = grouped("cpu", "cpu.cfs_quota_us", "20000", "cpu.max=20000 100000")[0] + "\ntouch MARK"
"""A fifth of a CPU for all sessions of the host."""
TENTH = grouped("cpu", "cpu.cfs_quota_us", "10000", "cpu.max=10000 100000")[0] + "\ntouch MARK"
TWENTIETH = """exec >/dev/null 2>&1
mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup
if grep -q ':memory:' /proc/self/cgroup; then
    mkdir cpu && mount -t cgroup -o cpu none cpu && cd cpu && file=cpu.cfs_quota_us quota=5000
else
    mount -t cgroup2 none . && cd . && echo +cpu >cgroup.subtree_control && file=cpu.max quota='5000 100000'
fi
find . -maxdepth 1 -name 'doctor-*' -mmin +10 -exec rmdir {} + || true
group=$(mktemp -d doctor-XXXXXX) && echo "$quota" >$group/$file && echo PID >$group/cgroup.procs"""
"""A twentieth of a CPU for one rank."""
SLOWED = ("smoke-rank-slow", "smoke-budget-spent")
FREEZE = """exec >/dev/null 2>&1
mkdir -p /run/freezing
if grep -q ':freezer:' /proc/self/cgroup; then
    mount -t cgroup -o freezer none /run/freezing && file=freezer.state word=FROZEN
else
    mount -t cgroup2 none /run/freezing && file=cgroup.freeze word=1
fi
cd /run/freezing && group=$(mktemp -d doctor-XXXXXX) && echo $group >/run/frozen-group
echo PID >$group/cgroup.procs && echo $word >$group/$file
cd / && umount -l /run/freezing"""
"""Of one rank; what shows it is not mounted when it is looked for."""
THAW = """test -e /run/frozen-group || exit 0
mkdir -p /run/thawing
if grep -q ':freezer:' /proc/self/cgroup; then
    mount -t cgroup -o freezer none /run/thawing && file=freezer.state word=THAWED
else
    mount -t cgroup2 none /run/thawing && file=cgroup.freeze word=0
fi
echo $word >/run/thawing/$(cat /run/frozen-group)/$file
umount -l /run/thawing"""
"""What is frozen outlives its host, and whatever would thaw it there later."""
CABLE = "(ip link set eth0 down; sleep 3; ip link set eth0 up) >/dev/null 2>&1 & sleep 0.01"
NEW_DATA = nft("tcp dport 22 accept", "tcp sport 22 accept", "ct state new tcp dport 1024-65535 drop")
SLOW_IMPORT = """
import builtins, time
plain = builtins.__import__
def importing(name, *rest, **more):
    if name == MODULE and importing.waits:
        importing.waits = False
        open("MARK", "w").close()
        time.sleep(SECONDS)
    return plain(name, *rest, **more)
importing.waits = True
builtins.__import__ = importing
"""


def slow_import(module: str, seconds: float) -> str:
    return SLOW_IMPORT.replace("MODULE", repr(module)).replace("SECONDS", str(seconds))


TRACED = """touch MARK
[ "$TRACED" ] || { export TRACED=1; exec strace -f -o /dev/null -e trace=none "$0" "$@"; }"""
DEBUGGED = "gdb -q -p PID -ex 'shell sleep 60' </dev/null >/dev/null 2>&1 & sleep 0.01"

FIRST: tuple[Case, ...] = (
    Case("clean", ()),
    *(Case(name, STOPPED if name == "SIGSTOP" else DIED, {"kind": "signal", "signal": name}) for name in SIGNALS),
    Case("gdb", STOPPED, command(DEBUGGED)),
    Case("renice", (), command("renice 19 PID >/dev/null")),
    Case("short stops", (), command(PAUSES)),
    Case("ssh-drop-4s", (), command(NO_SSH)),
    Case("black hole", NETWORK, command(NO_DATA)),
    Case("large lost", NETWORK, command(SMALL_ONLY)),
    Case("link down", NETWORK, command("ip link set eth0 down")),
    Case("tbf 2mbit", ("smoke-host-slow", "smoke-budget-spent"), before=SLOW),
    Case("ar-skip", HANGS, {"kind": "skip", "every": 7}),
    Case("ar-twice", (*HANGS, "smoke-rank-died", *VALUES), {"kind": "twice"}),
    Case("ar-bitflip", VALUES, {"kind": "bitflip", "every": 1}, whole_host=True),
    Case("ar-bitflip-rank", VALUES, {"kind": "bitflip", "every": 1}),
    Case("ar-wrong", VALUES, {"kind": "wrong", "every": 1}),
    Case("ar-wrong-host", VALUES, {"kind": "wrong", "every": 1}, whole_host=True),
    Case("pairs-garbage", VALUES[:1], {"kind": "garbage", "every": 1}),
    Case("layernorm-off", (*VALUES, "smoke-reference-differs"), {"kind": "layernorm", "every": 7}),
    Case("ar-sleeps", HANGS, {"kind": "late", "seconds": 1000}),
    Case("ar-spins", HANGS, {"kind": "spin"}),
    Case("reset now and then", (*NETWORK, "smoke-rank-never-joined"), before=RESETS + " && touch MARK", must=False),
    Case("few connections", (*NETWORK, "smoke-rank-never-joined"), before=FEW + " && touch MARK", must=False),
    Case("ar-late", (), {"kind": "late", "seconds": 0.3}),
    Case("ar-pauses", (), {"kind": "late", "seconds": 2.0}),
    Case("ar-prints", (), {"kind": "prints", "megabytes": 40}),
    Case("quota of a tenth", SLOWED, before=TENTH, whole_host=True),
    Case("quota", SLOWED, before=HELD_BACK, whole_host=True, must=False),
    Case("rank's twentieth", SLOWED, command(TWENTIETH), early=True),
    Case("all quotas", (), before=HELD_BACK, everywhere=True),
    Case("onednn-sse41", (), before="touch MARK", environ={"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}),
    Case("aten-default", (), before="touch MARK", environ={"ATEN_CPU_CAPABILITY": "default"}),
    Case("send-delay", ("smoke-host-slow", "smoke-rank-slow"), environ={"OUTSIDE_DELAY_MS": "5"}),
    Case("send-flip", VALUES, environ={"OUTSIDE_FLIP": "40"}, must=False),
    Case(
        "stopped at start", (*STOPPED, "smoke-rank-not-started"), wrapper="touch MARK; kill -STOP $$", whole_host=True
    ),
    Case("ends at start", ("smoke-rank-not-started",), imports="import os; open('MARK', 'w').close(); os._exit(0)"),
    Case("ends well", ("smoke-rank-left", "smoke-rank-died"), {"kind": "exit"}),
    Case("frozen unseen", STOPPED, command(FREEZE), after=THAW),
    Case("cable out 3 s", NETWORK, command(CABLE), must=False),
    Case("no new data", (*NETWORK, "smoke-rank-never-joined"), before=NEW_DATA + " && touch MARK"),
    Case("import of 27 s", (), imports=slow_import("torch", 27)),
    Case("native import of 26 s", (), imports=slow_import("torch.distributed.fsdp", 26), arguments=("--native",)),
    Case("idle priority", (), wrapper="touch MARK; chrt -i -p 0 $$", everywhere=True),
    Case("within tolerance", (), {"kind": "layernorm", "every": 1, "call": 1, "factor": 1 + 8e-7}, whole_host=True),
    Case(
        "loss 1 % off",
        (*VALUES, "smoke-reference-differs"),
        {"kind": "corrupt", "function": "log_softmax", "how": "scaled", "place": 0, "every": 1},
        early=True,
    ),
)

START = ("smoke-rank-not-started",)
JOIN = ("smoke-rank-never-joined",)
SILENT = ("smoke-host-silent",)
FAILED_LOADER = ("smoke-input-stalled", "smoke-loader-failed", "smoke-rank-died", "smoke-rank-stopped")


def at(function: str, signal: str) -> dict[str, Any]:
    """A signal at a call of another function than all_reduce."""
    first = {"call": 1} if function == "init_process_group" else {}
    return {"kind": "signal", "signal": signal, "function": function, **first}


def in_group(controller: str, v1: str, v2: str) -> str:
    """Shell that puts the rank into a control group of its own, with a limit in its version's file."""
    (file, _, value), (unified_file, _, unified_value) = v1.partition("="), v2.partition("=")
    return f"""exec >/dev/null 2>&1
mkdir -p /run/limited
if grep -q ':memory:' /proc/self/cgroup; then
    mount -t cgroup -o {controller} none /run/limited && cd /run/limited && file={file} value={value}
else
    mount -t cgroup2 none /run/limited && cd /run/limited && echo +{controller} >cgroup.subtree_control
    file={unified_file} value='{unified_value}'
fi
find . -maxdepth 1 -name 'doctor-*' -mmin +10 -exec rmdir {{}} + || true
group=$(mktemp -d doctor-XXXXXX) && echo PID >$group/cgroup.procs && echo "$value" >$group/$file
echo $PWD/$group >/run/limited.group"""


BINDS = """awk '/nr_periods/ {all = $2} /nr_throttled/ {used = $2}
END {if (all > 20 && used > 0.7 * all) print "yes"}' $(cat /run/limited.group)/cpu.stat || true"""
"""Whether a CPU quota held its rank back, which it does not where other programs leave it as little."""


def text_error(kind: str, text: str) -> dict[str, Any]:
    return {"kind": "raises", "error": kind, "text": text}


TRACED_THREAD = """cat >/run/trace.py <<'END'
import ctypes, os, sys, time
pid = int(sys.argv[1])
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
for thread in sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")):
    if thread != pid:
        libc.ptrace(0x4206, thread, 0, 0)
        libc.ptrace(0x4207, thread, 0, 0)
time.sleep(90)
END
python3 /run/trace.py PID >/dev/null 2>&1 &
sleep 0.3"""
"""Every thread of the rank but its main one is held by a tracer."""
AGENT = "agent=$(ps -o ppid= -p $(ps -o ppid= -p PID)); kill -{0} $agent"
FLAP = (
    "(a=$(ip -4 -o addr show eth0 | awk '{print $4}'); ip addr del $a dev eth0; sleep 3; ip addr add $a dev eth0)"
    " >/dev/null 2>&1 & sleep 0.01"
)
ADDRESS_GONE = "ip -4 addr flush dev eth0"
HOOK = "nft 'table inet outside {{ chain c {{ type filter hook {0} priority 0; {1}; }}; }}'"
ONE_WAY = HOOK.format("output", "tcp sport 22 accept; tcp dport 22 accept; meta l4proto tcp drop")
LOSS = (
    HOOK.format("input", "tcp sport 22 accept; tcp dport 22 accept; numgen random mod 100 < {0} drop")
    .replace("{ ", "{{ ")
    .replace("; }", "; }}")
)
REFUSED = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta l4proto tcp reject with icmp type admin-prohibited")
RESET_ALL = nft("tcp dport 22 accept", "tcp sport 22 accept", "meta l4proto tcp reject with tcp reset")
FULL_TMP = "mount -t tmpfs -o size=64k none /tmp; dd if=/dev/zero of=/tmp/full bs=1k count=64 2>/dev/null; touch MARK"
FULL_SHM = (
    "mount -t tmpfs -o size=64k none /dev/shm; dd if=/dev/zero of=/dev/shm/full bs=1k count=64 2>/dev/null; touch MARK"
)
IMPORT = """
import builtins, os, signal, time
plain = builtins.__import__
def importing(name, *rest, **more):
    if name == "torch":
        builtins.__import__ = plain
        open("MARK", "w").close()
        ACT
    return plain(name, *rest, **more)
builtins.__import__ = importing
"""


def at_import(act: str) -> str:
    return IMPORT.replace("ACT", act)


NCCL = "NCCL error in: ProcessGroupNCCL.cpp:2139, unhandled system error (run with NCCL_DEBUG=INFO for details)"
HCCL = "[ERROR] EI0004: The ranktable is invalid, Reason:[The device ID is out of range]"
LATER: tuple[Case, ...] = (
    *(Case(f"{name} at join", (*DIED, *JOIN), at("init_process_group", name)) for name in ("SIGKILL", "SIGSEGV")),
    Case("SIGSTOP at join", (*STOPPED, *JOIN), at("init_process_group", "SIGSTOP")),
    Case(
        "exit 0 at join",
        (*DIED, *JOIN, "smoke-rank-left"),
        {"kind": "exit", "function": "init_process_group", "call": 1},
    ),
    Case(
        "sleep at join",
        (*JOIN, "smoke-rank-blocked"),
        {"kind": "late", "seconds": 900, "function": "init_process_group", "call": 1},
    ),
    Case("spin at join", (*JOIN, "smoke-rank-blocked"), {"kind": "spin", "function": "init_process_group", "call": 1}),
    Case("SIGKILL at broadcast", DIED, at("broadcast", "SIGKILL"), early=True),
    Case("SIGSTOP at broadcast", STOPPED, at("broadcast", "SIGSTOP"), early=True),
    *(
        Case(name, DIED, {"kind": "signal", "signal": name})
        for name in ("SIGHUP", "SIGQUIT", "SIGFPE", "SIGSYS", "SIGXCPU", "SIGALRM")
    ),
    Case("host stopped", STOPPED, {"kind": "signal", "signal": "SIGSTOP"}, whole_host=True),
    Case("host killed", DIED, {"kind": "signal", "signal": "SIGKILL"}, whole_host=True),
    Case("loader child killed", FAILED_LOADER, {"kind": "signal", "signal": "SIGKILL", "child": True}),
    Case("loader child stopped", FAILED_LOADER, {"kind": "signal", "signal": "SIGSTOP", "child": True}),
    Case("loader child ends", FAILED_LOADER, {"kind": "exit", "child": True}),
    Case("agent killed", SILENT, command(AGENT.format("KILL"))),
    # Its ranks are well: the run is unknown, and no host is at fault.
    Case("agent stopped", SILENT, command(AGENT.format("STOP")), must=False),
    Case("parent killed", (*DIED, *SILENT), command("kill -KILL $(ps -o ppid= -p PID)")),
    Case("parent stopped", (*STOPPED, *DIED), command("kill -STOP $(ps -o ppid= -p PID)"), must=False),
    Case(
        "oom",
        DIED,
        {**command(in_group("memory", "memory.limit_in_bytes=60000000", "memory.max=60000000")), "kind": "hoard"},
    ),
    Case(
        "rank's 3 %",
        SLOWED,
        command(in_group("cpu", "cpu.cfs_quota_us=3000", "cpu.max=3000 100000")),
        early=True,
        binds=BINDS,
    ),
    Case("traced threads", (*STOPPED, *NETWORK, "smoke-rank-blocked"), command(TRACED_THREAD)),
    Case("address space", (*START, *DIED), wrapper="touch MARK; ulimit -v 700000", must=False),
    Case("file size", (*START, *DIED, *FAILED_LOADER), wrapper="touch MARK; ulimit -f 1", must=False),
    Case("cpu seconds", (*START, *DIED), wrapper="touch MARK; ulimit -t 2", must=False),
    Case("nofile 40", (*START, *DIED, *JOIN, *FAILED_LOADER), wrapper="touch MARK; ulimit -n 40", must=False),
    Case("nofile 12", (*START, *DIED, *JOIN, *FAILED_LOADER), wrapper="touch MARK; ulimit -n 12"),
    Case("closed files", START, wrapper='touch MARK; for n in 3 4 5 6 7 8 9; do eval "exec $n>&-"; done'),
    Case("small stack", (), wrapper="touch MARK; ulimit -s 1024", must=False),
    Case("exit 1 at start", START, wrapper="touch MARK; exit 1"),
    Case("exit 0 at start", START, wrapper="touch MARK; exit 0"),
    Case("killed at start", START, wrapper="touch MARK; kill -9 $$"),
    Case("sleeps at start", (*START, "smoke-rank-blocked"), wrapper="touch MARK; sleep 900"),
    Case("spins at start", (*START, "smoke-rank-blocked"), wrapper="touch MARK; while :; do :; done"),
    Case("not executable", START, before="touch MARK; chmod 644 /root/outside/python"),
    Case("a folder", START, before="touch MARK; rm /root/outside/python; mkdir /root/outside/python"),
    Case(
        "no such library",
        START,
        imports=at_import("raise ImportError('libtorch_cpu.so: cannot open shared object file')"),
    ),
    Case("killed at import", START, imports=at_import("os.kill(os.getpid(), signal.SIGKILL)")),
    Case("stopped at import", (*START, *STOPPED), imports=at_import("os.kill(os.getpid(), signal.SIGSTOP)")),
    Case("hangs at import", (*START, "smoke-rank-blocked"), imports=at_import("os.read(os.pipe()[0], 1)")),
    Case("exit 0 at import", START, imports=at_import("os._exit(0)")),
    Case("import of 25 s everywhere", (), imports=slow_import("torch", 25), everywhere=True),
    Case("full /tmp", (*START, *DIED, *FAILED_LOADER), before=FULL_TMP, must=False),
    Case("full /dev/shm", FAILED_LOADER, before=FULL_SHM),
    Case(
        "read-only /tmp",
        (*START, *DIED, *FAILED_LOADER),
        before="mount -t tmpfs -o ro none /tmp; touch MARK",
        must=False,
    ),
    Case("no lo", (*NETWORK, *JOIN, *START), before="ip link set lo down; touch MARK", must=False),
    Case("mtu 600", (), before="ip link set eth0 mtu 600; touch MARK"),
    Case("one way", NETWORK, command(ONE_WAY)),
    Case("refused", (*NETWORK, *DIED), command(REFUSED)),
    Case("all reset", (*NETWORK, *DIED), command(RESET_ALL)),
    Case("loss 5 %", (*NETWORK, "smoke-host-slow"), before=LOSS.format(5) + " && touch MARK", must=False),
    Case(
        "loss 40 %",
        (*NETWORK, *JOIN, "smoke-host-slow", "smoke-budget-spent"),
        before=LOSS.format(40) + " && touch MARK",
    ),
    Case("address flap 3 s", NETWORK, command(FLAP), must=False),
    Case("address gone", (*NETWORK, *SILENT), command(ADDRESS_GONE)),
    Case(
        "few ports",
        (*JOIN, *START, *DIED, *NETWORK),
        before="echo '50000 50001' >/proc/sys/net/ipv4/ip_local_port_range; touch MARK",
        must=False,
    ),
    Case(
        "small windows",
        ("smoke-host-slow",),
        before="for n in r w; do echo '4096 4096 4096' >/proc/sys/net/ipv4/tcp_${n}mem; done; touch MARK",
        must=False,
    ),
    Case(
        "tbf 300 kbit",
        ("smoke-host-slow", "smoke-budget-spent", *NETWORK),
        before="tc qdisc add dev eth0 root tbf rate 300kbit burst 16kb latency 900ms && touch MARK",
    ),
    Case("clock jumps", (), environ={"OUTSIDE_CLOCK": "-4000"}),
    Case("clock jumps ahead", (), environ={"OUTSIDE_CLOCK": "90000"}),
    Case("avx2 beside others", (), before="touch MARK", environ={"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2"}),
    Case("raises nccl", DIED, text_error("RuntimeError", NCCL)),
    Case("raises hccl", DIED, text_error("RuntimeError", HCCL)),
    Case(
        "raises CUDA OOM",
        DIED,
        text_error(
            "RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
        ),
    ),
    Case(
        "raises reset of a file server",
        DIED,
        text_error("ConnectionResetError", "[Errno 104] Connection reset by peer: 's3.example:443'"),
    ),
    Case("raises stop", DIED, text_error("StopIteration", "")),
    Case(
        "bf16 sum",
        VALUES,
        {"kind": "corrupt", "function": "all_reduce", "how": "rounded", "place": 0, "every": 1},
        early=True,
    ),
    Case("own sum", VALUES, {"kind": "unsummed", "every": 1}, early=True),
    Case(
        "negated",
        VALUES,
        {"kind": "corrupt", "function": "all_reduce", "how": "negated", "place": 0, "every": 1},
        early=True,
    ),
    Case("nan once", VALUES, {"kind": "corrupt", "function": "all_reduce", "how": "nan", "place": 3}),
    Case(
        "broadcast not taken",
        (*VALUES, "smoke-parameters-not-broadcast"),
        {"kind": "unsummed", "function": "broadcast", "every": 1, "call": 1},
        whole_host=True,
    ),
    Case(
        "debug allocator",
        (),
        wrapper="touch MARK; export PYTHONMALLOC=debug MALLOC_PERTURB_=165 PYTHONFAULTHANDLER=1 PYTHONOPTIMIZE=2",
        everywhere=True,
    ),
    Case(
        "odd places",
        (),
        wrapper="touch MARK; mkdir -p '/tmp/a b'; export TMPDIR='/tmp/a b' HOME=/nowhere LANG=zh_CN.UTF-8; umask 777",
        everywhere=True,
    ),
    Case("nice 19", (), wrapper="touch MARK; renice 19 $$ >/dev/null", everywhere=True),
    Case("strace", (), wrapper=TRACED),
)
CASES = (*FIRST, *LATER)
