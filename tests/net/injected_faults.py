"""Faults that are put into real test hosts at random places, and what must be said of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

MASTER = 29500
SSH_PASSES = ("tcp dport 22 accept", "tcp sport 22 accept")
"""Two rules: of `tcp dport != 22 tcp sport != 22` nft 1.0 makes one comparison, which is wrong."""
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
import fcntl, heapq, itertools, os, random, select, socket, struct, sys, time
tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"slow0", 0x1001))
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
out.setsockopt(socket.SOL_SOCKET, 36, 7)  # SO_MARK: by the main table
os.system("ip link set slow0 up mtu 1500 txqueuelen 40000; ip rule add fwmark 7 lookup main pref 10;"
          "ip rule add to %s lookup 100 pref 20; ip route add default dev slow0 src %s table 100" % tuple(sys.argv[2:]))
open("/tmp/delayed", "w").close()
seconds, spread, deed = sys.argv[1].split("+")
seconds, spread, queue, last, numbers = float(seconds), float(spread), [], 0, itertools.count()
while True:
    wait = queue[0][0] - time.monotonic() if queue else 1
    if wait > 0 and select.select([tun], [], [], wait)[0]:
        try:
            for _ in range(64):
                due, packet = time.monotonic() + seconds + spread * random.random(), os.read(tun, 65536)
                last = due if deed == "reorder" else max(due, last)
                if deed == "corrupt" and len(packet) > 200 and random.random() < 0.02:
                    packet = packet[:120] + bytes([packet[120] ^ 64]) + packet[121:]
                for _ in range(2 if deed == "twice" else 1):
                    heapq.heappush(queue, (last, next(numbers), packet))
        except BlockingIOError:
            pass
    while queue and queue[0][0] <= time.monotonic():
        packet = heapq.heappop(queue)[2]
        if packet[0] >> 4 == 4:
            try:
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
            except OSError:
                pass
"""
"""A way that takes longer: packets to one address go through a program that keeps them for a time.

It may also bring them in another order, twice, or with a wrong bit in one of 50."""


class Expectation(msgspec.Struct, frozen=True):
    """One finding that must be there."""

    checks: frozenset[str]
    """Any of these names the fault rightly."""
    hosts: frozenset[str]
    text: str = ""
    """What the message has."""
    parts: tuple[frozenset[str], ...] = ()
    """Hosts that stay together: a finding of any two of these is right as well."""

    def is_met(self, check: str, hosts: list[str], message: str) -> bool:
        named = [part for part in self.parts if part <= set(hosts)]
        is_named = set(hosts) == self.hosts or (len(named) == 2 and set(hosts) == named[0] | named[1])
        return check in self.checks and is_named and self.text in message


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
    environ: Mapping[str, str] = {}
    """Variables of the job."""

    @property
    def touched(self) -> set[str]:
        """Hosts that are made anew afterwards."""
        return {host for host in {*self.nft, *self.scripts} if host}


def rules(*lines: str, kind: str = "inet", hook: str = "input", more: str = "filter") -> str:
    body = "\n  ".join((f"type {more} hook {hook} priority 0", *lines))
    return f"table {kind} fault_{hook} {{\n chain c {{\n  {body}\n }}\n}}\n"


def _expect(check: str, *hosts: str, text: str = "") -> Expectation:
    return Expectation(frozenset(check.split()), frozenset(hosts), text)


class Draw(msgspec.Struct, frozen=True):
    """What the faults are made from: a fleet, two of its hosts, and chance."""

    fleet: Any
    random: Random
    a: str
    b: str

    @property
    def from_a(self) -> str:
        """The beginning of a rule at ``b``: packets of ``a``."""
        return f"{self.ip} saddr {self.fleet.addresses[self.a]}"

    @property
    def ip(self) -> str:
        """The word of a rule for the family of the hosts' addresses."""
        return "ip6" if ":" in self.address(self.a) else "ip"

    @property
    def tcp(self) -> str:
        return "ip6 nexthdr tcp" if self.ip == "ip6" else "ip protocol tcp"

    @property
    def flow_hash(self) -> str:
        """One of several equal paths is broken: a packet's addresses and ports choose the path."""
        paths = self.random.choice([2, 3, 4])
        return f"jhash {self.ip} saddr . {self.ip} daddr . tcp sport . tcp dport mod {paths} == 1 drop"

    @property
    def wrong_way(self) -> str:
        """The first host looks for the second behind an interface that leads nowhere."""
        length = 128 if self.ip == "ip6" else 32
        up = "sysctl -qw net.ipv6.conf.d0.disable_ipv6=0; " if self.ip == "ip6" else ""
        route = f"ip route add {self.address(self.b)}/{length} dev d0"
        return f"ip link add d0 type veth peer name d1; ip link set d1 up; {up}ip link set d0 up; {route}"

    @property
    def direction(self) -> str:
        return f"from {self.a} to {self.b}"

    def port(self) -> str:
        return self.random.choice([f"tcp dport {MASTER}", "tcp dport 30000-65535 tcp flags & (syn|ack) == syn"])

    def address(self, host: str) -> str:
        return str(self.fleet.addresses[host])


