"""What `doctor check --after-reboot` computes is what a restart of the host shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.playbooks.cases import FIREWALLD, START_FIREWALLD, STOP_FIREWALLD, enabled

pytestmark = pytest.mark.hosts
ROOT = Path(__file__).parents[1]
TABLE = "table inet site { chain in { type filter hook input priority 0; iif eth0 tcp dport 29000-50000 drop; }; }"
SAVED = "*filter\\n:INPUT ACCEPT [0:0]\\n:OUTPUT ACCEPT [0:0]\\n-A INPUT -p tcp --dport 40000:50000 -j DROP\\nCOMMIT\\n"
UNIT = "printf '[Service]\\nExecStart=/usr/sbin/nft -f {file}\\n' >/etc/systemd/system/nftables.service\n"
LOAD = "nft flush ruleset; {command}"
RULESET = "printf 'flush ruleset\\n{text}\\n' >{file}\n"
RC_LOCAL = f"""printf '#!/bin/sh -e\\nnft -f /etc/site.nft\\nexit 0\\n' >/etc/rc.local
chmod 755 /etc/rc.local; echo '{TABLE}' >/etc/site.nft
"""
MAIN = "/etc/sysconfig/nftables.conf"

RHEL = f"""mkdir -p /etc/sysconfig /etc/nftables
{UNIT.format(file=MAIN)}echo '{TABLE}' >/etc/nftables/main.nft
echo 'include "/etc/nftables/main.nft"' >{MAIN}
"""

LAYOUTS = {
    "rhel": (
        RHEL + enabled("nftables") + f"nft -f {MAIN}",
        f"nft -f {MAIN}",
        "blocked",
    ),
    "debian": (
        RULESET.format(text=TABLE, file="/etc/nftables.conf") + enabled("nftables"),
        "nft -f /etc/nftables.conf",
        "blocked",
    ),
    "debian, not enabled": (
        RULESET.format(text=TABLE, file="/etc/nftables.conf") + "nft -f /etc/nftables.conf",
        "",
        "unknown",
    ),
    "debian, masked": (
        RULESET.format(text=TABLE, file="/etc/nftables.conf")
        + enabled("nftables")
        + "ln -sf /dev/null /etc/systemd/system/nftables.service",
        "",
        "open",
    ),
    "another file": (
        RULESET.format(text=TABLE, file="/etc/other.nft") + UNIT.format(file="/etc/other.nft") + enabled("nftables"),
        "nft -f /etc/other.nft",
        "blocked",
    ),
    "rc.local": (
        RULESET.format(text="", file="/etc/nftables.conf") + enabled("nftables") + RC_LOCAL + "nft -f /etc/site.nft",
        "nft -f /etc/nftables.conf; sh /etc/rc.local",
        "blocked",
    ),
    "rc.local, not executable": (RC_LOCAL + "chmod 644 /etc/rc.local", "", "open"),
    "rc.local with a condition": (
        RC_LOCAL + "printf '#!/bin/sh\\nif true; then nft -f /etc/site.nft; fi\\n' >/etc/rc.local",
        "sh /etc/rc.local",
        "unknown",
    ),
    "by hand": (f"nft '{TABLE}'", "", "unknown"),
    "netfilter-persistent": (
        f"mkdir -p /etc/iptables; printf '{SAVED}' >/etc/iptables/rules.v4\n" + enabled("netfilter-persistent"),
        "iptables-restore </etc/iptables/rules.v4",
        "blocked",
    ),
    "iptables-services": (
        f"mkdir -p /etc/sysconfig; printf '{SAVED}' >/etc/sysconfig/iptables\n" + enabled("iptables"),
        "iptables-restore </etc/sysconfig/iptables",
        "blocked",
    ),
    "ufw": (
        enabled("ufw") + "ufw allow 22/tcp >/dev/null; ufw --force enable >/dev/null",
        "/lib/ufw/ufw-init start >/dev/null",
        "blocked",
    ),
    "ufw, its ports open": (
        enabled("ufw") + "ufw allow 1:65535/tcp >/dev/null; ufw --force enable >/dev/null",
        "/lib/ufw/ufw-init start >/dev/null",
        "open",
    ),
    "firewalld that does not start": (
        "printf '#!/usr/bin/python3\\n' >/usr/sbin/firewalld\n" + enabled("firewalld"),
        "",
        "unknown",
    ),
    "a file that does not load": (
        RULESET.format(text="table inet {", file="/etc/nftables.conf") + enabled("nftables"),
        "nft -f /etc/nftables.conf || :",
        "unknown",
    ),
}
"""How a host loads its rules; what its boot runs; and what is to come of it."""


def check(fleet: Fleet, *arguments: str) -> tuple[int, dict[str, Any]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    command = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    done = fleet.run([*command, "--no-history", *arguments], env=environ, text=False, cwd=ROOT, timeout=100)
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def verdicts(fleet: Fleet, *arguments: str) -> dict[str, str]:
    """What one run says of the rules of each host."""
    _, report = check(fleet, "--select", "firewall-blocks-job", *arguments)
    outcome = next(entry for entry in report["outcomes"] if entry["check"] == "firewall-blocks-job")
    unknown = {host: "unknown" for entry in outcome["unknown"] for host in entry["hosts"]}
    blocked = {host: "blocked" for finding in outcome["findings"] for host in finding["hosts"]}
    return {**dict.fromkeys(fleet.hosts, "open"), **unknown, **blocked}


@pytest.mark.parametrize("layouts", [tuple(LAYOUTS)[number::4] for number in range(4)], ids="/".join)
def test_rules_after_a_restart_are_those_that_were_computed(fleet_cpu: Fleet, layouts: tuple[str, ...]) -> None:
    """Each host has another layout: one run computes, and one shows, what becomes of all of them."""
    by_host = {host: LAYOUTS[layout] for host, layout in zip(fleet_cpu.hosts, layouts, strict=False)}
    rules = "nft -s list ruleset"
    with ExitStack() as stack:
        for host, (setup, _, _) in by_host.items():
            stack.enter_context(fleet_cpu.broken(host, f"set -e\n{setup}"))
        before = {host: fleet_cpu.enter(host, rules).stdout for host in by_host}
        computed = verdicts(fleet_cpu, "--after-reboot")
        for host, (_, boot, expected) in by_host.items():
            assert fleet_cpu.enter(host, rules).stdout == before[host], "the host's own rules stay as they are"
            assert computed[host] == expected
            fleet_cpu.enter(host, f"nft flush ruleset\n{boot}")
        shown = verdicts(fleet_cpu)
    assert {host: shown[host] for host, (_, _, expected) in by_host.items() if expected != "unknown"} == {
        host: expected for host, (_, _, expected) in by_host.items() if expected != "unknown"
    }


ZONE = 'printf \'<zone><port port="1-65535" protocol="tcp"/></zone>\' >/etc/firewalld/zones/public.xml\n'
DIRECT = "ipv4 filter INPUT 0 -p tcp --dport 29000:60000 -j DROP"
GIVE_ZONE = "firewall-cmd --zone=trusted --change-interface=eth0"
"""What ifup-post runs, and what NetworkManager does over D-Bus (emulated), for an interface with a zone."""
FIREWALLD_CASES = {
    "as installed": ("", "", "blocked"),
    "ports of the zone's file": (ZONE, "", "open"),
    "ports for now alone": ("", "firewall-cmd --add-port=1-65535/tcp", "blocked"),
    "another zone for now alone": ("", GIVE_ZONE, "blocked"),
    "another zone": ("", "firewall-cmd --permanent --zone=trusted --change-interface=eth0", "open"),
    "another zone by its ifcfg file": (
        "mkdir -p /etc/sysconfig/network-scripts; echo 'ZONE=trusted' >/etc/sysconfig/network-scripts/ifcfg-eth0",
        GIVE_ZONE,
        "open",
    ),
    "another zone by its profile": (
        (
            "mkdir -p /run/NetworkManager; printf '#!/bin/sh\\ncase $* in *UUID*) echo eth0:1;; *) echo trusted; esac'"
            " >/usr/local/sbin/nmcli; chmod 755 /usr/local/sbin/nmcli"
        ),
        GIVE_ZONE,
        "open",
    ),
    "profiles that cannot be read": ("mkdir -p /run/NetworkManager", "", "unknown"),
    "a source of the trusted zone": (
        "",
        "firewall-cmd --permanent --zone=trusted --add-source=10.0.0.0/8",
        "open",
    ),
    "a rule that is not reloaded": (
        ZONE,
        "firewall-cmd --permanent --add-rich-rule='rule priority=-1 port port=1024-65535 protocol=tcp drop'",
        "blocked",
    ),
    "a direct rule": (ZONE, f"firewall-cmd --permanent --direct --add-rule {DIRECT}", "blocked"),
    "the default zone": ("", "firewall-cmd --set-default-zone=trusted", "open"),
    "ended, and started at boot": ("", STOP_FIREWALLD, "blocked"),
}
"""What stands in firewalld's files before it is started, what its administrator does then, and the next start."""


