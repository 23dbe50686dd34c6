"""Faults, and the playbooks that mend them: every playbook that software can carry out is here."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tests.faults.connectivity import AHEAD
from tests.faults.kernel import HIDE_LINK, LISTEN, PORTS, SOMAXCONN, held, limit, setting, shown_limit
from tests.faults.memory import FILL, STRICT


@dataclass(frozen=True)
class Case:
    """One fault on one host, and the playbook that mends it."""

    playbook: str
    checks: tuple[str, ...]
    """Those that find the fault."""
    fault: str
    """A ``sh -e`` script, run as root inside the host."""
    host: int = 1
    fleet: str = "cpu"
    leaves: str = ""
    """What the undo says that it cannot take back."""
    traces: tuple[str, ...] = ()
    """Files of the NPUs' state that then are other than before."""

    def __str__(self) -> str:
        return self.playbook + (f"-{self.checks[0]}" if len(self.checks) == 1 else "")


def npu(number: int, script: str) -> str:
    return f"cd /run/npu/{number}; {script}"


def enabled(service: str) -> str:
    """A script after which systemd would start the service at boot."""
    unit, wants = f"/etc/systemd/system/{service}.service", "/etc/systemd/system/multi-user.target.wants"
    return f"mkdir -p {wants}; test -s {unit} || echo '[Service]' >{unit}; ln -sf {unit} {wants}/\n"


FIREWALLD = os.environ.get("DOCTOR_FIREWALLD", "")
"""A tar file with firewalld's Debian packages unpacked, for a machine that should not have it installed."""
START_FIREWALLD = """\
grep -q messagebus /etc/passwd || echo 'messagebus:x:990:990::/nonexistent:/usr/sbin/nologin' >>/etc/passwd
grep -q messagebus /etc/group || echo 'messagebus:x:990:' >>/etc/group
ldconfig
cd /usr/share/polkit-1/actions && ln -sf org.fedoraproject.FirewallD1.server.policy.choice \\
    org.fedoraproject.FirewallD1.policy  # as the package's own script does
mkdir -p /run/dbus /etc/firewalld/zones
test -s /etc/machine-id || dbus-uuidgen >/etc/machine-id
test -S /run/dbus/system_bus_socket || dbus-daemon --system --fork
firewalld --nofork --nopid & echo $! >/run/firewalld-test.pid
until firewall-cmd --state; do sleep 0.1; done
"""


STOP_FIREWALLD = """pid=$(cat /run/firewalld-test.pid)
kill $pid 2>/dev/null && while kill -0 $pid 2>/dev/null; do sleep 0.1; done
nft flush ruleset
"""


