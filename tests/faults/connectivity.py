"""Faults of the way to a host, of its clock and of its names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults import Prepared, Row

DROP_SSH = """\
nft -f - <<'END'
table inet doctor_fault {
 chain in {
  type filter hook input priority 0
  tcp dport 22 drop
 }
}
END
"""

HIDE_PYTHON = """\
for folder in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin /usr/libexec; do
    for name in python3 platform-python; do
        if [ -e $folder/$name ]; then mv $folder/$name $folder/$name.hidden; fi
    done
done
"""
SHOW_PYTHON = """\
for folder in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin /usr/libexec; do
    for name in python3 platform-python; do
        if [ -L $folder/$name.hidden ] || [ -e $folder/$name.hidden ]; then
            mv $folder/$name.hidden $folder/$name
        fi
    done
done
"""

AHEAD = """\
cat >/usr/local/sbin/python3 <<'END'
#!/bin/sh
# The interpreter of a host whose clock is 90 s ahead.
exec /usr/bin/python3 -I -S -c "import time; real = time.time; time.time = lambda: real() + 90; $4"
END
chmod 755 /usr/local/sbin/python3
"""

KEEP_HOSTS = "cp /etc/hosts /run/hosts.kept\n"
RESTORE_HOSTS = "cat /run/hosts.kept >/etc/hosts"


def launched_by_mpirun(fleet: Any, folder: Path, healthy: bool) -> Prepared:
    """A job that mpirun starts from one of the hosts: root of each knows all host keys, or of the first not that of the
    second.
    """
    lines = fleet.known_hosts.read_text().splitlines(keepends=True)
    for host in fleet.hosts:
        lacks = fleet.hosts[1] if host == fleet.hosts[0] and not healthy else "\n"
        fleet.enter(host, "mkdir -p -m 700 /root/.ssh")
        fleet.write(host, "/root/.ssh/known_hosts", "".join(line for line in lines if not line.startswith(lacks)))
        fleet.write(host, "/root/.ssh/id_ed25519", (fleet.directory / "id_ed25519").read_text(), "600")
    return Prepared(["--", "mpirun", "-np", "2", "-H", ",".join(fleet.hosts), "hostname"])


OWN_ADDRESS = "a=$(ip -4 -o address show dev eth0 | awk '{ split($4, part, \"/\"); print part[1] }')"

ROWS = [
    Row(
        "launcher-login-fails",
        "",
        fleet="cpu",
        prepare=launched_by_mpirun,
        blamed=(0,),
        values={"program": "mpirun", "problem": "its host key is not in known_hosts"},
    ),
    Row(
        "host-unreachable",
        DROP_SSH,
        "nft delete table inet doctor_fault",
        fleet="cpu",
        values={"trouble": "dropped"},
        options=("--connect-timeout", "3"),
    ),
    Row(
        "python3-missing",
        HIDE_PYTHON,
        SHOW_PYTHON,
        fleet="cpu",
        values={"text": "there is no python3 on the host"},
    ),
    Row(
        "slurmd-not-running",
        "mkdir -p /etc/slurm /var/spool/slurmd && echo SlurmdPort=6818 >/etc/slurm/slurm.conf",
        "rm -r /etc/slurm /var/spool/slurmd",
        clause="In a job of Slurm, slurmd runs on every node",
        fleet="cpu",
        environ={"SLURM_JOB_ID": "7"},
        values={"port": 6818},
        healthy_first=False,  # the healthy hosts are no nodes of Slurm: tests/preflight/test_jobs.py has real ones
    ),
    Row("clocks-differ", AHEAD, "rm /usr/local/sbin/python3", fleet="cpu", values={"way": "ahead of"}),
    Row(
        "host-name-repeated",
        "hostname sb0001",
        'hostname "$(cat /etc/hostname)"',
        blamed=(0, 1),
        values={"name": "sb0001", "count": 2},
    ),
    Row(
        "host-name-is-loopback",
        KEEP_HOSTS + 'sed -i "/ $(hostname)$/d" /etc/hosts; echo "127.0.1.1 $(hostname)" >>/etc/hosts',
        RESTORE_HOSTS,
        fleet="cpu",
        values={"name": "sb0002", "address": "127.0.1.1"},
        also=("interface-unreachable",),
    ),
    Row(
        "loopback-down",
        "ip link set lo down",
        "ip link set lo up",
        clause="The loopback interface lo is up",
        fleet="cpu",
        options=("--ranks-per-host", "2"),
        values={"interface": "lo"},
    ),
    Row(
        "loopback-down",
        "ip address flush dev lo",
        "ip address add 127.0.0.1/8 dev lo\nip -6 address add ::1/128 dev lo",
        clause="has the address they use",
        fleet="cpu",
        environ={"MASTER_ADDR": "localhost"},
        values={"address": "localhost"},
    ),
    Row(
        "host-name-unresolved",
        KEEP_HOSTS + "sed -i '/ sb0003$/d' /etc/hosts",
        RESTORE_HOSTS,
        fleet="cpu",
        values={"first": "sb0003", "count": 1},
    ),
    Row(
        "host-name-unresolved",
        KEEP_HOSTS + 'sed -i "/ $(hostname)$/d" /etc/hosts',
        RESTORE_HOSTS,
        fleet="cpu",
        values={"taken": "127.0.0.1", "count": 1},
        also=("interface-unreachable",),
    ),
    Row(
        "host-name-ambiguous",
        KEEP_HOSTS + "sed -i 's/^.* sb0003$/10.99.99.99 sb0003/' /etc/hosts",
        RESTORE_HOSTS,
        fleet="cpu",
        values={"name": "sb0003", "addresses": ["10.99.99.99"]},
    ),
    Row(
        "master-address-unresolved",
        KEEP_HOSTS + "sed -i '/ sb0004$/d' /etc/hosts",
        RESTORE_HOSTS,
        fleet="cpu",
        values={"name": "sb0004"},
        also=("host-name-unresolved",),
        environ={"MASTER_ADDR": "sb0004"},
    ),
    Row(
        "host-name-is-localhost",
        "hostname localhost",
        'hostname "$(cat /etc/hostname)"',
        clause="Every host has a name of its own, not localhost",
        fleet="cpu",
        values={"observed": "localhost"},
        also=("interface-unreachable",),
        apart=("host-name-repeated", "host-name-is-loopback", "host-name-unresolved", "host-name-ambiguous"),
    ),
    Row(
        "interface-setting-wrong",
        "# no host has such an interface",
        clause="Every communication library finds, on each host, the network interface that its variable names",
        fleet="cpu",
        blamed=(0, 1, 2, 3),
        values={"variable": "GLOO_SOCKET_IFNAME", "value": "eno7", "expected": "eth0"},
        environ={"GLOO_SOCKET_IFNAME": "eno7"},
        healthy_first=False,
    ),
    Row(
        "interface-setting-wrong",
        "# no host has such an address",
        blamed=(0, 1, 2, 3),
        values={"variable": "HCCL_IF_IP", "value": "192.168.77.7"},
        environ={"HCCL_IF_IP": "192.168.77.7"},
        healthy_first=False,
    ),
    Row(
        "interface-unreachable",
        "# each host's loopback interface",
        fleet="cpu",
        blamed=(0, 1, 2, 3),
        values={"library": "Gloo", "address": "127.0.0.1"},
        environ={"GLOO_SOCKET_IFNAME": "lo"},
        healthy_first=False,
    ),
    Row(
        "interface-unreachable",
        "ip link add aaa0 type bridge && ip addr add 10.250.1.1/24 dev aaa0 && ip link set aaa0 up",
        "ip link del aaa0",
        values={"library": "HCCL", "interface": "aaa0"},
    ),
    Row(
        "interface-unreachable",
        f"{OWN_ADDRESS}; ip addr add $a/32 dev eth0; ip addr del $a/16 dev eth0; ip route add 10.77.0.1 dev eth0",
        f"{OWN_ADDRESS}; ip addr add $a/16 dev eth0; ip addr del $a/32 dev eth0; ip route del 10.77.0.1 dev eth0",
        fleet="cpu",
        values={"case": "Route"},
        environ={"MASTER_ADDR": "sb0001"},
        also=("master-address-wrong", "peer-unreachable"),
        apart=("*",),
    ),
    Row(
        "interface-doubtful",
        "ip link add cni0 type bridge && ip addr add 10.77.0.200/32 dev cni0 && ip link set cni0 up",
        "ip link del cni0",
        values={"observed": "cni0"},
        apart=("interface-unreachable",),
    ),
    Row(
        "interfaces-in-one-subnet",
        "ip link add two0 type bridge && ip addr add 10.77.200.2/16 dev two0 && ip link set two0 up",
        "ip link del two0",
        fleet="cpu",
        values={"interfaces": ["eth0", "two0"]},
    ),
    Row(
        "interface-mtu-differs",
        "ip link set eth0 mtu 1400",
        "ip link set eth0 mtu 1500",
        fleet="cpu",
        values={"observed": 1400, "interface": "eth0"},
    ),
    Row(
        "master-address-wrong",
        "# the master is every host itself",
        clause="MASTER_ADDR leads every host to one and the same host of the fleet",
        fleet="cpu",
        blamed=(0, 1, 2, 3),
        values={"observed": "127.0.0.1"},
        environ={"MASTER_ADDR": "127.0.0.1"},
        healthy_first=False,
    ),
    Row(
        "master-address-wrong",
        KEEP_HOSTS + "sed -i 's/^.* sb0003$/127.0.0.1 sb0003/' /etc/hosts",
        RESTORE_HOSTS,
        fleet="cpu",
        values={"observed": "sb0003"},
        environ={"MASTER_ADDR": "sb0003"},
    ),
    # SSH from the controller goes on; the way to the other hosts leads nowhere.
    Row(
        "peer-unreachable",
        "for peer in $(awk '/^10\\./ {print $1}' /etc/hosts); do\n"
        '    ip addr show | grep -q "inet $peer/" || ip route add unreachable "$peer"\n'
        "done",
        "ip route flush type unreachable",
        clause="Every host reaches the others over TCP, at the addresses that the job takes",
        fleet="cpu",
        values={"lost": 3, "tried": 3},
        says="no TCP connections between it and 3 of 3 hosts",
        apart=("*",),
    ),
    # A rule refuses one host, and another table than the main one a second.
    Row(
        "peer-unreachable",
        "set -- $(awk '/^10\\./ {print $1}' /etc/hosts); ip rule add to $3 pref 77 prohibit\n"
        "ip route add blackhole $4 table 100; ip rule add to $4 pref 78 table 100",
        "ip rule del pref 77; ip rule del pref 78; ip route flush table 100",
        fleet="cpu",
        values={"lost": 2, "tried": 3},
        says="no TCP connections between it and 2 of 3 hosts",
        apart=("*",),
    ),
    # The hardware address of another host, as a copied virtual machine has it: SSH reaches the other one alone.
    Row(
        "peer-unreachable",
        "ip link set eth0 address 02:73:62:00:00:03",
        "ip link set eth0 address 02:73:62:00:00:02",
        fleet="cpu",
        blamed=(1, 2),
        values={"holder": "sb0003", "other": "sb0002", "witnesses": ["sb0001", "sb0004"]},
        options=("--connect-timeout", "6"),
        also=("host-unreachable",),
        apart=("*",),
    ),
    # What it sends to all is lost, as in a VXLAN without the other hosts: it reaches those that have called it before.
    Row(
        "peer-unreachable",
        "nft 'add table netdev t; add chain netdev t c { type filter hook egress device eth0 priority 0; }; "
        "add rule netdev t c ether daddr ff:ff:ff:ff:ff:ff ether type arp drop'",
        "nft delete table netdev t",
        fleet="cpu",
        values={"lost": 3, "tried": 3},
        says="no answer comes when it asks all (ARP) for the hardware addresses of 3 of 3 hosts",
        apart=("*",),
    ),
    Row(
        "duplicate-address",
        # As an interface that answers nobody: the other host stays reachable.
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1; ip link add dup0 type bridge; ip link set dup0 up; "
        "ip address add $(getent ahostsv4 sb0003 | awk '{ print $1; exit }')/32 dev dup0",
        "ip link delete dup0; sysctl -qw net.ipv4.conf.all.arp_ignore=0",
        fleet="cpu",
        blamed=(1, 2),
        values={"holder": "sb0002", "interface": "dup0"},
        apart=("*",),
    ),
    Row(
        "duplicate-address",
        # Its own packets to the other host never leave it, and all others still reach that one.
        "ip address add $(getent ahostsv4 sb0003 | awk '{ print $1; exit }')/32 dev lo",
        "ip address del $(getent ahostsv4 sb0003 | awk '{ print $1; exit }')/32 dev lo",
        fleet="cpu",
        blamed=(1, 2),
        values={"holder": "sb0002", "interface": "lo"},
        says="comes back to itself",
        also=("peer-unreachable",),
        apart=("*",),
    ),
]
