"""Kinds of faults of the machine beneath the ranks: its limits, names, files, clock and network stack."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.faults.kernel import grouped
from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    HANGS,
    HOOK,
    JOIN,
    NETWORK,
    SILENT,
    SLOWED,
    START,
    STOPPED,
    VALUES,
    Case,
    command,
    nft,
)
from tests.smoke.outside_invented import PEER, RENUMBERED, program

SLOW = ("smoke-host-slow", "smoke-rank-slow", "smoke-budget-spent")
SHADOW = "mkdir -p /root/outside && echo {0} >/root/outside/{1} && touch MARK"
"""A module of another content than the interpreter's own, in front of it on the path."""
HERE = {"PYTHONPATH": "/root/outside"}
RATE = HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; meta l4proto tcp limit rate over 60/second drop")
SLOW_NAMES = """cat >/run/names.py <<'END'
import socket, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    data, peer = server.recvfrom(512)
    time.sleep(3)
    server.sendto(data[:2] + bytes([0x81, 0x83]) + data[4:], peer)
END
python3 /run/names.py >/dev/null 2>&1 &
echo nameserver 127.0.0.1 >/etc/resolv.conf; touch MARK"""
OTHERS = "for n in 1 2 3 4 5; do printf '192.0.2.%s %s\\n' $n $(hostname | sed 's/.$//')$n; done"
TWICE = (
    "mine=$(ip -4 -o addr show eth0 | awk '{print $4}'); peer=${mine%.*}.$(( ${mine##*.} == 1 ? 2 : 1 )) 2>/dev/null; "
    "ip addr add $peer/16 dev eth0 2>/dev/null; true"
)
HALF_OPEN = nft(
    "tcp dport 22 accept", "tcp sport 22 accept", "tcp flags & rst == rst drop", "tcp flags & fin == fin drop"
)
HALF_OPEN += " && ss -K state established '( sport != :22 and dport != :22 )' >/dev/null 2>&1"
GATEWAY = "ip route replace $(ip -4 route show dev eth0 | awk '{print $1; exit}') via $(ip -4 -o addr show eth0 | "
GATEWAY += "awk '{sub(/[0-9]+\\/.*/, \"250\", $4); print $4}') dev eth0 onlink"
DEAF = "ip link set eth0 arp off; ip neigh flush dev eth0"
HOST_MEMORY = grouped("memory", "memory.limit_in_bytes", "300000000", "memory.max=300000000")[0] + "\ntouch MARK"
HOST_TASKS = grouped("pids", "pids.max", "14", "pids.max=14")[0] + "\ntouch MARK"
ENDS = """(p=PID; all=
while [ "$(cat /proc/$p/comm)" != sshd ] && [ $p -gt 1 ]; do all="$all $p"; p=$(ps -o ppid= -p $p); done
sleep 0.1; kill -9 $all) >/dev/null 2>&1 &"""
"""The rank, its interpreter, the agent, and the shell that the SSH server has started."""
SERVED = """(p=PID
while [ "$(cat /proc/$p/comm)" != sshd ] && [ $p -gt 1 ]; do p=$(ps -o ppid= -p $p); done
sleep 0.1; kill -STOP $p) >/dev/null 2>&1 &"""
DENIED = """
import ctypes, struct
numbers, errno = NUMBERS
steps = [(0x20, 0, 0, 0)]
steps += [(0x15, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | errno)]
buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
rules = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(buffer)))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
if libc.syscall(317, 1, 1, rules) == 0:
    open("/root/outside/struck", "w").close()
"""
"""A filter of system calls (seccomp(2)) for all threads, by their numbers on x86_64."""
CALLS = {"connect": 42, "listen": 50, "sendto": 44, "sendmsg": 46, "writev": 20, "clone3": 435}
CALLS |= {"epoll_create": 213, "epoll_create1": 291, "setpriority": 141, "sched_setaffinity": 203}
CALLS |= {
    "io_uring_setup": 425,
    "userfaultfd": 323,
    "getrandom": 318,
    "eventfd2": 290,
    "ftruncate": 77,
    "fallocate": 285,
}
CALLS |= {"accept": 43, "accept4": 288, "shutdown": 48, "setsockopt": 54}
CALLS |= {"memfd_create": 319, "get_mempolicy": 239, "set_mempolicy": 238, "mlock": 149, "ptrace": 101, "prctl": 157}
MARKED = "open('MARK', 'w').close(); "
ANNOUNCED = """import socket, subprocess, sys
mac = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
address = socket.inet_aton(sys.argv[1])
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as file:
    file.bind(("eth0", 0))
    for _ in range(3):
        file.send(b"\\xff" * 6 + mac + bytes.fromhex("08060001080006040001") + mac + address + bytes(6) + address)
"""
TAKEN = f"peer={PEER}; ip addr add $peer/32 dev eth0; python3 -c '{ANNOUNCED}' $peer"
"""The address of a peer, and the news of it to all hosts."""
FLAPS = (
    "(while :; do ip link set eth0 down; sleep 0.3; ip link set eth0 up; sleep 2; done) >/dev/null 2>&1 & sleep 0.01"
)
FIRST = """set -- $(ip -4 -o addr show eth0 | awk '{print $4}'); ip addr flush dev eth0
ip addr add 192.0.2.9/24 dev eth0; ip addr add $1 dev eth0; touch MARK"""
NO_CABLE = "ip link add d0 type veth peer name d1; ip link set d1 up; ip link set d0 up"
BUSY = "for n in 1 2 3 4; do (while :; do :; done) >/dev/null 2>&1 & done; touch MARK"
NO_ANSWER = (
    f"({nft('tcp dport 22 accept', 'tcp sport 22 accept', 'meta l4proto tcp drop')}; sleep 2; nft flush ruleset)"
)
SENDS = HOOK.format("output", "tcp sport 22 accept; tcp dport 22 accept; meta l4proto tcp {0}")
SENDS = SENDS.replace("{ ", "{{ ").replace("; }", "; }}")


