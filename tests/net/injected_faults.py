"""Faults that are put into real test hosts at random places, and what must be said of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec

MASTER = 29500
NOT_SSH = "tcp dport != 22 tcp sport != 22"
OFFLOADS = """\
import array, fcntl, socket, struct, sys
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name in sys.argv[1:]:
    for command in (0x1F, 0x24, 0x2C):  # ETHTOOL_STSO, SGSO, SGRO: off
        value = array.array("B", struct.pack("=II", command, 0))
        fcntl.ioctl(control, 0x8946, struct.pack("16sP8x", name.encode(), value.buffer_info()[0]))
"""
"""Switches off that packets are larger inside the host than on the wire."""
DELAY = """\
import fcntl, os, select, socket, struct, sys, time
tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"slow0", 0x1001))
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
out.setsockopt(socket.SOL_SOCKET, 36, 7)  # SO_MARK: by the main table
os.system("ip link set slow0 up mtu 1500; ip rule add fwmark 7 lookup main pref 10;"
          "ip rule add to %s lookup 100 pref 20; ip route add default dev slow0 src %s table 100" % tuple(sys.argv[2:]))
open("/tmp/delayed", "w").close()
queue, seconds = [], float(sys.argv[1])
while True:
    wait = queue[0][0] - time.monotonic() if queue else 1
    if wait > 0 and select.select([tun], [], [], wait)[0]:
        try:
            while len(queue) < 2000:
                queue.append((time.monotonic() + seconds, os.read(tun, 65536)))
        except BlockingIOError:
            pass
    while queue and queue[0][0] <= time.monotonic():
        packet = queue.pop(0)[1]
        if packet[0] >> 4 == 4:
            try:
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
            except OSError:
                pass
"""
"""A way that takes longer: packets to one address go through a program that keeps them for a time."""


class Expectation(msgspec.Struct, frozen=True):
    """One finding that must be there."""

    checks: frozenset[str]
    """Any of these names the fault rightly."""
    hosts: frozenset[str]
    text: str = ""
    """What the message has."""

    def is_met(self, check: str, hosts: list[str], message: str) -> bool:
        return check in self.checks and set(hosts) == self.hosts and self.text in message


class InjectedFault(msgspec.Struct, frozen=True):
    """A fault at its place."""

    kind: str
    expected: Expectation
    nft: Mapping[str, str] = {}
    """Rules by host; under the empty name those of the hub's bridge."""
    scripts: Mapping[str, str] = {}
    """Shell scripts by host."""
    hub: tuple[str, ...] = ()
    """Commands of the hub."""
    speeds: bool = False
    """It is seen only where speeds are measured."""

    @property
    def touched(self) -> set[str]:
        """Hosts that are made anew afterwards."""
        return {host for host in {*self.nft, *self.scripts} if host}


def rules(*lines: str, kind: str = "inet", hook: str = "input", more: str = "filter") -> str:
    body = "\n  ".join((f"type {more} hook {hook} priority 0", *lines))
    return f"table {kind} fault_{hook} {{\n chain c {{\n  {body}\n }}\n}}\n"


def _expect(check: str, *hosts: str, text: str = "") -> Expectation:
    return Expectation(frozenset(check.split()), frozenset(hosts), text)


