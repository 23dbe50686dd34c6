"""No playbook lowers a value, touches what is not its own, or claims a reboot that it would not survive."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import RISKS, Playbook
from tests.hosts.fleet import INSIDE, Fleet

pytestmark = pytest.mark.hosts
BOOKS: dict[str, Playbook] = {one_playbook.name: one_playbook for one_playbook in load_playbooks()}


def filtered(fleet: Fleet, name: str, values: Mapping[str, str], old: str = "") -> list[str]:
    """What the first filter of a playbook makes of a file."""
    (step, *_) = [step for step in BOOKS[name].steps if step.filter]
    done = fleet.enter(fleet.hosts[1], step.filter, env={**INSIDE, **values}, input=old)
    return str(done.stdout).splitlines()


LIMITS = [
    ("", "4096", ["root soft nofile 65535", "root hard nofile 65535"]),
    ("* soft nofile 1048576\n* hard nofile 1048576", "1048576", ["root soft nofile 1048576"]),
    ("root hard nofile 200000\nroot - nofile 1024", "1024", ["root soft nofile 65535", "root hard nofile 200000"]),
    ("@hpc soft nofile 300000", "unlimited", ["root soft nofile 300000"]),
    ("ann soft nofile 999999\n# root soft nofile 999999", "524288", ["root soft nofile 65535"]),
]


@pytest.mark.parametrize(("conf", "hard", "lines"), LIMITS)
def test_a_limit_is_only_raised_and_for_the_login_user_alone(
    fleet_cpu: Fleet, conf: str, hard: str, lines: list[str]
) -> None:
    with fleet_cpu.broken(fleet_cpu.hosts[1], f"printf '{conf}\\n' >/etc/security/limits.conf"):
        assert filtered(fleet_cpu, "raise-open-files-limit", {"hard": hard}, "ann - nofile 7\n") == [
            "ann - nofile 7",
            *lines,
        ]
        (soft, *_) = filtered(fleet_cpu, "raise-process-limit", {"hard": "unlimited"})
        assert soft == "root soft nproc unlimited"


FSTAB = (
    "tmpfs /dev/shm tmpfs rw,size={one} 0 0\n# tmpfs /dev/shm tmpfs size=1m 0 0\ntmpfs /dev/shm tmpfs size={two},rw 0 0"
)


@pytest.mark.parametrize(
    ("one_playbook", "other_playbook", "first", "second"),
    [("64m", "100%", "50%", "100%"), ("1024k", "99999G", "50%", "99999G"), ("10%", "65536", "50%", "50%")],
)
def test_a_size_is_only_raised_in_every_line_and_no_other_text_changes(
    fleet_cpu: Fleet, one_playbook: str, other_playbook: str, first: str, second: str
) -> None:
    lines = filtered(fleet_cpu, "enlarge-shm", {}, FSTAB.format(one=one_playbook, two=other_playbook))
    assert "\n".join(lines) == FSTAB.format(one=first, two=second)


def test_a_user_cannot_lead_root_to_another_file(fleet_cpu: Fleet) -> None:
    """Names in folders, links and what somebody holds stay; the object is opened once and removed by that."""
    host = fleet_cpu.hosts[1]
    setup = """
mkdir /dev/shm/d; echo x >/dev/shm/d/victim; echo x >/etc/victim; ln -s /etc/victim /dev/shm/link
echo x >/dev/shm/mine; echo x >'/dev/shm/od d$(x)'; ln -s /etc /dev/shm/etc"""
    with fleet_cpu.broken(host, setup):
        objects = ["/dev/shm/d/victim", "/dev/shm/link", "/dev/shm/etc/victim", "/dev/shm/../etc/victim", "/etc/victim"]
        objects += ["/dev/shm/mine", "/dev/shm/od d$(x)", "7;id", "../../etc/victim"]
        (step,) = BOOKS["remove-stale-segments"].steps
        fleet_cpu.enter(host, step.run, env={**INSIDE, "objects": "\n".join(objects)})
        assert fleet_cpu.read(host, "/etc/victim") == "x\n"
        assert fleet_cpu.enter(host, "ls /dev/shm").stdout.split() == ["d", "etc", "link"]


def test_what_spreads_data_between_hosts_is_no_low_risk() -> None:
    spreads = {
        name for name, book in BOOKS.items() for step in book.steps if {"lines", "sources"} & set(step.environ_names)
    }
    assert spreads == {"write-host-names", "name-own-address", "correct-host-name", "open-job-ports"}
    assert {BOOKS[name].risk for name in spreads} == {"medium"}


def test_a_dormant_table_filters_nothing_and_keeps_all(fleet_cpu: Fleet) -> None:
    host = fleet_cpu.hosts[1]
    rules = """