def denied(*names: str, errno: int = 13) -> str:
    """Python after which the kernel refuses these system calls."""
    return DENIED.replace("NUMBERS", repr((tuple(CALLS[name] for name in names), errno)))


REFUSED = (*JOIN, *DIED, *START, *NETWORK, "smoke-environment-fails")
LATER: tuple[Case, ...] = (
    Case("OMP of 0 threads", (), wrapper="touch MARK; export OMP_NUM_THREADS=0"),
    Case(
        "OMP of 1000 threads", (*SLOWED, *START, *DIED), wrapper="touch MARK; export OMP_NUM_THREADS=1000", must=False
    ),
    Case("ATEN of nonsense", (), before="touch MARK", environ={"ATEN_CPU_CAPABILITY": "avx9000"}),
    Case("a module of the site raises", (), imports=f"{MARKED}raise ValueError('of the site')"),
    Case("a module of the site exits", START, imports=f"{MARKED}raise SystemExit(3)"),
    Case("no locked memory and no cores", (), wrapper="touch MARK; ulimit -l 0; ulimit -c 0"),
    Case("/dev/null is a file", (), before="rm -f /dev/null; echo text >/dev/null; touch MARK"),
    Case("no /dev/urandom", START, before="rm -f /dev/urandom /dev/random; touch MARK"),
    Case("hidepid", (), before="mount -o remount,hidepid=2 /proc; touch MARK"),
    Case(
        "/proc is empty",
        (*START, *DIED, *SILENT, "host-unreachable"),
        before="mount -t tmpfs x /proc; touch MARK",
        must=False,
    ),
    Case("/sys is empty", (), before="mount -t tmpfs none /sys; touch MARK"),
    Case("epoll is denied", REFUSED, imports=denied("epoll_create", "epoll_create1")),
    Case("connect is denied", REFUSED, imports=denied("connect")),
    Case("listen is denied", REFUSED, imports=denied("listen")),
    Case("sends are denied in mid-run", (*NETWORK, *DIED), program(denied("sendto", "sendmsg", "writev"))),
    Case("sends fail for a broken disk", (*NETWORK, *DIED), program(denied("sendto", "sendmsg", "writev", errno=5))),
    Case("clone3 is not there", (), imports=denied("clone3", errno=38)),
    Case(
        "priority and affinity and policies are denied",
        (),
        imports=denied(
            "setpriority", "sched_setaffinity", "memfd_create", "get_mempolicy", "set_mempolicy", "mlock", "ptrace"
        ),
    ),
    Case(
        "route by an interface without a cable",
        NETWORK,
        command(f"peer={PEER}; {NO_CABLE}; ip route add $peer/32 dev d0"),
    ),
    Case("cable out 0.3 s now and then", NETWORK, command(FLAPS), must=False),
    Case("address of a peer in mid-run", (*NETWORK, *SILENT, "host-unreachable"), command(TAKEN)),
    Case("names after 8 s", (), before=SLOW_NAMES.replace("sleep(3)", "sleep(8)")),
    Case("hostname of dots and underscores", (), before="hostname a_b.c.; touch MARK"),
    Case("hostname localhost", (*NETWORK, *JOIN, *REFUSED[-1:]), before="hostname localhost; touch MARK", must=False),
    Case("a foreign address comes first", (*NETWORK, *JOIN, *REFUSED[-1:]), before=FIRST, must=False),
    Case("nice 19 beside busy CPUs", SLOWED, wrapper="renice 19 $$ >/dev/null", before=BUSY, must=False),
    Case(
        "/dev/shm full in mid-run",
        (*DIED, *FAILED_LOADER),
        command("dd if=/dev/zero of=/dev/shm/full bs=1M 2>/dev/null; true"),
        must=False,
    ),
    Case(
        "few retries and 2 s without answers",
        (*NETWORK, *DIED),
        command(f"{NO_ANSWER} >/dev/null 2>&1 & sleep 0.01"),
        before="sysctl -qw net.ipv4.tcp_retries2=1",
        must=False,
    ),
    Case("no IPv6", (), before="sysctl -qw net.ipv6.conf.all.disable_ipv6=1 || true; touch MARK"),
    Case(
        "a broken library on the path",
        START,
        wrapper="touch MARK; mkdir -p /root/lib; echo text >/root/lib/libstdc++.so.6; export LD_LIBRARY_PATH=/root/lib",
    ),
    Case("a preload that is not there", (), before="touch MARK", environ={"LD_PRELOAD": "/nowhere/lib.so"}),
    Case("logs of C++", (), wrapper="touch MARK; export TORCH_CPP_LOG_LEVEL=INFO TORCH_SHOW_CPP_STACKTRACES=1"),
    # A run without the job's variables chooses the interface itself.
    Case(
        "gloo by lo", (*NETWORK, *JOIN, *REFUSED[-1:]), wrapper="touch MARK; export GLOO_SOCKET_IFNAME=lo", must=False
    ),
    Case("its window is zero", NETWORK, command(SENDS.format("tcp window set 0"))),
    Case("its source is another", NETWORK, command(SENDS.format("ip saddr set 192.0.2.1"))),
    Case(
        "resolv.conf is a pipe",
        (*START, *JOIN, *HANGS),
        before="rm -f /etc/resolv.conf; mkfifo /etc/resolv.conf; touch MARK",
    ),
    Case(
        "hosts file is a pipe",
        (*START, *JOIN, *HANGS, "host-unreachable"),
        before="rm -f /etc/hosts; mkfifo /etc/hosts; touch MARK",
    ),
    Case("no PATH", START, wrapper="touch MARK; export PATH=/nowhere"),
    Case("the SSH server's process is stopped", SILENT, command(SERVED), must=False),
    Case(
        "another numpy",
        (*START, "smoke-numpy-missing"),
        before=SHADOW.format("'raise ImportError(1)'", "numpy.py"),
        environ=HERE,
        must=False,
    ),
    Case(
        "a queue of one packet",
        (*NETWORK, *SLOW),
        before="tc qdisc add dev eth0 root pfifo limit 1; touch MARK",
        must=False,
    ),
)
"""Written down before the judge was read."""