def place(kind: str, fleet: Any, random: Random, free: list[str]) -> InjectedFault:
    """A fault of a kind between hosts drawn from ``free``."""
    a, b = random.sample(free, 2)
    ip = fleet.addresses
    port = random.choice([f"tcp dport {MASTER}", "tcp dport 30000-65535 tcp flags & (syn|ack) == syn"])
    where = ("from", a, "to", b)
    direction = f"{where[0]} {a} to {b}"
    if kind == "port one way":
        return InjectedFault(
            kind, _expect("net-port-blocked", a, b, text=direction), {b: rules(f"ip saddr {ip[a]} {port} drop")}
        )
    if kind == "port of a host":
        return InjectedFault(kind, _expect("net-port-blocked", a, text=f"to {a} "), {a: rules(f"{port} drop")})
    if kind == "port both ways":
        own = {x: rules(f"ip saddr {ip[y]} {port} drop") for x, y in ((a, b), (b, a))}
        return InjectedFault(kind, _expect("net-port-blocked", a, b, text="between "), own)
    if kind == "reject":
        how = random.choice(["tcp reset", "icmp type admin-prohibited", "icmp type host-unreachable"])
        return InjectedFault(
            kind, _expect("net-port-blocked", a, text=f"to {a} "), {a: rules(f"{port} reject with {how}")}
        )
    if kind == "one way":
        return InjectedFault(
            kind, _expect("net-unreachable", a, b, text=direction), {b: rules(f"ip saddr {ip[a]} {NOT_SSH} drop")}
        )
    if kind == "bridge":
        side = random.choice(["saddr", "daddr"])
        way = f"{'from' if side == 'saddr' else 'to'} {a}"
        table = rules(f"ip {side} {ip[a]} {NOT_SSH} drop", kind="bridge", hook="forward")
        return InjectedFault(kind, _expect("net-unreachable", a, text=way), {"": table})
    if kind == "MTU of a host":
        off = {host: f"python3 - eth0 <<'END'\n{OFFLOADS}END\n" for host in fleet.hosts}
        size = random.choice([1300, 1400, 1450])
        hub = (
            f"python3 -c '{OFFLOADS}' br0",
            f"ip link set br0 mtu 1500; ip link set {port_of(fleet, a)} mtu {size}; ip link set br0 mtu 1500",
        )
        return InjectedFault(kind, _expect("net-large-packets-lost", a), {}, off, hub)
    if kind == "MTU one way":
        size = random.choice([900, 1300, 1400])
        return InjectedFault(
            kind,
            _expect("net-large-packets-lost", a, b, text=direction),
            {b: rules(f"ip saddr {ip[a]} {NOT_SSH} meta length > {size} drop")},
        )
    if kind == "loss one way":
        share = random.choice([1, 2, 5])
        rule = rules(f"ip saddr {ip[a]} tcp dport 30000-65535 numgen random mod 100 < {share} drop")
        return InjectedFault(kind, _expect("net-packets-lost", a, b, text=direction), {b: rule}, speeds=True)
    if kind == "loss of a host":
        share = random.choice([1, 2, 5])
        rule = rules(f"{NOT_SSH} numgen random mod 100 < {share} drop")
        return InjectedFault(kind, _expect("net-packets-lost", a), {a: rule}, speeds=True)
    if kind == "delay":
        script = f"mkdir -p /dev/net; mknod /dev/net/tun c 10 200; setsid python3 -c '{DELAY}' {random.choice([0.005, 0.02])} {ip[b]} {ip[a]} >/dev/null 2>&1 & until test -e /tmp/delayed; do sleep 0.1; done"
        return InjectedFault(kind, _expect("net-path-slow", a, b), {}, {a: script}, speeds=True)
    if kind == "bandwidth":
        script = (
            "tc qdisc add dev eth0 root handle 1: htb default 10; tc class add dev eth0 parent 1: classid 1:10 htb rate "
            f"20gbit; tc class add dev eth0 parent 1: classid 1:20 htb rate {random.choice([20, 50, 100])}mbit; tc filter add dev "
            f"eth0 parent 1: protocol ip u32 match ip dst {ip[b]}/32 flowid 1:20"
        )
        return InjectedFault(kind, _expect("net-path-slow", a, b, text=direction), {}, {a: script}, speeds=True)
    if kind == "two with one address":
        script = f"ip addr add {ip[a]}/16 dev eth0"
        return InjectedFault(kind, _expect("net-answered-by-other host-unreachable", a, b), {}, {b: script})
    if kind == "reverse path":
        script = f"ip link add d0 type veth peer name d1; ip link set d1 up; ip link set d0 up; ip route add {ip[b]}/32 dev d0; sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1"
        return InjectedFault(kind, _expect("net-unreachable", a, b), {}, {a: script})
    if kind == "wrong route":
        script = f"ip link add d0 type veth peer name d1; ip link set d1 up; ip link set d0 up; ip route add {ip[b]}/32 dev d0"
        return InjectedFault(kind, _expect("net-unreachable", a, b, text=f"from {a} to {b}"), {}, {a: script})
    if kind == "no route":
        return InjectedFault(
            kind,
            _expect("net-unreachable", a, b, text=f"from {a} to {b}"),
            {},
            {a: f"ip route add {random.choice(['unreachable', 'prohibit', 'blackhole'])} {ip[b]}/32"},
        )
    if kind == "connection table full":
        rule = rules(f"{NOT_SSH} ct state new numgen random mod 100 < {random.choice([96, 98, 100])} drop")
        return InjectedFault(kind, _expect("net-unreachable net-port-blocked", a), {a: rule})
    if kind == "stranger":
        rule = rules(f"{port} redirect to :22", kind="ip", hook="prerouting", more="nat")
        return InjectedFault(kind, _expect("net-answered-by-other", a), {a: rule})
    assert kind == "bound", kind
    server = f'import socket, time; s = socket.create_server(("", {MASTER})); open("/tmp/bound", "w"); time.sleep(9999)'
    script = f"setsid python3 -c '{server}' >/dev/null 2>&1 & until test -e /tmp/bound; do sleep 0.1; done"
    return InjectedFault(kind, _expect("net-port-unavailable", a), {}, {a: script})