# The service managers of a host are stand-ins: real ones would set the clock of the machine.
CLOCK = f"""{AHEAD}
cat >/usr/local/sbin/systemctl <<'END'
#!/bin/sh
state=/etc/chrony.state
case $1 in
cat) ;;
enable)
    echo enabled active >$state
    mkdir -p /etc/systemd/system/multi-user.target.wants
    ln -sf /etc/systemd/system/chronyd.service /etc/systemd/system/multi-user.target.wants/
    ;;
is-enabled) test -f $state && cut -d' ' -f1 $state || {{ echo disabled; exit 1; }} ;;
is-active) test -f $state && cut -d' ' -f2 $state || {{ echo inactive; exit 3; }} ;;
disable | stop) rm -f $state /etc/systemd/system/multi-user.target.wants/chronyd.service ;;
esac
END
cat >/usr/local/sbin/chronyc <<'END'
#!/bin/sh
rm -f /usr/local/sbin/python3
END
chmod 755 /usr/local/sbin/systemctl /usr/local/sbin/chronyc
echo '[Service]' >/etc/systemd/system/chronyd.service
"""
RULES = f"""{enabled("nftables")}\
cat >/etc/nftables.conf <<'END'
#!/usr/sbin/nft -f
flush ruleset

table inet site {{
    chain incoming {{
        type filter hook input priority 0
        tcp dport 22 accept
        tcp dport 29400-29600 drop
        tcp dport 40000-50000 drop
    }}
}}
END
nft -f /etc/nftables.conf
"""
SAVED = f"""{enabled("netfilter-persistent")}\
mkdir -p /etc/iptables
cat >/etc/iptables/rules.v4 <<'END'
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 40000:50000 -j REJECT --reject-with icmp-port-unreachable
-A INPUT -p tcp -m tcp --dport 2049 -j DROP
COMMIT
END
iptables{{kind}}-restore </etc/iptables/rules.v4
"""
UFW = enabled("ufw") + "ufw allow 22/tcp >/dev/null; ufw deny 111/tcp >/dev/null; ufw --force enable >/dev/null"
SMALL_SHM = """\
mount -o remount,size=64m /dev/shm
echo 'tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=64m 0 0' >>/etc/fstab
"""
CONNTRACK = """\
most=$(cat /proc/sys/net/netfilter/nf_conntrack_max)
echo $((most * 95 / 100)) >/run/count; mount --bind /run/count /proc/sys/net/netfilter/nf_conntrack_count
echo $most >/run/buckets; mount --bind /run/buckets /proc/sys/net/netfilter/nf_conntrack_buckets
echo $most >/run/most; mount --bind /run/most /proc/sys/net/netfilter/nf_conntrack_max
"""
BUSY = """\
setsid sh -c 'sleep 300 </dev/davinci6 & echo "$! sleep 3400" >/run/npu/6/processes; wait; rm /run/npu/6/processes' \\
    >/dev/null 2>&1 &
until test -s /run/npu/6/processes; do sleep 0.01; done
"""
NOT_RESTARTABLE = "cannot be started again from here"

