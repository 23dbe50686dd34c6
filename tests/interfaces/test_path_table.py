"""Faults between the hosts, each next to a real gloo job: `doctor check` fails exactly where the job dies.

SSH from the controller works in all of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.interfaces.gloo_fleet import GlooFleet, gloo_fleet
from tests.interfaces.test_gloo_table import ALL, PREPARE, Row, gloo, master, own_name, sh, verdict

AREAS = ("connectivity", "kernel", "firewall")
PATH, FIREWALL, TAKEN = "peer-unreachable", "firewall-blocks-job", "master-port-taken"
MASTER, NAMED, LO = "master-address-wrong", "interface-unreachable", "loopback-down"


def net(text: str) -> str:
    """Addresses of the fleet: @2 is the second host's, and %2 its second address."""
    return text.replace("@", "10.71.1.").replace("%", "192.168.50.")


def nft(rule: str, chain: str = "input") -> str:
    head = "nft add table inet t; nft add chain inet t c"
    return net(f"{head} '{{ type filter hook {chain} priority 0; }}'; nft add rule inet t c {rule}")


def nat(hook: str, rule: str) -> str:
    """``rule`` in a chain of network address translation."""
    head = "nft add table ip n; nft add chain ip n c"
    return net(f"{head} '{{ type nat hook {hook} priority 0; }}'; nft add rule ip n c {rule}")


def listening(address: str, more: str = "") -> str:
    """A program that holds MASTER_PORT; it is there when the command ends."""
    program = f"import socket, time; s = socket.socket(); s.setsockopt(1, 2, 1); {more}s.bind(('{address}', 29500))"
    start = f'python3 -c "{program}; s.listen(); time.sleep(600)" >/dev/null 2>&1 & echo $! >/run/listener'
    return net(f"{start}; until ss -Htln 'sport = :29500' | grep -q .; do sleep 0.05; done")


def later(text: str, undo: str) -> str:
    return net(f"echo '{undo}' >/run/undo.sh; {text}")