TORCH = Path(str(getattr(find_spec("torch"), "origin", ""))).parent
CUT = f"head -c 300000 {TORCH}/lib/libtorch_python.so >/run/cut; mount --bind /run/cut {TORCH}/lib/libtorch_python.so"
STALE = """mkdir -p /mnt/stale; [ -e /dev/fuse ] || mknod /dev/fuse c 10 229; python3 -c '
import ctypes, os
options = "fd=%d,rootmode=40000,user_id=0,group_id=0" % os.open("/dev/fuse", os.O_RDWR)
ctypes.CDLL(None).mount(b"x", b"/mnt/stale", b"fuse", 0, options.encode())'
ls /mnt/stale 2>/dev/null || touch MARK"""
"""A file system in user space whose server has ended."""
SWITCHED = """[ "$SWITCHED" ] || { touch MARK; export SWITCHED=1; cp "$0" /run/interpreter; chmod 755 /run/interpreter
exec setpriv --reuid 4321 --regid 4321 --clear-groups /run/interpreter "$@"; }"""
SLACK = "import ctypes\nctypes.CDLL(None).prctl(29, 200_000_000, 0, 0, 0)\n" + MARKED
BY_RULE = "ip rule add ipproto tcp sport 22 lookup main pref 10; ip rule add ipproto tcp pref 20 blackhole"
WITH_ECN = "sysctl -qw net.ipv4.tcp_ecn=1; " + HOOK.format("output", "tcp sport 22 accept; ip ecn != not-ect drop")
LARGE_OUT = HOOK.format("output", "tcp sport 22 accept; meta length > 1000 drop")
ONE_BURST = HOOK.format("output", "tcp sport 22 accept; meta l4proto tcp limit rate over 20 kbytes/second drop")
TWO_SECONDS = HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; tcp flags syn drop")
SHAPED = "tc qdisc add dev eth0 root tbf rate 8mbit burst 2kb limit 4kb && touch MARK"
SECOND = RENUMBERED.partition("ip addr flush")[0] + "ip addr add ${1%.*}.201/$2 dev eth0"
PROTECTED = grouped("memory", "memory.soft_limit_in_bytes", "50000000", "memory.high=150000000")[0] + "\ntouch MARK"
FRESH: tuple[Case, ...] = (
    Case(
        "files that may not be executed",
        (),
        before="mkdir /run/t; for f in /run/t /dev/shm; do mount -t tmpfs -o noexec n $f; done; touch MARK",
        environ={"TMPDIR": "/run/t"},
    ),
    Case(
        "no inodes in /dev/shm",
        FAILED_LOADER,
        before="mount -t tmpfs -o nr_inodes=2 n /dev/shm; touch MARK",
        must=False,
    ),
    Case(
        "files reach a quota",
        (*START, *DIED, *FAILED_LOADER),
        imports=denied("ftruncate", "fallocate", errno=122),
        must=False,
    ),
    Case("a stale mount on its path", (), before=STALE, environ={"PYTHONPATH": "/mnt/stale"}),
    Case("a stale mount for temporary files", (), before=STALE, environ={"TMPDIR": "/mnt/stale"}),
    Case("its torch library is cut", START, before=f"{CUT}; touch MARK"),
    Case("a user without an entry", START, wrapper=SWITCHED, must=False),
    Case(
        "no entry of root",
        (*START, *SILENT, "host-unreachable"),
        before="grep -v ^root: /etc/passwd >/run/passwd; mount --bind /run/passwd /etc/passwd; touch MARK",
        must=False,
    ),
    Case(
        "HOME is a file",
        (),
        wrapper="touch MARK; export HOME=/etc/passwd XDG_CACHE_HOME=/etc/passwd TORCH_HOME=/etc/passwd",
    ),
    Case("io_uring and userfaultfd are denied", (), imports=denied("io_uring_setup", "userfaultfd", errno=1)),
    Case("getrandom is not there", (), imports=denied("getrandom", errno=38)),
    Case("eventfd is denied", REFUSED, imports=denied("eventfd2", errno=1)),
    Case("accept is denied", REFUSED, imports=denied("accept", "accept4", errno=1)),
    Case("options of sockets are denied", REFUSED, imports=denied("setsockopt", errno=1)),
    Case("memory.high of 150 MB", (*START, *SLOW), before=PROTECTED, must=False),
    Case("timers 0.2 s late", SLOW, imports=SLACK, must=False),
    Case("no queue of signals", (), wrapper="touch MARK; ulimit -i 0; ulimit -q 0"),
    Case(
        "rseq and arenas off",
        (),
        wrapper="touch MARK; export GLIBC_TUNABLES=glibc.pthread.rseq=0:glibc.malloc.arena_max=1",
    ),
    Case("large packets lost on its way out", (*NETWORK, *JOIN, *REFUSED[-1:]), before=LARGE_OUT + " && touch MARK"),
    Case("packets with ECN lost", (*NETWORK, *JOIN, *REFUSED[-1:]), before=WITH_ECN + " && touch MARK"),
    Case("20 kB a second out", (*NETWORK, *JOIN, *SLOW), before=ONE_BURST + " && touch MARK"),
    Case("blackhole by a rule", NETWORK, command(BY_RULE)),
    Case("no new connections to it in mid-run", (*NETWORK, *JOIN, *DIED), command(TWO_SECONDS), must=False),
    Case("a queue of two packets and 8 Mbit/s", (*NETWORK, *SLOW), before=SHAPED, must=False),
    Case(
        "20 ports",
        (*JOIN, *START, *DIED, *NETWORK),
        before="echo '50000 50019' >/proc/sys/net/ipv4/ip_local_port_range; touch MARK",
        must=False,
    ),
    Case("no TIME_WAIT", (), before="sysctl -qw net.ipv4.tcp_max_tw_buckets=0; touch MARK"),
    Case(
        "two addresses of its network",
        (),
        before=SECOND + "; touch MARK",
    ),
    Case("another logging", START, before=SHADOW.format("x=1", "logging.py"), environ=HERE),
    Case("another queue", START, before=SHADOW.format("x=1", "queue.py"), environ=HERE),
    Case("a bad hash seed", START, before="touch MARK", environ={"PYTHONHASHSEED": "abc"}),
    Case("a locale that is not there", (), before="touch MARK", environ={"LC_ALL": "xx_YY.UTF-8", "LANGUAGE": "xx"}),
    Case("import times", (), wrapper="touch MARK; export PYTHONPROFILEIMPORTTIME=1 PYTHONVERBOSE=1"),
    Case("development mode", (), wrapper="touch MARK; export PYTHONDEVMODE=1 PYTHONTRACEMALLOC=5 PYTHONASYNCIODEBUG=1"),
    Case("interactive at its end", (), wrapper="touch MARK; export PYTHONINSPECT=1"),
    Case("recursion of 60", (*START, *DIED), imports=MARKED + "import sys; sys.setrecursionlimit(60)", must=False),
    Case("threads switch after 5 s", (), imports=MARKED + "import sys; sys.setswitchinterval(5)"),
    Case("2000 folders on its path", (), wrapper="touch MARK; export PYTHONPATH=$(seq -s: -f /nowhere/%g 2000)"),
)
"""Written down before the judge was read, after all that stand above and below."""