nft 'table inet one { set s { type ipv4_addr; flags timeout; elements = { 10.1.1.1 timeout 1h } };
    chain c { type filter hook input priority 0; tcp dport 4444 counter drop; }; }'
nft 'table inet two { chain c { type filter hook input priority 0; }; }'"""
    step = next(step for step in BOOKS["switch-firewall-off"].steps if "dormant" in step.run)
    with fleet_cpu.broken(host, rules):
        env = {**INSIDE, "nft_table": "inet one"}
        before = fleet_cpu.enter(host, "nft -s list ruleset").stdout
        assert fleet_cpu.enter(host, step.before, env=env).stdout == "active\n"
        fleet_cpu.enter(host, step.run, env=env)
        assert fleet_cpu.enter(host, step.before, env=env).stdout == "dormant\n"
        fleet_cpu.enter(host, step.undo, env=env)
        assert fleet_cpu.enter(host, "nft -s list ruleset").stdout == before


@pytest.mark.parametrize("keeper", ["ptp4l", "sfptpd", "ptpd2", "ntpd", "vmware"])
def test_the_clock_of_another_keeper_is_left_alone(fleet_cpu: Fleet, keeper: str) -> None:
    """chronyd beside phc2sys, or beside ntpd: two daemons would steer one clock."""
    host, book = fleet_cpu.hosts[1], BOOKS["set-clock"]
    assert RISKS.index(book.risk) > RISKS.index("medium"), "a step of the clock ends leases, timeouts, certificates"
    steps = [step.only for step in book.steps if step.only]
    tool = "printf '#!/bin/sh\\n' >/usr/local/sbin/chronyc; chmod 755 /usr/local/sbin/chronyc"
    with fleet_cpu.broken(host, tool):
        assert [fleet_cpu.enter(host, only, check=False).returncode for only in steps] == [0, 0, 1]
        start = "printf '#!/bin/sh\\necho Enabled\\n' >/usr/local/sbin/vmware-toolbox-cmd"
        start += "; chmod 755 /usr/local/sbin/vmware-toolbox-cmd"
        if keeper != "vmware":
            start = f"cp /bin/sleep /tmp/{keeper}; setsid /tmp/{keeper} 60 >/dev/null 2>&1 & sleep 0.5"
        end = f"pkill -x {keeper} || :; rm -f /usr/local/sbin/vmware-toolbox-cmd /tmp/{keeper}"
        fleet_cpu.enter(host, start)
        try:
            assert [fleet_cpu.enter(host, only, check=False).returncode for only in steps] == [1, 1, 1]
        finally:
            fleet_cpu.enter(host, end)


@pytest.mark.parametrize("before", ["enabled active", "disabled active", "enabled inactive", "disabled inactive"])
def test_the_undo_of_firewalld_restores_what_was(fleet_cpu: Fleet, before: str) -> None:
    """One that ran without being enabled is not enabled by an undo."""
    host = fleet_cpu.hosts[1]
    step = next(step for step in BOOKS["switch-firewall-off"].steps if "firewalld" in step.undo)
    systemctl = (
        "printf '#!/bin/sh\\necho $1 >>/run/calls\\n' >/usr/local/sbin/systemctl; chmod 755 /usr/local/sbin/systemctl"
    )
    with fleet_cpu.broken(host, f"{systemctl}; : >/run/calls"):
        fleet_cpu.enter(host, step.undo, env={**INSIDE, "before": before})
        calls = fleet_cpu.read(host, "/run/calls").split()
    was_enabled, was_active = (word in before.split() for word in ("enabled", "active"))
    assert calls == [*(["enable"] if was_enabled else []), *(["start"] if was_active else [])]