VIRTUAL = "10.99.0.1"
ROUTED = later(net(f"ip route add {VIRTUAL} via @2"), f"ip route del {VIRTUAL}")
TRANSLATED = nat("output", f"ip daddr {VIRTUAL} tcp dport 29500 dnat to @1")
TRANSLATED = later(net(f"ip route add {VIRTUAL} dev eth0; {TRANSLATED}"), f"ip route del {VIRTUAL}")
ROUTER = later(
    net(
        f"sysctl -qw net.ipv4.ip_forward=1; ip route add {VIRTUAL} via @1; nft -f - <<'END'\n"
        "table ip n {\n chain p { type nat hook prerouting priority -100; ip daddr 10.99.0.1 dnat to @1; }\n"
        " chain o { type nat hook output priority -100; ip daddr 10.99.0.1 dnat to @1; }\n"
        " chain q { type nat hook postrouting priority 100; ip daddr @1 ct status dnat masquerade; }\n}\nEND"
    ),
    f"ip route del {VIRTUAL}; sysctl -qw net.ipv4.ip_forward=0",
)
BOTH = 'echo "127.0.1.1 $(hostname)" >>/etc/hosts'
ROWS = [
    Row("a route that discards", False, {}, {2: net("ip route add blackhole @2")}, PATH, (2,), full=False),
    Row("a route that refuses", False, {}, {2: net("ip route add unreachable @2")}, PATH, (2,)),
    Row("a route that forbids", False, {}, {0: net("ip route add prohibit @3")}, PATH, (0,)),
    Row("a stale ARP entry for the master", False, {}, {1: net("ip neigh replace @1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")}, PATH),
    Row("a stale ARP entry for another", False, {}, {1: net("ip neigh replace @3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")}, PATH, (1, 2)),
    Row("a rule of policy routing", False, {}, {2: later("ip rule add to @2 lookup 77 pref 50; ip route add unreachable default table 77", "ip rule del pref 50; ip route flush table 77")}, PATH, (2,)),
    Row("a duplicate address", False, {}, {2: later("ip addr add @2/16 dev eth0", net("ip addr del @2/16 dev eth0"))}, NAMED),
    Row("a route that the job does not take", True, gloo("eth0"), {2: net("ip route add blackhole %1")}),
    Row("the other network, and a route that discards", False, gloo("eth0:1"), {2: net("ip route add blackhole %1")}, PATH, (2,)),
    Row("the other network, and a stale ARP entry", False, gloo("eth0:1"), {0: net("ip neigh replace %2 lladdr 02:00:00:00:00:77 dev eth0 nud permanent")}, PATH, (0, 1)),
    Row("the master's other address is discarded", False, master("192.168.50.1"), {2: net("ip route add blackhole %1")}, PATH, (2,)),
    Row("the master's name is its other address", False, master("rendezvous"), {0: net("echo '%1 rendezvous' >>/etc/hosts"), 1: net("echo '%1 rendezvous' >>/etc/hosts; ip route add unreachable %1"), 2: net("echo '%1 rendezvous' >>/etc/hosts")}, PATH, (1,)),
    Row("the master by an IPv6 address", True, master("fd00:71::1")),
    Row("the master by an IPv6 address that one host cannot reach", False, master("fd00:71::1"), {2: "ip -6 addr flush dev eth0 scope global"}, MASTER, (2,)),
    Row("own names by IPv6", True, {}, dict.fromkeys(ALL, own_name("fd00:71::$N"))),
    Row("own names by IPv6, and a route that discards", False, {}, {**dict.fromkeys(ALL, own_name("fd00:71::$N")), 2: own_name("fd00:71::3") + "; " + later("ip -6 route add blackhole fd00:71::2", "ip -6 route del blackhole fd00:71::2")}, PATH, (2,)),
    Row("ports are dropped", False, {}, {1: nft("tcp dport 32768-60999 ct state new drop")}, FIREWALL, (1,)),
    Row("one peer is dropped", False, {}, {1: later("iptables -A INPUT -s @3 -p tcp --dport 1024:65535 -j DROP", "iptables -F")}, PATH, (1, 2)),
    Row("one peer is refused", False, {}, {1: later("iptables -A OUTPUT -d @3 -p tcp ! --sport 22 -j REJECT", "iptables -F")}, PATH),
    Row("MASTER_PORT is dropped on the way out", False, {}, {2: nft("tcp dport 29500 drop", "output")}, FIREWALL, (2,)),
    Row("MASTER_PORT is dropped on the master", False, master("10.71.1.1"), {0: nft("tcp dport 29500 drop", "prerouting")}, FIREWALL, (0,)),
    Row("data is dropped, connections are made", False, {}, {1: nft("tcp dport 1024-65535 ct state established drop")}, FIREWALL, (1,)),
    Row("segments with PSH are dropped, connections are made", False, {}, {1: nft("tcp dport 1024-65535 tcp flags \\& psh != 0 drop")}, FIREWALL, (1,)),
    Row("full-size packets are dropped", False, {}, {1: nft("tcp dport != 22 meta length \\> 1400 drop")}, FIREWALL, (1,)),
    Row("the master's address is translated on every host", True, master(VIRTUAL), dict.fromkeys(ALL, TRANSLATED)),
    Row("the master's address is translated to nobody", False, master(VIRTUAL), dict.fromkeys(ALL, TRANSLATED.replace("71.1.1", "71.9.9")), MASTER, ALL),
    Row("the master's address is translated by a host in between", True, master(VIRTUAL), {0: ROUTED, 1: ROUTER, 2: ROUTED}),
    Row("few new connections a minute", False, {}, {1: nft("tcp flags syn tcp dport 1024-65535 limit rate over 1/minute drop")}, PATH),
    Row("a host is seen by another address of its own (source NAT)", True, {}, {2: nat("postrouting", "ip daddr @1 tcp dport != 22 snat to %3")}),
    Row("MASTER_PORT is taken everywhere", False, master("10.71.1.1"), {0: listening("0.0.0.0")}, TAKEN, (0,)),
    Row("MASTER_PORT is taken on loopback", False, master("10.71.1.1"), {0: listening("127.0.0.1")}, TAKEN, (0,)),
    Row("MASTER_PORT is taken on the master's address", False, master("10.71.1.1"), {0: listening("@1")}, TAKEN, (0,)),
    Row("MASTER_PORT is taken on another host", True, master("10.71.1.1"), {1: listening("0.0.0.0")}),
    Row("another MTU on one host", True, {}, {2: "ip link set eth0 mtu 9000"}),
    Row("strict reverse path filter", True, {}, {1: later("sysctl -qw net.ipv4.conf.eth0.rp_filter=1", "sysctl -qw net.ipv4.conf.eth0.rp_filter=0")}),
    Row("no loopback interface", True, {}, {1: later("ip link set lo down", "ip link set lo up")}, LO, (1,)),
    Row("no loopback interface on the master", False, master("10.71.1.1"), {0: later("ip link set lo down", "ip link set lo up")}, LO, (0,)),
    Row("few ports for connections", True, {}, {0: later("sysctl -qw net.ipv4.ip_local_reserved_ports=32768-60990", "sysctl -qw net.ipv4.ip_local_reserved_ports=")}),
    Row("no name known, and the interface set", True, gloo("eth0"), {1: ": >/etc/hosts"}),
    Row("own names by IPv6 loopback", False, {}, dict.fromkeys(ALL, own_name("::1")), NAMED, ALL),
    Row("own names first real, then loopback", False, {}, dict.fromkeys(ALL, own_name("10.71.1.$N") + f"; {BOTH}"), NAMED, ALL),
    Row("the own names of two hosts exchanged", False, {}, {1: own_name("10.71.1.3"), 2: own_name("10.71.1.2")}, NAMED, (1, 2)),
    Row("an interface without a carrier", False, gloo("nc0"), dict.fromkeys(ALL, later("ip link add nc0 type veth peer name nc1; ip addr add 10.201.0.$N/24 dev nc0; ip link set nc0 up", "ip link del nc0")), NAMED, ALL),
    Row("an interface with a link-local address alone", False, gloo("ll0"), dict.fromkeys(ALL, later("ip link add link eth0 name ll0 type macvlan mode bridge; ip link set ll0 up", "ip link del ll0")), NAMED, ALL),
    Row("an interface that is down", False, gloo("dn0"), dict.fromkeys(ALL, later("ip link add dn0 type veth peer name dn1; ip addr add 10.202.0.$N/24 dev dn0", "ip link del dn0")), NAMED, ALL),
    Row("names by docker0", False, {}, dict.fromkeys(ALL, own_name("172.17.0.1")), NAMED, ALL),
]  # fmt: skip
MORE = "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.eth0.disable_ipv6=0\n"
MORE += "ip -6 addr add fd00:71::$N/64 dev eth0 nodad\n"
RESTORE = """\
test -f /run/undo.sh && sh /run/undo.sh; rm -f /run/undo.sh
test -f /run/listener && kill $(cat /run/listener); rm -f /run/listener
cat /run/hosts.kept >/etc/hosts
nft flush ruleset
for kind in blackhole unreachable prohibit; do ip route flush type $kind; done
ip neigh flush nud permanent dev eth0
ip link set eth0 mtu 1500
ip -6 addr add fd00:71::$N/64 dev eth0 nodad
"""