CASES = [
    Case("raise-listen-queues", ("listen-queue-short",), setting(SOMAXCONN, "128")[0]),
    Case("allow-overcommit", ("overcommit-forbidden",), STRICT),
    Case("raise-listen-queues", ("syn-queue-short",), setting("net.ipv4.tcp_max_syn_backlog", "128")[0], host=2),
    Case(
        "widen-local-ports",
        ("local-ports-few",),
        f"{setting('net.ipv4.ip_local_port_range', '40000 40063')[0]}\n"
        "echo 'net.ipv4.ip_local_port_range = 40000 40063' >/etc/sysctl.d/80-range.conf",
        host=3,
        fleet="a2",  # on hosts of the other fleet a firewall is opened to the ports of the range that was there
    ),
    Case(
        "reserve-job-ports",
        ("master-port-unreserved",),
        f"{setting(PORTS, '8080')[0]}; {setting('net.ipv4.ip_local_port_range', '20000 60999')[0]}\n"
        "echo 'net.ipv4.ip_local_port_range = 20000 60999' >/etc/sysctl.d/80-range.conf",
        host=3,
    ),
    Case(
        "keep-kernel-settings",
        ("sysctl-lost-at-reboot",),
        f"{HIDE_LINK}{setting('net.ipv4.tcp_max_syn_backlog', '8192')[0]}",
        host=0,
    ),
    Case("raise-conntrack-limit", ("conntrack-table-full",), CONNTRACK, host=0),
    Case("enlarge-neighbour-table", ("neighbour-table-small",), shown_limit("1")[0], host=2),
    Case(
        "raise-open-files-limit",
        ("open-files-limit-low",),
        "sed -i 's/^root soft nofile .*/root soft nofile 1024/' /etc/security/limits.conf",
        host=1,
    ),
    Case("raise-process-limit", ("process-limit-low",), limit("nproc", 1024)[0], host=1),
    Case("enlarge-shm", ("shm-docker-default",), SMALL_SHM, host=1),
    Case("enlarge-shm", ("shm-too-small",), SMALL_SHM.replace("64m", "512m"), host=1, fleet="a2"),
    Case(
        "remove-stale-segments",
        ("shm-stale-segments",),
        FILL.format(count=4 << 20, path="'/dev/shm/sm_segment.$(dead) 1'")
        + "\ntouch -d '2 hours ago' '/dev/shm/sm_segment.$(dead) 1'",
        host=3,
        leaves="cannot be brought back",
    ),
    Case("set-clock", ("clocks-differ",), CLOCK, host=2),
    Case("write-host-names", ("host-name-unresolved",), "sed -i '/ sb0003$/d' /etc/hosts", host=1),
    Case("write-host-names", ("master-address-unresolved",), "sed -i '/ sb0004$/d' /etc/hosts", host=0),
    Case(
        "correct-host-name", ("host-name-ambiguous",), "sed -i 's/^.* sb0001$/10.99.99.99 sb0001/' /etc/hosts", host=2
    ),
    Case(
        "name-own-address",
        ("host-name-is-loopback",),
        "sed -i '/ sb0003$/d; s/^127.0.0.1 .*/& sb0003/' /etc/hosts",
        host=2,
    ),
    Case("take-loopback-up", ("loopback-down",), "ip link set lo down", host=3),
    Case("open-job-ports", ("firewall-blocks-job",), UFW, host=0),
    Case("open-job-ports", ("firewall-blocks-job",), SAVED.replace("{kind}", "-nft"), host=1),
    Case("open-job-ports", ("firewall-blocks-job",), SAVED.replace("{kind}", "-legacy"), host=2),
    Case("open-job-ports", ("firewall-blocks-job",), RULES, host=3),
    Case("end-port-owner", ("master-port-taken",), held(LISTEN.format(port=31000))[0], host=3, leaves=NOT_RESTARTABLE),
    Case("reserve-job-ports", ("hccl-ports-unreserved",), setting(PORTS, "8080")[0], fleet="a2"),
    Case("reserve-job-ports", ("hccl-ports-half-reserved",), setting(PORTS, "60000-60015")[0], host=2, fleet="a2"),
    Case("raise-locked-memory-limit", ("locked-memory-limit-low",), limit("memlock", 65536)[0], host=2, fleet="a2"),
    Case("end-npu-processes", ("npu-busy",), BUSY, host=2, fleet="a2", leaves=NOT_RESTARTABLE, traces=("6/processes",)),
    Case("correct-device-netmask", ("device-netmask-differs",), npu(3, "echo 255.254.0.0 >netmask"), fleet="a2"),
    Case(
        "set-detect-address",
        ("detect-address-unset",),
        npu(5, "rm netdetect"),
        fleet="a2",
        leaves="until the next start",
        traces=("5/netdetect",),
    ),
    Case("correct-detect-address", ("detect-address-is-self",), npu(4, "cat ip >netdetect"), host=2, fleet="a2"),
    Case(
        "correct-device-gateway",
        ("gateway-outside-segment",),
        npu(6, "echo 29.2.0.1 >gateway"),
        host=1,
        fleet="a2",
        leaves="hccn_tool refuses the gateway 29.2.0.1",
        traces=("6/gateway",),
    ),
    Case(
        "write-hccn-conf",
        ("hccn-conf-differs",),
        "sed -i 's/^address_3=.*/address_3=29.1.102.99/' /etc/hccn.conf",
        host=2,
        fleet="a2",
    ),
    Case("write-hccn-conf", ("hccn-conf-differs",), "rm /etc/hccn.conf", host=0, fleet="a2"),
    Case("restore-hccn-conf", ("device-ip-conflict",), npu(5, "echo 29.1.101.203 >ip"), host=3, fleet="a2"),
    Case("align-tls-switch", ("tls-switch-differs",), npu(3, "echo 1 >tls"), host=3, fleet="a2"),
    Case("switch-tls-off", ("tls-certificate-expired",), npu(2, "echo 1 >tls; echo 2 >tls_expiry"), host=3, fleet="a2"),
    Case("take-link-up", ("device-link-down",), npu(1, "echo down >admin"), host=3, fleet="a2"),
]