Make = Callable[[str, Draw], InjectedFault]
_MAKERS: dict[str, Make] = {}


def _makes(*kinds: str) -> Callable[[Make], Make]:
    def enter(make: Make) -> Make:
        _MAKERS.update(dict.fromkeys(kinds, make))
        return make

    return enter


def place(kind: str, fleet: Any, random: Random, free: list[str]) -> InjectedFault:
    """A fault of a kind between hosts drawn from ``free``."""
    a, b = random.sample(free, 2)
    return _MAKERS[kind](kind, Draw(fleet, random, a, b))


@_makes("port one way")
def _port_one_way(kind: str, draw: Draw) -> InjectedFault:
    expected = _expect("net-port-blocked", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {draw.b: rules(f"{draw.from_a} {draw.port()} drop")})


@_makes("port of a host", "reject")
def _port_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    method = draw.random.choice(["tcp reset", "icmpx type admin-prohibited", "icmpx type host-unreachable"])
    verdict = f"reject with {method}" if kind == "reject" else "drop"
    expected = _expect("net-port-blocked", draw.a, text=f"to {draw.a} ")
    return InjectedFault(kind, expected, {draw.a: rules(f"{draw.port()} {verdict}")})


@_makes("port both ways")
def _port_both_ways(kind: str, draw: Draw) -> InjectedFault:
    port = draw.port()
    own_values = {
        x: rules(f"{draw.ip} saddr {draw.address(y)} {port} drop") for x, y in ((draw.a, draw.b), (draw.b, draw.a))
    }
    return InjectedFault(kind, _expect("net-port-blocked", draw.a, draw.b, text="between "), own_values)


@_makes("one way")
def _one_way(kind: str, draw: Draw) -> InjectedFault:
    expected = _expect("net-unreachable", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {draw.b: rules(*SSH_PASSES, f"{draw.from_a} {draw.tcp} drop")})


@_makes("flows one way")
def _flows_one_way(kind: str, draw: Draw) -> InjectedFault:
    rule = f"{draw.from_a} {draw.flow_hash}"
    expected = _expect("net-flows-lost", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {draw.b: rules(*SSH_PASSES, rule)})


@_makes("flows of a host")
def _flows_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    rule = f"{draw.tcp} {draw.flow_hash}"
    return InjectedFault(kind, _expect("net-flows-lost", draw.a), {draw.a: rules(*SSH_PASSES, rule)})


@_makes("flows through the bridge")
def _flows_through_the_bridge(kind: str, draw: Draw) -> InjectedFault:
    """Of one host, both ways."""
    chosen = draw.flow_hash
    both = [f"{draw.ip} {side} {draw.address(draw.a)} {draw.tcp} {chosen}" for side in ("saddr", "daddr")]
    table = rules(*SSH_PASSES, *both, kind="bridge", hook="forward")
    return InjectedFault(kind, _expect("net-flows-lost", draw.a), {"": table})


@_makes("bridge")
def _bridge(kind: str, draw: Draw) -> InjectedFault:
    side, way = draw.random.choice([("saddr", "from"), ("daddr", "to")])
    table = rules(
        *SSH_PASSES, f"{draw.ip} {side} {draw.address(draw.a)} {draw.tcp} drop", kind="bridge", hook="forward"
    )
    return InjectedFault(kind, _expect("net-unreachable", draw.a, text=f"{way} {draw.a}"), {"": table})


@_makes("cut in two", "cut in three")
def _cut(kind: str, draw: Draw) -> InjectedFault:
    """A dead spine: nothing passes between its leaves, and no part of the fleet is smaller than another."""
    hosts, number = list(draw.fleet.hosts), 2 if kind.endswith("two") else 3
    draw.random.shuffle(hosts)
    parts = [hosts[place::number] for place in range(number)]
    members = [", ".join(draw.address(host) for host in part) for part in parts]
    lines = [
        f"{draw.ip} saddr {{ {one} }} {draw.ip} daddr {{ {other} }} drop"
        for one in members
        for other in members
        if one != other
    ]
    named = tuple(map(frozenset, parts))
    expected = Expectation(frozenset({"net-unreachable"}), frozenset(hosts), "fail on all ports", named)
    return InjectedFault(kind, expected, {"": rules(*SSH_PASSES, *lines, kind="bridge", hook="forward")})