@pytest.fixture(scope="module")
def jobs(make_fleet: Callable[..., Fleet]) -> Iterator[GlooFleet]:
    """Three hosts with a second network on eth0, and IPv6."""
    created_gloo_fleet = gloo_fleet(make_fleet, 3, name="gp", subnet="10.71.0.0/16", shm="4g")
    for number in ALL:
        sh(created_gloo_fleet.fleet, number, PREPARE + MORE)
    yield created_gloo_fleet
    created_gloo_fleet.down()


def restore(fleet: Fleet) -> None:
    for number in ALL:
        sh(fleet, number, f"{{ {RESTORE}}} 2>/dev/null; true")


@pytest.mark.hosts
@pytest.mark.timeout(300)  # ranks whose data is dropped hang, whatever the timeout of their group
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.full] if row.full else [], id=row.name) for row in ROWS]
)
def test_doctor_fails_exactly_where_the_job_dies(jobs: GlooFleet, row: Row) -> None:
    fleet = jobs.fleet
    try:
        for number, text in row.setup.items():
            sh(fleet, number, text)
        code, results = verdict(fleet, row.environ, AREAS)
        end = jobs.run(row.environ, seconds=60 if row.lives else 5)
    finally:
        restore(fleet)
    assert end.lives == row.lives, end.messages
    assert code == (0 if row.lives else 10), results
    if row.check:
        assert row.check in results
        if row.hosts:
            assert results[row.check] == {fleet.hosts[number] for number in row.hosts}


IN_NET: dict[str, dict[str, tuple[int, ...]]] = {
    "the master's address is translated on every host": {},
    "the master's address is translated by a host in between": {},
    "the master's address is translated to nobody": {MASTER: ALL},
    "segments with PSH are dropped, connections are made": {"net-unreachable": (1,)},
}


@pytest.mark.hosts
@pytest.mark.full
@pytest.mark.parametrize("row", [row for row in ROWS if row.name in IN_NET], ids=lambda row: row.name)
def test_doctor_net_judges_alike(jobs: GlooFleet, row: Row) -> None:
    fleet, root = jobs.fleet, Path(__file__).parents[2]
    argv = [sys.executable, "-m", "doctor", "net", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    try:
        for number, text in row.setup.items():
            sh(fleet, number, text)
        env = {**INSIDE, **row.environ, "PYTHONPATH": str(root)}
        done = fleet.run([*argv, "--no-speeds"], cwd=root, timeout=200, env=env)
    finally:
        restore(fleet)
    assert done.stdout, done.stderr
    found = {
        outcome["check"]: {host for finding in outcome["findings"] for host in finding["hosts"]}
        for outcome in json.loads(done.stdout)["outcomes"]
        if outcome["findings"]
    }
    assert found == {check: {fleet.hosts[at] for at in hosts} for check, hosts in IN_NET[row.name].items()}
    assert done.returncode == (10 if found else 0)