STRANGER = SLOW_NAMES.replace("    time.sleep(3)\n", "").replace(
    "data[:2] + bytes([0x81, 0x83]) + data[4:]",
    "data[:2] + bytes([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]) + data[12 : data.index(0, 12) + 5] + "
    'bytes.fromhex("c00c00010001000000050004c0000207")',
)
"""Every name leads to 192.0.2.7."""
BY_SERVER = "sed -i '/^hosts:/d' /etc/nsswitch.conf 2>/dev/null; echo 'hosts: dns' >>/etc/nsswitch.conf; "
DEAD_IPV6 = "ip -6 addr add 2001:db8::9/64 dev eth0 nodad; " + OTHERS.replace("192.0.2.%s", "2001:db8::%s")
OF_NEW = (
    HOOK.format("input", "tcp dport 22 accept; tcp sport 22 accept; {0}").replace("{ ", "{{ ").replace("; }", "; }}")
)
ONE_A_SECOND = "limit rate over 1/second burst 1 packets drop"
ONE_A_SECOND = OF_NEW.format(f"tcp flags & (syn | ack | rst) == syn {ONE_A_SECOND}")
LONG_ONES = "sysctl -qw net.netfilter.nf_conntrack_acct=1; " + OF_NEW.format("ct original bytes > 60000 drop")
ESTABLISHED = OF_NEW.format("meta l4proto tcp ct state established drop")
ONE_HOP = HOOK.format("output", "ip ttl set 1")
SMALL_SEGMENTS = HOOK.format(
    "output", "tcp dport 22 accept; tcp sport 22 accept; tcp flags syn tcp option maxseg size set 88"
)
TIMERS = "net.ipv4.tcp_keepalive_time=1 net.ipv4.tcp_keepalive_intvl=1 net.ipv4.tcp_keepalive_probes=1"
OWN_NETWORK = """
import ctypes
assert not ctypes.CDLL(None).unshare(0x40000000)
"""
CHILDREN = """
for _ in range(30):
    subprocess.Popen(["sleep", "120"], start_new_session=True)
"""
ALONE_ON_ONE = "for n in 1 2 3; do taskset 1 sh -c 'while :; do :; done' >/dev/null 2>&1 & done; touch MARK"
AGAIN: tuple[Case, ...] = (
    Case("names of a stranger", (*NETWORK, *JOIN, *REFUSED[-1:]), before=BY_SERVER + STRANGER, must=False),
    Case(
        "no files for names",
        (*NETWORK, *JOIN, *REFUSED[-1:]),
        before=BY_SERVER + "echo nameserver 10.255.255.1 >/etc/resolv.conf; touch MARK",
        must=False,
    ),
    # The libraries' gethostname fails: the job does, too.
    Case("a hostname of 64 letters", REFUSED[-1:], before="hostname $(printf 'a%.0s' $(seq 64)); touch MARK"),
    Case(
        "an address first that no other reaches",
        REFUSED[-1:],
        before='ip addr add 2.2.2.9/24 dev eth0; { echo "2.2.2.9 $(hostname)"; cat /etc/hosts; } >/run/hosts; '
        "cat /run/hosts >/etc/hosts; touch MARK",
    ),
    Case(
        "a stranger's address for its name first",
        (*NETWORK, *JOIN, *REFUSED[-1:]),
        before='{ echo "192.0.2.9 $(hostname)"; cat /etc/hosts; } >/run/hosts; cat /run/hosts >/etc/hosts; touch MARK',
        must=False,
    ),
    Case(
        "IPv6 first and dead",
        (*NETWORK, *JOIN, *REFUSED[-1:]),
        before=f"{{ {DEAD_IPV6}; cat /etc/hosts; }} >/run/hosts; cat /run/hosts >/etc/hosts; touch MARK",
        must=False,
    ),
    Case(
        "hosts file is a folder",
        (*NETWORK, *JOIN, *REFUSED[-1:]),
        before="umount /etc/hosts; rm /etc/hosts; mkdir /etc/hosts && touch MARK",
        must=False,
    ),
    Case(
        "a monotonic clock of its own",
        (),
        wrapper='touch MARK; [ "$AHEAD" ] || { export AHEAD=1; '
        'exec unshare --time --monotonic 1000000 --boottime 1000000 "$0" "$@"; }',
    ),
    Case("a second libgomp", (), before="touch MARK", environ={"LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/libgomp.so.1"}),
    Case(
        "threads bound to a CPU that is not there",
        (),
        wrapper="touch MARK; export GOMP_CPU_AFFINITY=99 OMP_PROC_BIND=true KMP_AFFINITY=odd MKL_THREADING_LAYER=ODD",
    ),
    Case(
        "few processes of a user",
        (*START, *DIED, *FAILED_LOADER),
        wrapper=SWITCHED.replace("exec setpriv", "exec prlimit --nproc=2:2 setpriv"),
    ),
    Case(
        "a CPU that others take",
        (*SLOWED, *SLOW),
        wrapper="taskset -p 1 $$ >/dev/null",
        before=ALONE_ON_ONE,
        must=False,
    ),
    Case("real-time priority", (), wrapper="chrt -f -p 10 $$ && touch MARK"),
    Case(
        "no memory killer and idle disk",
        (),
        wrapper="echo -1000 >/proc/$$/oom_score_adj; ionice -c 3 -p $$; touch MARK",
    ),
    Case("prctl is denied", (), imports=denied("prctl", errno=1)),
    Case(
        "all ports are reserved",
        (*JOIN, *START, *DIED, *NETWORK),
        before="sysctl -qw net.ipv4.ip_local_reserved_ports=1024-65535; touch MARK",
    ),
    Case("a new connection a second", (*NETWORK, *JOIN), before=ONE_A_SECOND + " && touch MARK", must=False),
    Case("one hop", (), before=ONE_HOP + " && touch MARK"),
    Case("segments of 88 bytes", (*NETWORK, *SLOW), before=SMALL_SEGMENTS + " && touch MARK", must=False),
    Case("connections once they stand", (*NETWORK, *JOIN), before=ESTABLISHED + " && touch MARK"),
    Case("connections of 60 kB", (*NETWORK, *DIED, *JOIN), before=LONG_ONES + " && touch MARK"),
    Case(
        "another hardware address",
        (*NETWORK, *SILENT),
        command("ip link set eth0 address 02:00:00:00:00:77"),
        must=False,
    ),
    Case("probes of idle connections", (), before=f"sysctl -qw {TIMERS}; touch MARK"),
    Case(
        "reno without scaled windows",
        (),
        before="sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_window_scaling=0; touch MARK",
    ),
    Case("ends by SIGPIPE", (), program("signal.signal(13, signal.SIG_DFL)")),
    Case("takes orphans", (), program("import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)")),
    Case("its input is closed", (), program("os.close(0)")),
    Case("output to a full device", (*START, *DIED), wrapper="touch MARK; exec >/dev/full 2>&1", must=False),
    Case("errors to a full device", (), wrapper="touch MARK; exec 2>/dev/full"),
    Case("leaves its network", (*NETWORK, *DIED, *JOIN), program(OWN_NETWORK), must=False),
    Case("children in sessions of their own", (), program(CHILDREN)),
    Case("not to be looked into", (), program("import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)")),
)
"""Written down before the judge was read, after all the others."""

