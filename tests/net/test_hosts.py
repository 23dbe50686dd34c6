"""The network test on real hosts: the right host, link and direction, nobody else, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.facts.test_switch_neighbours import RECORDED
from tests.net.campaign import TRIED_ALONE
from tests.net.campaign import findings_of as findings
from tests.net.injected_faults import SSH_PASSES, rules

ROOT = Path(__file__).parents[2]
LEFTOVERS = """\
awk '$4 == "0A" || $4 == "06" {print $2, $4}' /proc/net/tcp /proc/net/tcp6 | sort
ls /tmp /run /root /dev/shm
for process in /proc/[0-9]*; do
  read -r pid name state parent rest <$process/stat && test $pid != $$ -a $parent != $$ && echo $name
done 2>&- | sort
"""


def net_command(fleet: Any, *more: str) -> list[str]:
    hosts = ",".join(fleet.hosts)
    command = [sys.executable, "-m", "doctor", "net", hosts, "-F", str(fleet.ssh_config), "--net", "quick"]
    return [*command, *TRIED_ALONE, *more]


def net(fleet: Any, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON report of a quick network test."""
    done = fleet.run(net_command(fleet, "--json", *more), cwd=ROOT, timeout=110)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def leftovers(fleet: Any, *hosts: str) -> dict[str, str]:
    """Listeners, connections in TIME_WAIT, the files of folders that programs write to, and all processes."""
    return {host: fleet.enter(host, LEFTOVERS).stdout for host in hosts or fleet.hosts}


def require_nothing_left(fleet: Any, before: dict[str, str], seconds: float) -> None:
    """Within so many seconds the hosts hold nothing that they did not; what earlier tests left may go meanwhile."""
    deadline = time.monotonic() + seconds
    while more := {
        host: dict(new)
        for host, now in leftovers(fleet, *before).items()
        if (new := Counter(now.splitlines()) - Counter(before[host].splitlines()))
    }:
        assert time.monotonic() < deadline, more


def test_a_healthy_fleet_has_no_finding_and_keeps_nothing_of_the_test(fleet_cpu: Any) -> None:
    before = leftovers(fleet_cpu)
    code, report = net(fleet_cpu)
    assert (code, findings(report)) == (0, [])
    assert report["net"]["coverage"] == "tested 6 of 6 pairs in both directions, 3 ports"
    require_nothing_left(fleet_cpu, before, 10)


def drop(address: str) -> str:
    return rules(*SSH_PASSES, f"ip saddr {address} ip protocol tcp drop")


ARP_IS_LOST = (
    "table netdev t { chain c { type filter hook egress device eth0 priority 0;"
    " ether daddr ff:ff:ff:ff:ff:ff ether type arp drop; }; }\n"
)


def test_a_host_that_knows_the_others_only_by_their_own_calls(fleet_cpu: Any) -> None:
    """As through a VXLAN tunnel without them: each connection opens, and those of a job would by who calls first."""
    host = fleet_cpu.hosts[2]
    with fleet_cpu.broken(host, nft=ARP_IS_LOST):
        code, report = net(fleet_cpu)
    ((check, hosts, message),) = findings(report)
    assert (code, check, hosts) == (10, "net-unreachable", [host])
    assert f"from {host} fail on all ports" in message and "ARP is not answered" in message


def test_one_direction_between_two_hosts(fleet_cpu: Any) -> None:
    first, _, _, last = fleet_cpu.hosts
    with fleet_cpu.broken(last, nft=drop(fleet_cpu.addresses[first])):
        code, report = net(fleet_cpu)
    ((check, hosts, message),) = findings(report)
    assert (code, check, hosts) == (10, "net-unreachable", [first, last])
    assert f"from {first} to {last} fail on all ports" in message


def test_the_rule_that_blocks_is_named_instead_of_the_path_that_it_blocks(fleet_cpu: Any) -> None:
    """With the command that opens the ports, on the one host that has the rule."""
    first, _, _, last = fleet_cpu.hosts
    command = [word for word in net_command(fleet_cpu, "--json") if word not in TRIED_ALONE]
    with fleet_cpu.broken(last, nft=drop(fleet_cpu.addresses[first])):
        done = fleet_cpu.run(command, cwd=ROOT, timeout=110)
    ((check, hosts, message),) = findings(json.loads(done.stdout))
    assert (done.returncode, check, hosts) == (10, "firewall-blocks-job", [last])
    assert f"from {first}" in message


