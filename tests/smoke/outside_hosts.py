"""Kinds of faults of the machine beneath the ranks: its limits, names, files, clock and network stack."""

from __future__ import annotations

from tests.faults.kernel import grouped
from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    HANGS,
    HOOK,
    JOIN,
    NETWORK,
    SILENT,
    START,
    STOPPED,
    VALUES,
    Case,
    command,
    nft,
)

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
        must=False,
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
)
