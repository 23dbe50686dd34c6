"""Faults of the network between the hosts, which only a trial finds."""

from __future__ import annotations

from tests.faults import Row


def rules(*lines: str, kind: str = "inet", hook: str = "type filter hook input priority 0") -> str:
    """A script that loads a chain of these rules into a host."""
    chain = "\n  ".join((hook, *lines))
    return f"nft -f - <<'END'\ntable {kind} doctor_fault {{\n chain c {{\n  {chain}\n }}\n}}\nEND\n"


UNDO = "nft delete table inet doctor_fault"
QUICK = ("--net", "quick")
OTHERS_TOO = ("*",)

FULL = ("--net", "full", "--budget", "40")
SLOW_DIRECTION = """\
tc qdisc add dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:10 htb rate 20gbit
tc class add dev eth0 parent 1: classid 1:20 htb rate 50mbit
tc filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.77.1.4/32 flowid 1:20
"""

HELD = """\
python3 -c '
import socket, time
held = socket.create_server(("0.0.0.0", 29500))
time.sleep(1000)
' >/dev/null 2>&1 &
until grep -q :733C /proc/net/tcp; do sleep 0.05; done
"""

ROWS = [
    Row(
        "net-path-slow",
        SLOW_DIRECTION,
        "tc qdisc del dev eth0 root",
        fleet="cpu",
        blamed=(1, 3),
        options=FULL,
        apart=OTHERS_TOO,
        healthy_first=False,
    ),
    Row(
        "net-packets-lost",
        rules("ip saddr 10.77.1.4 tcp dport 30000-65535 numgen random mod 100 < 2 drop"),
        UNDO,
        fleet="cpu",
        blamed=(1, 3),
        options=FULL,
        apart=OTHERS_TOO,
        healthy_first=False,
    ),
    Row(
        "net-unreachable",
        rules("tcp dport 22 accept", "tcp sport 22 accept", "ip protocol tcp drop", kind="netdev",
              hook="type filter hook ingress device eth0 priority 0"),
        "nft delete table netdev doctor_fault",
        fleet="cpu",
        options=QUICK,
        apart=OTHERS_TOO,
    ),
    Row(
        "net-port-blocked",
        rules("tcp dport 30000-65535 tcp flags & (syn|ack) == syn drop", kind="netdev",
              hook="type filter hook ingress device eth0 priority 0"),
        "nft delete table netdev doctor_fault",
        fleet="cpu",
        options=QUICK,
        apart=OTHERS_TOO,
    ),
    Row(
        "net-flows-lost",
        rules("tcp dport 22 accept", "tcp sport 22 accept",
              "ip protocol tcp jhash ip saddr . ip daddr . tcp sport . tcp dport mod 4 seed 1 == 1 drop"),
        UNDO,
        fleet="cpu",
        options=QUICK,
        apart=OTHERS_TOO,
    ),
    Row(
        "net-answered-by-other",
        rules("tcp dport 30000-65535 redirect to :22", kind="ip", hook="type nat hook prerouting priority -100"),
        "nft delete table ip doctor_fault",
        clause="What answers at a host's address and port is that host", fleet="cpu",
        options=QUICK,
        apart=OTHERS_TOO,
    ),
    Row(
        "duplicate-address",
        "ip address add $(getent ahostsv4 sb0003 | awk '{ print $1; exit }')/16 dev eth0",
        "ip address del $(getent ahostsv4 sb0003 | awk '{ print $1; exit }')/16 dev eth0",
        fleet="cpu",
        blamed=(1, 2),
        options=QUICK,
        also=("net-answered-by-other", "host-unreachable", "interface-unreachable"),  # as the neighbour tables have it
        apart=("*",),
    ),
    Row(
        "net-large-packets-lost",
        rules("tcp dport 30000-65535 meta length > 1400 drop"),  # SSH passes
        UNDO,
        fleet="cpu",
        options=QUICK,
        apart=OTHERS_TOO,
    ),
    Row(
        "firewall-blocks-job",
        rules("tcp dport 30000-65535 meta length > 1400 drop"),
        UNDO,
        fleet="cpu",
        options=QUICK,
        values={"loses": "later packets"},
        also=("net-large-packets-lost",),
        apart=OTHERS_TOO,
    ),
    Row(
        "net-port-unavailable",
        HELD,
        fleet="cpu",
        options=(*QUICK, "--ignore", "master-port-taken"),
        apart=OTHERS_TOO,
    ),
    Row(
        "default-port-taken",
        HELD,
        fleet="cpu",
        options=QUICK,
        values={"port": 29500},
        also=("net-port-unavailable",),
        apart=OTHERS_TOO,
        healthy_first=False,
    ),
    Row(
        "net-device-path-broken",
        "mkdir -p /run/rdma; echo completion >/run/rdma/mlx5_1",
        "rm /run/rdma/mlx5_1",
        clause="RDMA adapter", fleet="gpu",
        options=("--net", "full", "--budget", "60", "--select", "rdma-port-down"),
        apart=OTHERS_TOO,
        healthy_first=False,
    ),
]  # fmt: skip