QUICK = (
    "port one way",
    "port of a host",
    "port both ways",
    "reject",
    "one way",
    "bridge",
    "MTU of a host",
    "MTU one way",
    "two with one address",
    "reverse path",
    "wrong route",
    "no route",
    "connection table full",
    "stranger",
    "bound",
)
SPEEDS = ("loss one way", "loss of a host", "delay", "bandwidth")
KINDS = (*QUICK, *SPEEDS)
COMBINED = (
    "port one way",
    "port of a host",
    "reject",
    "one way",
    "bridge",
    "MTU one way",
    "no route",
    "stranger",
    "bound",
)
"""Those that two hosts each can have beside another of them."""

LASTING = ("two with one address", "MTU of a host")
"""Those that others remember: the hardware address of an address, the size that passes."""


def port_of(fleet: Any, host: str) -> str:
    """The hub's end of a host's link."""
    number = fleet.enter(host, "cat /sys/class/net/eth0/iflink").stdout.strip()
    lines = fleet.run(["ip", "-o", "link"]).stdout.splitlines()
    return next(line.split()[1].split("@")[0] for line in lines if line.startswith(f"{number}:"))


@contextlib.contextmanager
def injected(fleet: Any, *faults: InjectedFault) -> Iterator[None]:
    """The fleet with these faults; afterwards all that they touched is made anew."""
    touched = sorted({host for fault in faults for host in fault.touched})
    bridge = any("" in fault.nft for fault in faults)
    try:
        for fault in faults:
            for host, text in fault.nft.items():
                if host:
                    fleet.enter(host, ["nft", "-f", "-"], input=text)
                else:
                    fleet.run(["nft", "-f", "-"], input=text, check=True)
            for host, script in fault.scripts.items():
                fleet.enter(host, f"set -e\n{script}")
            for command in fault.hub:
                fleet.run(["sh", "-c", command], check=True)
        yield
    finally:
        if bridge:
            fleet.run(["nft", "flush", "ruleset"], check=True)
        if any(fault.kind in LASTING for fault in faults):
            fleet.renew(*fleet.hosts)
        elif touched:
            fleet.renew(*touched)
