"""What firewall-blocks-job advises, done on real hosts: the firewall stays on, and the job gets through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet

POLICY = """\
nft -f - <<'END'
table inet site {
    chain incoming {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        tcp dport 22 accept
    }
    chain outgoing {
        type filter hook output priority 0
        ct state established,related accept
        tcp dport 29500 reject
    }
}
END
"""
STATELESS = """\
nft -f - <<'END'
table inet site {
    chain incoming {
        type filter hook input priority 0; policy drop;
        ct state new accept
        tcp dport 22 accept
    }
}
END
"""
TABLES = "{0} -A INPUT -p tcp --dport 22 -j ACCEPT; {0} -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT; "
TABLES += "{0} -P INPUT DROP"
CLOSED = {
    "nftables": POLICY,
    "nftables without later packets": STATELESS,
    "nftables without ARP": "nft 'add table arp t; add chain arp t c { type filter hook input priority 0; }'; "
    "nft add rule arp t c arp saddr ip PEER drop",
    "nftables by arptables": "arptables-nft -A OUTPUT -d PEER --opcode Reply -j DROP",
    "iptables": TABLES.format("iptables-nft"),
    "iptables-legacy": TABLES.format("iptables-legacy"),
    "ufw": "ufw allow 22/tcp && ufw --force enable",
    "ufw with a rule of its own": "ufw default allow incoming && ufw deny 29500/tcp && ufw --force enable",
    "ufw that lets nothing out": "ufw allow 22/tcp && ufw default deny outgoing && ufw --force enable",
}


def outcome(fleet: Fleet) -> dict[str, Any]:
    arguments = [
        "check",
        ",".join(fleet.hosts),
        "-F",
        str(fleet.ssh_config),
        "--select",
        "firewall-blocks-job",
        "--json",
    ]
    done = fleet.run([sys.executable, "-m", "doctor", *arguments], cwd=Path(__file__).parents[2])
    assert done.stdout, done.stderr
    (observed_outcome,) = [
        entry for entry in json.loads(done.stdout)["outcomes"] if entry["check"] == "firewall-blocks-job"
    ]
    return observed_outcome


@pytest.mark.sample
@pytest.mark.parametrize("kind", CLOSED)
def test_the_advice_opens_the_ports(fleet_cpu: Fleet, kind: str) -> None:
    host = fleet_cpu.hosts[1]
    with fleet_cpu.broken(host, CLOSED[kind].replace("PEER", fleet_cpu.addresses[fleet_cpu.hosts[0]])):
        before = outcome(fleet_cpu)
        assert before["status"] == "failed", before
        assert {finding["values"]["manager"] for finding in before["findings"]} == {kind.split(maxsplit=1)[0]}
        for finding in before["findings"]:
            assert finding["hosts"] == [host]
            fleet_cpu.enter(host, finding["values"]["fix"])
        after = outcome(fleet_cpu)
        assert (after["status"], after["unknown"]) == ("passed", [])


def test_an_active_firewall_that_lets_the_fleet_in_passes(fleet_cpu: Fleet) -> None:
    host = fleet_cpu.hosts[1]
    others = " ".join(address for name, address in fleet_cpu.addresses.items() if name != host)
    allow = f"for a in {others}; do ufw allow proto tcp from $a; done"
    opened = f"{allow}; ufw allow 22/tcp; ufw --force enable; ufw status | grep -q '^Status: active'"
    with fleet_cpu.broken(host, opened):
        assert outcome(fleet_cpu)["status"] == "passed"


def test_without_root_it_is_not_known(fleet_cpu: Fleet) -> None:
    host = fleet_cpu.hosts[1]
    source = (
        "from doctor.collect.collector_request import function_source\n"
        "from doctor.facts.firewall.host_rules import list_rules\n"
        "from doctor.remote.runtime import netlink\n"
        "import inspect\n"
        "print(inspect.getsource(netlink), function_source(list_rules), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    script = f"{done.stdout}\nimport json\nprint(json.dumps(list_rules({{}})))\n"
    completed = fleet_cpu.enter(
        host, f"cat >/tmp/ask.py <<'END'\n{script}END\nsetpriv --reuid 65534 --clear-groups python3 /tmp/ask.py"
    )
    assert json.loads(completed.stdout)["refused"] is True