@pytest.mark.sample  # each firewall-cmd starts an interpreter: some seconds of CPU for a case
@pytest.mark.timeout(300)
@pytest.mark.skipif(not FIREWALLD and not shutil.which("firewalld"), reason="firewalld is not installed")
@pytest.mark.parametrize("case", FIREWALLD_CASES)
def test_zones_after_a_restart_are_those_of_firewallds_files(fleet_cpu: Fleet, case: str) -> None:
    host, (files, command, expected) = fleet_cpu.hosts[1], FIREWALLD_CASES[case]
    with fleet_cpu.broken(host, "true"):
        if FIREWALLD:
            fleet_cpu.enter(
                host, "tar -C / -x --keep-directory-symlink", input=Path(FIREWALLD).read_bytes(), text=False
            )
        fleet_cpu.enter(host, f"mkdir -p /etc/firewalld/zones\n{files}\n{enabled('firewalld')}")
        for step in (START_FIREWALLD, command):
            with TemporaryFile("w") as stream:
                fleet_cpu.enter(host, step, stdout=stream, stderr=stream)
        rules = "nft -s list ruleset; ls /run"
        before = fleet_cpu.enter(host, rules).stdout
        computed = verdicts(fleet_cpu, "--after-reboot")[host]
        assert fleet_cpu.enter(host, rules).stdout == before, "the host's own rules stay as they are"
        with TemporaryFile("w") as stream:
            start = STOP_FIREWALLD + START_FIREWALLD + (command if command == GIVE_ZONE and expected == "open" else "")
            fleet_cpu.enter(host, start, stdout=stream, stderr=stream)
        assert computed == expected
        assert expected == "unknown" or verdicts(fleet_cpu)[host] == computed