HOSTS: tuple[Case, ...] = (
    Case("1 MB of /dev/shm", FAILED_LOADER, before="mount -t tmpfs -o size=1m none /dev/shm; touch MARK", must=False),
    Case("14 tasks for a host", (*START, *DIED, *FAILED_LOADER, *SILENT, "host-unreachable"), before=HOST_TASKS),
    Case("300 MB for a host", (*START, *DIED, *FAILED_LOADER, *SILENT), before=HOST_MEMORY, must=False),
    Case("loopback of 500 bytes", (), before="ip link set lo mtu 500; touch MARK"),
    Case("loopback without address", (*NETWORK, *JOIN, *START), before="ip addr flush dev lo; touch MARK", must=False),
    Case("another json", START, before=SHADOW.format("'raise ValueError(1)'", "json.py"), environ=HERE),
    Case("another ctypes", START, before=SHADOW.format("'raise ImportError(1)'", "ctypes.py"), environ=HERE),
    Case("another torch", START, before=SHADOW.format("x=1", "torch.py"), environ=HERE),
    Case("another socket", START, before=SHADOW.format("'from _socket import *'", "socket.py"), environ=HERE),
    Case("no HOME", (), wrapper="touch MARK; unset HOME USER LOGNAME"),
    Case("HOME of /proc", (), wrapper="touch MARK; export HOME=/proc XDG_CACHE_HOME=/proc/x"),
    Case(
        "locale C and a folder of letters",
        (),
        wrapper="touch MARK; mkdir -p /tmp/模型; cd /tmp/模型; export LC_ALL=C PYTHONUTF8=0 TMPDIR=/tmp/模型",
    ),
    Case(
        "proxies",
        (),
        wrapper="touch MARK; export http_proxy=http://10.255.255.1:3128 all_proxy=socks5://10.255.255.1:1 no_proxy=",
    ),
    Case("60 packets a second", (*NETWORK, *JOIN, *SLOW), before=RATE + " && touch MARK"),
    Case("half-open connections", (*NETWORK, *DIED), command(HALF_OPEN)),
    Case("names after 3 s", (), before=SLOW_NAMES),
    Case(
        "hosts file of other addresses",
        (*NETWORK, *JOIN, "smoke-environment-fails"),
        before=f"({OTHERS}) >>/etc/hosts; touch MARK",
        must=False,
    ),
    Case(
        "address of another",
        (*NETWORK, *JOIN, *SILENT, "host-unreachable"),
        before=f"{TWICE}; touch MARK",
        must=False,
    ),
    Case("gateway that is not there", (*NETWORK, *SILENT), command(GATEWAY)),
    Case("ARP off", (*NETWORK, *SILENT), command(DEAF), must=False),
    Case(
        "details of distributed",
        (*HANGS, *JOIN, *DIED, *NETWORK, *VALUES),
        wrapper="touch MARK; export TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    Case(
        "a job's variables",
        (),
        wrapper="touch MARK; export RANK=7 WORLD_SIZE=99 LOCAL_RANK=5 MASTER_ADDR=192.0.2.1 MASTER_PORT=1",
    ),
    Case("another PYTHONHOME", START, wrapper="touch MARK; export PYTHONHOME=/nowhere"),
    Case("a Python without torch", START, wrapper='touch MARK; exec /usr/bin/python3 -I "$@"'),
    Case(
        "no inodes in /tmp",
        (*START, *DIED, *FAILED_LOADER),
        before="mount -t tmpfs -o nr_inodes=2 none /tmp; touch MARK",
        must=False,
    ),
    Case("backlog of one", (*NETWORK, *JOIN), before="sysctl -qw net.core.somaxconn=1; touch MARK", must=False),
    Case(
        "no timestamps and no SACK", (), before="sysctl -qw net.ipv4.tcp_timestamps=0 net.ipv4.tcp_sack=0; touch MARK"
    ),
    Case("closed streams", (), wrapper="touch MARK; exec 2>&-"),
    Case("signals blocked", (), wrapper="touch MARK; trap '' CHLD HUP TERM INT USR1 USR2 PIPE", must=False),
    Case("all its processes are killed", (*DIED, *SILENT, *STOPPED), command(ENDS)),
    *LATER,
    *FRESH,
    *AGAIN,
)