@_makes("half of the range")
def _half_of_the_range(kind: str, draw: Draw) -> InjectedFault:
    span = draw.random.choice(["32768-46883", "46884-60999"])  # as inet_csk_find_open_port halves 32768 to 60999
    expected = _expect("net-port-blocked", draw.a, text=f"to {draw.a} ")
    return InjectedFault(kind, expected, {draw.a: rules(f"tcp dport {span} tcp flags & (syn|ack) == syn drop")})


@_makes("MTU of a host")
def _mtu_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    """A port of the switch has a smaller MTU, toward the controller too."""
    size = draw.random.choice([1300, 1400, 1450])
    off = dict.fromkeys(draw.fleet.hosts, f"python3 - eth0 <<'END'\n{OFFLOADS}END\n")
    smaller = f"ip link set {port_of(draw.fleet, draw.a)} mtu {size}"
    hub = (f"python3 -c '{OFFLOADS}' br0", f"ip link set br0 mtu 1500; {smaller}; ip link set br0 mtu 1500")
    return InjectedFault(kind, _expect("net-large-packets-lost", draw.a), {}, off, hub)


@_makes("MTU one way")
def _mtu_one_way(kind: str, draw: Draw) -> InjectedFault:
    rule = f"{draw.from_a} meta length > {draw.random.choice([900, 1300, 1400])} drop"
    expected = _expect("net-large-packets-lost", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {draw.b: rules(*SSH_PASSES, rule)})


@_makes("loss one way")
def _loss_one_way(kind: str, draw: Draw) -> InjectedFault:
    rule = f"{draw.from_a} tcp dport 30000-65535 numgen random mod 100 < {draw.random.choice([1, 2, 5])} drop"
    expected = _expect("net-packets-lost", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {draw.b: rules(rule)}, speeds=True)


@_makes("loss of a host")
def _loss_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    rule = rules(*SSH_PASSES, f"numgen random mod 100 < {draw.random.choice([1, 2, 5])} drop")
    return InjectedFault(kind, _expect("net-packets-lost", draw.a), {draw.a: rule}, speeds=True)


@_makes("loss out of a host", "loss into a host")
def _loss_at_one_end(kind: str, draw: Draw) -> InjectedFault:
    """One of the two fibres of a host's cable is dirty: the other direction is well."""
    side = "saddr" if "out" in kind else "daddr"
    rule = f"{draw.ip} {side} {draw.address(draw.a)} numgen random mod 100 < {draw.random.choice([1, 3, 10])} drop"
    table = rules(*SSH_PASSES, rule, kind="bridge", hook="forward")
    return InjectedFault(kind, _expect("net-packets-lost", draw.a), {"": table}, speeds=True)


@_makes("limit of a host")
def _limit_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    """A switch port that was set to 100 or 200 Mbit/s: what is more is dropped."""
    rule = rules(*SSH_PASSES, f"limit rate over {draw.random.choice([12, 25])} mbytes/second burst 256 kbytes drop")
    return InjectedFault(kind, _expect("net-packets-lost net-path-slow", draw.a), {draw.a: rule}, speeds=True)


@_makes("delay", "reordered one way", "twice one way", "wrong bits one way")
def _delay(kind: str, draw: Draw) -> InjectedFault:
    way = {
        "reordered one way": "0+0.004+reorder",
        "twice one way": "0.005+0+twice",
        "wrong bits one way": "0+0+corrupt",
    }
    message = (
        f"{way.get(kind) or f'{draw.random.choice([0.005, 0.02])}+0+'} {draw.address(draw.b)} {draw.address(draw.a)}"
    )
    script = f"mkdir -p /dev/net; mknod /dev/net/tun c 10 200; {_background(f'{DELAY}', message, '/tmp/delayed')}"
    checks = "net-path-slow" if kind == "delay" else "net-path-slow net-packets-lost"
    return InjectedFault(kind, _expect(checks, draw.a, draw.b), {}, {draw.a: script}, speeds=True)


@_makes("first packets one way")
def _first_packets(kind: str, draw: Draw) -> InjectedFault:
    """What stands goes on, and what comes from the other side is answered."""
    rule = f"{draw.from_a} tcp flags & (syn | ack) == syn drop"
    return InjectedFault(
        kind, _expect("net-unreachable", draw.a, draw.b, text=draw.direction), {draw.b: rules(*SSH_PASSES, rule)}
    )