def test_the_report_says_that_it_is_as_after_a_reboot(fleet_cpu: Fleet, tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    code, report = check(fleet_cpu, "--after-reboot", "--select", "listen-queue-short,disk-full", "--save", str(saved))
    assert (code, report["after_reboot"]) == (0, True)
    passed, skipped = (
        next(outcome for outcome in report["outcomes"] if outcome["check"] == name)
        for name in ("listen-queue-short", "disk-full")
    )
    assert (passed["status"], skipped["status"]) == ("passed", "skipped")
    assert report["coverage"]["applied"] < report["coverage"]["checks"], (
        "what is not looked at is counted, and never passed"
    )
    again = subprocess.run(
        [sys.executable, "-m", "doctor", "report", str(saved), "--color", "never"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert "HEALTHY: as after a reboot; " in again.stdout


def test_a_setting_made_by_hand_is_red_and_one_in_a_file_is_green(fleet_cpu: Fleet) -> None:
    host = fleet_cpu.hosts[1]
    with fleet_cpu.broken(host, "mkdir -p /etc/sysctl.d; echo net.core.somaxconn=64 >/etc/sysctl.d/zz.conf"):
        _, now = check(fleet_cpu, "--select", "listen-queue-short")
        _, after = check(fleet_cpu, "--select", "listen-queue-short", "--after-reboot")
    findings = [
        next(outcome["findings"] for outcome in report["outcomes"] if outcome["check"] == "listen-queue-short")
        for report in (now, after)
    ]
    assert findings[0] == []
    assert [finding["hosts"] for finding in findings[1]] == [[host]]


NETWORKD = "mkdir -p /run/systemd/netif /etc/systemd/network; echo >/run/systemd/netif/state\n"
KEYFILES = "mkdir -p /run/NetworkManager /etc/NetworkManager/system-connections\n"
LINKS = {
    "networkd": NETWORKD + "printf '[Match]\\nName=eth*\\n[Link]\\nMTUBytes=9000\\n' >/etc/systemd/network/10.network",
    "link": "mkdir -p /etc/systemd/network; printf '[Match]\\nOriginalName=eth0\\n[Link]\\nMTUBytes=9000\\n'"
    " >/etc/systemd/network/10.link",
    "keyfile": KEYFILES
    + "printf '[connection]\\ninterface-name=eth0\\n[wifi-security]\\npsk=hidden\\n[ethernet]\\nmtu=9000\\n'"
    " >/etc/NetworkManager/system-connections/eth0.nmconnection",
    "ifcfg": 'mkdir -p /etc/sysconfig/network-scripts; printf \'DEVICE="eth0"\\nMTU="9000"\\n\''
    " >/etc/sysconfig/network-scripts/ifcfg-eth0",
    "ifupdown": "mkdir -p /etc/network; printf 'iface eth0 inet static\\n  address 10.0.0.1/24\\n  mtu 9000\\n'"
    " >/etc/network/interfaces",
}
"""How a host is told to set an MTU of 9000 at boot."""


@pytest.mark.parametrize("setup", LINKS.values(), ids=LINKS)
def test_an_mtu_of_a_file_is_that_of_the_next_boot(fleet_cpu: Fleet, setup: str, tmp_path: Path) -> None:
    host, saved = fleet_cpu.hosts[1], tmp_path / "run.json"
    with fleet_cpu.broken(host, setup):
        arguments = ("--select", "interface-mtu-differs")
        before, computed = (
            check(fleet_cpu, *arguments),
            check(fleet_cpu, *arguments, "--after-reboot", "--save", str(saved)),
        )
        fleet_cpu.enter(host, "ip link set eth0 mtu 9000")
        after = check(fleet_cpu, *arguments)
    mtus = [
        [finding["values"]["observed"] for outcome in report["outcomes"] for finding in outcome["findings"]]
        for _, report in (before, computed, after)
    ]
    assert mtus[0] == [] and mtus[1] == mtus[2] != []
    assert "psk" not in saved.read_text()


def test_what_only_root_may_read_is_unknown_to_others_and_only_checks_are_refused_that_cannot_be(
    fleet_cpu: Fleet,
) -> None:
    for option in ("--smoke", "--net=quick", "--path=/etc", "--no-hosts", "--compare=all"):
        done = fleet_cpu.run(
            [sys.executable, "-m", "doctor", "check", fleet_cpu.hosts[0], "--after-reboot", option], cwd=ROOT
        )
        assert done.returncode == 2