def test_a_host_that_does_not_reach_itself_is_named_where_its_ranks_need_it(fleet_cpu: Any) -> None:
    """Rank 0 connects to its own store; any other host connects to itself where it has several ranks."""
    first, *_, last = fleet_cpu.hosts
    environ = {**os.environ, "MASTER_ADDR": fleet_cpu.addresses[first], "MASTER_PORT": "29500"}
    found = []
    with fleet_cpu.broken(first, sh="ip link set lo down"), fleet_cpu.broken(last, nft=rules('iif "lo" drop')):
        for ranks in ("1", "2"):
            command = net_command(fleet_cpu, "--json", "--ranks-per-host", ranks)
            done = fleet_cpu.run(command, cwd=ROOT, timeout=110, env=environ)
            found.append([(check, hosts) for check, hosts, _ in findings(json.loads(done.stdout))])
    assert found == [[("net-unreachable", [first])], [("net-unreachable", [first]), ("net-unreachable", [last])]]


def test_a_fleet_that_is_cut_in_two_halves_names_both_and_no_single_host(fleet_cpu: Any) -> None:
    """A dead spine: each half works, and neither is worse than the other."""
    upper, lower = fleet_cpu.hosts[:2], fleet_cpu.hosts[2:]
    ours, theirs = (", ".join(fleet_cpu.addresses[host] for host in half) for half in (upper, lower))
    both = f"ip saddr {{ {ours} }} ip daddr {{ {theirs} }} drop\n  ip saddr {{ {theirs} }} ip daddr {{ {ours} }} drop"
    table = f"table bridge doctor_fault {{\n chain c {{\n  type filter hook forward priority 0\n  {both}\n }}\n}}\n"
    fleet_cpu.run(["nft", "-f", "-"], input=table, check=True)
    try:
        code, report = net(fleet_cpu)
    finally:
        fleet_cpu.run(["nft", "delete", "table", "bridge", "doctor_fault"], check=True)
    ((check, hosts, message),) = findings(report)
    assert (code, check, hosts) == (10, "net-unreachable", list(fleet_cpu.hosts))
    assert re.search(r"between hosts \S+ and hosts \S+ fail on all ports", message)


@pytest.mark.full
def test_a_bridge_that_drops_all_tcp_of_one_host_but_ssh(fleet_cpu: Any) -> None:
    victim = fleet_cpu.hosts[2]
    rule = f"ip saddr {fleet_cpu.addresses[victim]} tcp sport != 22 tcp dport != 22 drop"
    table = f"table bridge doctor_fault {{\n chain c {{\n  type filter hook forward priority 0\n  {rule}\n }}\n}}\n"
    fleet_cpu.run(["nft", "-f", "-"], input=table, check=True)
    try:
        code, report = net(fleet_cpu)
    finally:
        fleet_cpu.run(["nft", "delete", "table", "bridge", "doctor_fault"], check=True)
    ((check, hosts, message),) = findings(report)
    assert (code, check, hosts) == (10, "net-unreachable", [victim])
    assert f"connections from {victim} fail" in message


@pytest.mark.full
def test_the_firewall_check_alone_reports_what_it_can_explain(fleet_cpu: Any) -> None:
    victim = fleet_cpu.hosts[1]
    own_rules = "table inet f {\n chain i {\n  type filter hook input priority 0\n  tcp dport 22 accept\n"
    own_rules += "  ct state established accept\n  ip protocol tcp drop\n }\n}\n"
    with fleet_cpu.broken(victim, nft=own_rules):
        options = ["--select", "firewall", "--net", "quick", "--json"]
        command = [sys.executable, "-m", "doctor", "check", ",".join(fleet_cpu.hosts), "-F", fleet_cpu.ssh_config]
        report = json.loads(fleet_cpu.run([*command, *options], cwd=ROOT, timeout=110).stdout)
    assert [(check, hosts) for check, hosts, _ in findings(report)] == [("firewall-blocks-job", [victim])]
    reasons = [gap["root_cause"] for outcome in report["outcomes"] for gap in outcome["unknown"]]
    assert "firewall-blocks-job" in reasons


@pytest.mark.full
def test_two_switches_of_topology_conf_between_which_nothing_passes(make_fleet: Any, tmp_path: Path) -> None:
    fleet = make_fleet(6, name="tc", subnet="10.86.0.0/16")
    upper, lower = fleet.hosts[:3], fleet.hosts[3:]
    topology = tmp_path / "topology.conf"
    lines = [f"SwitchName={name} Nodes={','.join(hosts)}" for name, hosts in (("leaf1", upper), ("leaf2", lower))]
    topology.write_text("\n".join([*lines, "SwitchName=spine Switches=leaf1,leaf2", ""]))
    rule = f"ip saddr {{ {', '.join(fleet.addresses[host] for host in lower)} }} ip protocol tcp drop"
    for host in upper:
        fleet.enter(host, ["nft", "-f", "-"], input=rules(*SSH_PASSES, rule))
    code, report = net(fleet, "--topology", str(topology))
    ((check, _, message),) = findings(report)
    assert (code, check) == (10, "net-unreachable")
    assert "from switch leaf2 to switch leaf1 fail on all ports" in message