@_makes("delay of a host", "jitter of a host")
def _delay_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    """A host behind a way of 50 ms, or of 0 to 50 ms: severe for every job on it."""
    network = ".".join(draw.address(draw.a).split(".")[:2]) + ".0.0/16"
    message = f"{'0+0.05+' if 'jitter' in kind else '0.05+0+'} {network} {draw.address(draw.a)}"
    script = f"mkdir -p /dev/net; mknod /dev/net/tun c 10 200; {_background(f'{DELAY}', message, '/tmp/delayed')}"
    return InjectedFault(kind, _expect("net-path-slow", draw.a), {}, {draw.a: script}, speeds=True)


@_makes("bandwidth")
def _bandwidth(kind: str, draw: Draw) -> InjectedFault:
    family = draw.ip.replace("ip6", "ipv6")
    script = f"""\
tc qdisc add dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:10 htb rate 200gbit burst 1m cburst 1m
tc class add dev eth0 parent 1: classid 1:20 htb rate 200gbit burst 1m cburst 1m
tc qdisc add dev eth0 parent 1:20 tbf rate {draw.random.choice([20, 100, 500])}mbit burst 128kb latency 50ms
tc filter add dev eth0 parent 1: protocol {family} u32 match {draw.ip} dst {draw.address(draw.b)} flowid 1:20
"""
    expected = _expect("net-path-slow", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {}, {draw.a: script}, speeds=True)


@_makes("bandwidth of a host")
def _bandwidth_of_a_host(kind: str, draw: Draw) -> InjectedFault:
    rate = draw.random.choice([100, 200, 500])
    script = f"tc qdisc add dev eth0 root tbf rate {rate}mbit burst 128kb latency 50ms"
    expected = _expect("net-path-slow", draw.a, text=f"from {draw.a} ")
    return InjectedFault(kind, expected, {}, {draw.a: script}, speeds=True)


@_makes("two with one address")
def _two_with_one_address(kind: str, draw: Draw) -> InjectedFault:
    script = f"ip addr add {draw.address(draw.a)}/{16 if draw.ip == 'ip' else '64 nodad'} dev eth0"
    expected = _expect("duplicate-address net-answered-by-other", draw.a, draw.b)
    return InjectedFault(kind, expected, {}, {draw.b: script})


@_makes("reverse path")
def _reverse_path(kind: str, draw: Draw) -> InjectedFault:
    filters = "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1"
    script = f"{draw.wrong_way}; {filters}"
    return InjectedFault(kind, _expect("net-unreachable", draw.a, draw.b), {}, {draw.a: script})


@_makes("wrong route")
def _wrong_route(kind: str, draw: Draw) -> InjectedFault:
    expected = _expect("net-unreachable", draw.a, draw.b, text=draw.direction)
    return InjectedFault(kind, expected, {}, {draw.a: draw.wrong_way})


@_makes("no route")
def _no_route(kind: str, draw: Draw) -> InjectedFault:
    """The kernel of the source refuses before any packet is sent: the other host is innocent."""
    expected = _expect("net-unreachable", draw.a, text=draw.direction)
    script = f"ip route add {draw.random.choice(['unreachable', 'prohibit', 'blackhole'])} {draw.address(draw.b)}"
    return InjectedFault(kind, expected, {}, {draw.a: script})


@_makes("connection table full")
def _connection_table_full(kind: str, draw: Draw) -> InjectedFault:
    """Most new connections are dropped, as in a full table: the table itself is one for the whole machine."""
    rule = rules(
        *SSH_PASSES, f"tcp flags & (syn|ack) == syn numgen random mod 100 < {draw.random.choice([96, 98, 99])} drop"
    )
    return InjectedFault(kind, _expect("net-unreachable net-port-blocked", draw.a), {draw.a: rule})


@_makes("stranger")
def _stranger(kind: str, draw: Draw) -> InjectedFault:
    port = draw.random.choice([str(MASTER), "30000-65535"])
    rule = rules(f"tcp dport {port} redirect to :22", kind=draw.ip, hook="prerouting", more="nat")
    return InjectedFault(kind, _expect("net-answered-by-other", draw.a), {draw.a: rule})


@_makes("bound")
def _bound(kind: str, draw: Draw) -> InjectedFault:
    server = "import socket, sys, time\nserver = socket.create_server("
    server += '("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)\n'
    script = _background(server + 'open("/tmp/bound", "w").close()\ntime.sleep(9999)\n', str(MASTER), "/tmp/bound")
    return InjectedFault(kind, _expect("net-port-unavailable", draw.a), {}, {draw.a: script})


@_makes("name")
def _name(kind: str, draw: Draw) -> InjectedFault:
    """A stale line on one host: the name of another host leads to a third one there, or to nobody."""
    others = [host for host in draw.fleet.hosts if host not in (draw.a, draw.b)]
    address = draw.random.choice([draw.address(draw.random.choice(others)), "10.77.250.250"])
    script = (
        f"sed '/[[:space:]]{draw.b}\\b/d' /etc/hosts >/tmp/h; echo {address} {draw.b} >>/tmp/h; cat /tmp/h >/etc/hosts"
    )
    return InjectedFault(kind, _expect("host-name-ambiguous", draw.a), {}, {draw.a: script})


@_makes("host dies")
def _host_dies(kind: str, draw: Draw) -> InjectedFault:
    """In the midst of the test, once it listens, it is gone from the network, as one that has lost its power."""
    listens = 'cat /proc/net/tcp /proc/net/tcp6 | grep -v :0016 | grep -q " 0A "'
    died = f"until {listens}; do sleep 0.1; done; sleep {draw.random.randint(0, 3)}; ip link set eth0 down"
    script = f"setsid sh -c '{died}' >/dev/null 2>&1 &"
    return InjectedFault(kind, _expect("host-unreachable", draw.a), {}, {draw.a: script}, speeds=True)


SECOND_NETWORK = "ip link add eth1 link eth0 type macvlan mode bridge"
NOWHERE = "ip link add eth1 type veth peer name nowhere; ip link set nowhere up"


@_makes("interface")
def _interface(kind: str, draw: Draw) -> InjectedFault:
    """The job takes a second interface, which all hosts have; that of one leads nowhere."""
    own_name = "ip addr add 10.88.0.{0}/24 dev eth1; ip link set eth1 up"
    scripts = {
        host: f"{NOWHERE if host == draw.a else SECOND_NETWORK}; {own_name.format(number)}"
        for number, host in enumerate(draw.fleet.hosts, 1)
    }
    expected = _expect("net-unreachable net-port-blocked", draw.a)
    return InjectedFault(kind, expected, {}, scripts, environ={"GLOO_SOCKET_IFNAME": "eth1"})


def _background(program: str, message: str, sign: str) -> str:
    """A script that starts a Python program, and waits until it has made a file."""
    return f"setsid python3 -c '{program}' {message} >/dev/null 2>&1 &\nuntil test -e {sign}; do sleep 0.1; done"


QUICK = (
    "port one way",
    "port of a host",
    "port both ways",
    "reject",
    "one way",
    "bridge",
    "cut in two",
    "cut in three",
    "half of the range",
    "flows one way",
    "flows of a host",
    "flows through the bridge",
    "MTU of a host",
    "MTU one way",
    "first packets one way",
    "two with one address",
    "reverse path",
    "wrong route",
    "no route",
    "connection table full",
    "stranger",
    "bound",
    "name",
    "interface",
)
SPEEDS = (
    "host dies",
    "loss one way",
    "loss of a host",
    "loss out of a host",
    "loss into a host",
    "limit of a host",
    "delay",
    "reordered one way",
    "twice one way",
    "wrong bits one way",
    "delay of a host",
    "jitter of a host",
    "bandwidth",
    "bandwidth of a host",
)
KINDS = (*QUICK, *SPEEDS)
COMBINED = (
    "port one way",
    "port of a host",
    "reject",
    "one way",
    "bridge",
    "flows one way",
    "flows of a host",
    "flows through the bridge",
    "MTU one way",
    "no route",
    "stranger",
    "bound",
)
"""Those that two hosts each can have beside another of them."""

OF_IPV4 = (
    "MTU of a host",
    "reverse path",
    "delay",
    "reordered one way",
    "twice one way",
    "wrong bits one way",
    "delay of a host",
    "jitter of a host",
    "interface",
    "name",
)
"""Those that are made with means of IPv4: rp_filter, a program that reads IPv4 packets, IPv4 addresses."""
LASTING = ("two with one address", "MTU of a host")
"""Those that others remember: the hardware address of an address, the size that passes."""


def port_of(fleet: Any, host: str) -> str:
    """The hub's end of a host's link."""
    number = fleet.enter(host, "cat /sys/class/net/eth0/iflink").stdout.strip()
    lines = fleet.run(["ip", "-o", "link"]).stdout.splitlines()
    return next(str(line.split()[1]).split("@")[0] for line in lines if line.startswith(f"{number}:"))


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