@pytest.mark.full
def test_two_switches_that_lldp_names_between_which_nothing_passes(make_fleet: Any) -> None:
    """The hosts' lldpctl is emulated: it prints what that of lldpd 1.0.16 has printed."""
    fleet = make_fleet(6, name="tl", subnet="10.87.0.0/16")
    upper, lower = fleet.hosts[:3], fleet.hosts[3:]
    for host in fleet.hosts:
        printed = RECORDED.replace("leaf1", "leaf1" if host in upper else "leaf2")
        fleet.write(host, "/usr/sbin/lldpctl", f"#!/bin/sh\ncat <<'END'\n{printed}END\n", "755")
    rule = f"ip saddr {{ {', '.join(fleet.addresses[host] for host in lower)} }} ip protocol tcp drop"
    for host in upper:
        fleet.enter(host, ["nft", "-f", "-"], input=rules(*SSH_PASSES, rule))
    code, report = net(fleet)
    ((check, _, message),) = findings(report)
    assert (code, check) == (10, "net-unreachable")
    assert "from switch leaf2 to switch leaf1 fail on all ports" in message


def test_nothing_is_left_after_the_controller_was_killed(fleet_cpu: Any) -> None:
    """While the hosts still wait for answers that a rule drops."""
    before = leftovers(fleet_cpu)
    with fleet_cpu.broken(fleet_cpu.hosts[3], nft=drop(fleet_cpu.addresses[fleet_cpu.hosts[0]])):
        controller = subprocess.Popen(
            fleet_cpu.argv(net_command(fleet_cpu)), cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 60
        while leftovers(fleet_cpu)[fleet_cpu.hosts[0]] == before[fleet_cpu.hosts[0]]:  # until its listeners are open
            assert time.monotonic() < deadline
            assert controller.poll() is None
        os.killpg(controller.pid, signal.SIGKILL)
        controller.wait()
        require_nothing_left(fleet_cpu, {host: before[host] for host in fleet_cpu.hosts[:3]}, 30)


@pytest.mark.full
def test_speeds_are_not_measured_beside_a_job_unless_forced(fleet_cpu: Any) -> None:
    """A program that has an accelerator open is a job."""
    host = fleet_cpu.hosts[1]
    start = "mknod /dev/nvidia0 c 1 3; setsid tail -f /dev/nvidia0 >/dev/null 2>&1 & "
    with fleet_cpu.broken(host, sh=start + "until ls -l /proc/*/fd | grep -q nvidia0; do :; done"):
        refused = measured(fleet_cpu)
        forced = measured(fleet_cpu, "--force")
    with fleet_cpu.broken(
        host, sh="/usr/sbin/sshd -p 29500 -h $(ls /etc/ssh/ssh_host_ed25519_key ~/hostkey | head -1)"
    ):
        assert measured(fleet_cpu) == forced  # a service of the host has the port
    assert refused[0] == 0
    assert f"network speeds were not measured: a job runs on {host} (tail, pid " in refused[1]
    assert forced == (12, "")


def measured(fleet: Any, *more: str) -> tuple[int, str]:
    """How many paths were measured, and the note that says why none was."""
    done = fleet.run([*net_command(fleet, "--json", *more), "--net", "full"], cwd=ROOT, timeout=110)
    report = json.loads(done.stdout)
    notes = [note for note in report["notes"] if "not measured" in note]
    return sum(bool(speed["bytes"]) for speed in report["net"]["speeds"]), "".join(notes)


@pytest.mark.full
def test_a_host_that_dies_during_the_test_is_named_and_no_other(make_fleet: Any) -> None:
    """Its cable is pulled once its prober listens, while others wait for answers; it answered all questions before."""
    fleet = make_fleet(4, name="td", subnet="10.88.0.0/16")
    victim = fleet.hosts[2]
    with fleet.broken(fleet.hosts[1], nft=drop(fleet.addresses[fleet.hosts[0]])):
        controller = subprocess.Popen(
            fleet.argv(net_command(fleet, "--json")), cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
        )
        deadline = time.monotonic() + 60
        while ":733C 0A" not in leftovers(fleet, victim)[victim]:  # until it listens on port 29500
            assert time.monotonic() < deadline
            assert controller.poll() is None
        fleet.enter(victim, ["ip", "link", "set", "eth0", "down"])
        printed, _ = controller.communicate(timeout=200)
    report = json.loads(printed)
    assert (controller.returncode, [check for check, hosts, _ in findings(report) if victim in hosts]) == (
        10,
        ["host-unreachable"],
    )
    assert "it answered until the network test" in next(
        text for _, hosts, text in findings(report) if hosts == [victim]
    )
