"""`doctor check` end to end over real SSH: every trouble ends in one plain sentence, and delays nobody else."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.hosts
ROOT = Path(__file__).resolve().parents[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "RANK_"))}
FAULTS = ("refuse", "drop", "silent", "wrong-key", "deny", "hang", "flood", "cut")
CONNECT_TIMEOUT = 4.0


def check(fleet: Fleet, hosts: list[str], *arguments: str) -> tuple[int, dict[str, Any], float]:
    """Exit code, report, and seconds of wall time."""
    began = time.monotonic()
    argv = [sys.executable, "-m", "doctor", "check", ",".join(hosts), "-F", str(fleet.ssh_config), "--json", *arguments]
    done = fleet.run(argv, env=CLEAN, cwd=ROOT, timeout=100)
    assert done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout), time.monotonic() - began


def outcome(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in report["outcomes"] if entry["check"] == name)


def unreached(report: dict[str, Any]) -> dict[str, str]:
    """What host-unreachable says, by host."""
    findings = outcome(report, "host-unreachable")["findings"]
    return {host: entry["values"]["trouble"] for entry in findings for host in entry["hosts"]}


@pytest.fixture(scope="module")
def mixed(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Sixteen hosts: one for each transport fault, and eight good ones between them."""
    return make_fleet(16, {f"mix{2 * place + 1:04d}": {"fault": name} for place, name in enumerate(FAULTS)}, name="mix")


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_eight_faults_among_sixteen_hosts(mixed: Fleet, transport: str) -> None:
    """Each is named, none delays the others, and the good hosts are complete."""
    arguments = ["--connect-timeout", str(CONNECT_TIMEOUT), "--timeout", str(CONNECT_TIMEOUT + 2)]
    arguments += ["--transport", transport, "--select", "host-unreachable", "--select", "listen-queue-short"]
    code, report, seconds = check(mixed, list(mixed.hosts), *arguments)
    bad, good = mixed.hosts[::2], mixed.hosts[1::2]
    assert code == 10
    assert outcome(report, "listen-queue-short")["evaluated_hosts"] == list(good)
    responses = unreached(report)
    assert set(responses) == set(bad)
    assert outcome(report, "python3-missing")["evaluated_hosts"] == list(good)
    assert dict(zip(FAULTS, (responses[host] for host in bad), strict=True)) == {
        "refuse": "refused",
        "drop": "dropped",
        "silent": "silent",
        "wrong-key": "key-changed",
        "deny": "auth",
        "hang": "timeout",
        "flood": "flood",
        "cut": "lost",
    }
    assert seconds < CONNECT_TIMEOUT + 2 + 20


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_the_login_that_a_hostfile_names_goes_before_the_options(mixed: Fleet, transport: str, tmp_path: Path) -> None:
    """Of two good hosts, one is listed with its user and port, and the user of the option has no account."""
    listed, other = mixed.hosts[1], mixed.hosts[3]
    hostfile = tmp_path / "hosts"
    hostfile.write_text(f"root@{listed}:22 slots=8\n{other} slots=8\n")
    argv = [sys.executable, "-m", "doctor", "check", "--hostfile", str(hostfile), "-F", str(mixed.ssh_config), "--json"]
    argv += ["-l", "stranger", "-p", "2", "--transport", transport, "--select", "host-unreachable"]
    done = mixed.run(argv, env=CLEAN, cwd=ROOT, timeout=100)
    report = json.loads(done.stdout)
    assert outcome(report, "python3-missing")["evaluated_hosts"] == [listed]
    assert set(unreached(report)) == {other}


def test_the_whole_fleet_gone_is_one_finding_not_a_hundred_unknowns(mixed: Fleet) -> None:
    code, report, _ = check(mixed, [mixed.hosts[0]])
    assert code == 10
    assert {entry["status"] for entry in report["outcomes"]} <= {"failed", "passed", "unknown", "skipped"}
    reasons = {entry["root_cause"] for outcome in report["outcomes"] for entry in outcome["unknown"]}
    assert reasons == {"host-unreachable"}


@pytest.fixture(scope="module")
def unusual_hosts(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Hosts that work, each odd in its own way."""
    noise = ["\033[31mWELCOME\033[0m to [bold]odd[/bold]\n", "bye\n"]
    users = {
        "may": {"uid": 2001, "groups": [], "sudo": "nopasswd"},
        "asks": {"uid": 2002, "groups": [], "sudo": "password", "password": "not-this-one"},
    }
    return make_fleet(
        7,
        {
            "*": {"users": users},
            "odd0001": {"python": False},
            "odd0002": {"shell": "/usr/bin/fish"},
            "odd0003": {"shell": "/bin/csh"},
            "odd0004": {"noise": noise},
            "odd0005": {"full_disk": True},
            "odd0006": {"nft": "table inet f {\n chain in {\n type filter hook input priority 0\n }\n}\n"},
        },
        name="odd",
        shm="4g",
    )


def test_a_host_without_python_is_said_to_be_one(unusual_hosts: Fleet) -> None:
    code, report, _ = check(
        unusual_hosts, [unusual_hosts.hosts[0], unusual_hosts.hosts[6]], "--select", "listen-queue-short"
    )
    assert code == 10
    (finding,) = outcome(report, "python3-missing")["findings"]
    assert finding["hosts"] == [unusual_hosts.hosts[0]]
    assert outcome(report, "host-unreachable")["status"] == "passed"
    assert outcome(report, "listen-queue-short")["unknown"][0]["root_cause"] == "python3-missing"


@pytest.mark.parametrize(
    ("place", "description"), [(1, "fish"), (2, "csh"), (3, "banners and noise"), (4, "a full disk")]
)
def test_an_odd_host_is_read_like_any_other(unusual_hosts: Fleet, place: int, description: str) -> None:
    del description
    code, report, _ = check(unusual_hosts, [unusual_hosts.hosts[place]], "--select", "listen-queue-short")
    assert outcome(report, "listen-queue-short")["evaluated_hosts"] == [unusual_hosts.hosts[place]]
    assert code == 0


def test_a_firewall_that_an_ordinary_user_cannot_read_is_unknown(unusual_hosts: Fleet) -> None:
    hosts = list(unusual_hosts.hosts[5:7])
    code, report, _ = check(unusual_hosts, hosts, "-l", "may", "--select", "firewall-blocks-job")
    assert code == 12
    assert "root" in outcome(report, "firewall-blocks-job")["unknown"][0]["reason"]


def test_with_sudo_it_is_read(unusual_hosts: Fleet) -> None:
    hosts = list(unusual_hosts.hosts[5:7])
    code, report, _ = check(unusual_hosts, hosts, "-l", "may", "--sudo", "--select", "firewall-blocks-job")
    assert outcome(report, "firewall-blocks-job")["unknown"] == []
    assert code == 0


def test_sudo_that_asks_for_a_password_is_unknown_not_absent(unusual_hosts: Fleet) -> None:
    hosts = list(unusual_hosts.hosts[5:7])
    code, report, _ = check(unusual_hosts, hosts, "-l", "asks", "--sudo", "--select", "firewall-blocks-job")
    assert code == 12
    assert "password is required" in outcome(report, "firewall-blocks-job")["unknown"][0]["reason"]


def test_within_looks_where_the_job_runs(unusual_hosts: Fleet) -> None:
    """A container with Docker's /dev/shm on a host with a large one."""
    host = unusual_hosts.hosts[6]
    script = '#!/bin/sh\nmount -t tmpfs -o size=64m none /dev/shm && exec "$@"\n'
    unusual_hosts.write(host, "/usr/local/bin/in-container", script, mode="755")
    _, outside, _ = check(unusual_hosts, [host], "--select", "shm-docker-default")
    assert outcome(outside, "shm-docker-default")["status"] == "passed"
    code, inside, _ = check(
        unusual_hosts,
        [host],
        "--select",
        "shm-docker-default",
        "--within",
        "unshare --mount /usr/local/bin/in-container",
    )
    (finding,) = outcome(inside, "shm-docker-default")["findings"]
    assert (code, finding["severity"]) == (0, "warning")


def test_a_container_that_is_not_there_is_unknown(unusual_hosts: Fleet) -> None:
    code, report, _ = check(
        unusual_hosts,
        [unusual_hosts.hosts[6]],
        "--select",
        "shm-docker-default",
        "--within",
        "sh -c 'echo No such container >&2; exit 1'",
    )
    assert code == 12
    assert "No such container" in outcome(report, "shm-docker-default")["unknown"][0]["reason"]


def test_the_report_is_the_same_from_the_saved_run(unusual_hosts: Fleet, tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    _, live, _ = check(unusual_hosts, list(unusual_hosts.hosts), "--save", str(saved))
    argv = [sys.executable, "-m", "doctor", "check", "--from", str(saved), "--json"]
    # A saved run does not say how ssh reaches the hosts: a stranger's could name a file of settings. The user says it.
    again = json.loads(unusual_hosts.run([*argv, "-F", str(unusual_hosts.ssh_config)], env=CLEAN, cwd=ROOT).stdout)
    assert again["outcomes"] == live["outcomes"]
    assert again["hosts"] == live["hosts"]


def test_containers_with_hccn_conf_and_without_the_tool(fleet_a2: Fleet) -> None:
    """Addresses are read from the file, what it does not hold is unknown, and no tool is called missing."""
    hosts = list(fleet_a2.hosts[:2])
    names = ("device-ip-conflict", "device-ip-unset", "device-link-down", "hccn-conf-differs", "npu-tools-missing")
    arguments = [word for name in names for word in ("--select", name)]
    container = "rm /usr/local/Ascend/driver/tools/hccn_tool; mkdir -p /run; : >/run/.containerenv; "
    twin = "sed -i 's/^address_3=.*/address_3=29.1.9.9/' /etc/hccn.conf"
    with fleet_a2.broken(hosts, container + twin):
        code, report, _ = check(fleet_a2, hosts, *arguments)
    assert code == 10
    [found] = outcome(report, "device-ip-conflict")["findings"]
    assert (found["hosts"], found["values"]["ip"]) == (hosts, "29.1.9.9")
    assert outcome(report, "device-ip-unset")["status"] == "passed"
    for name in ("device-link-down", "hccn-conf-differs"):
        unknown = outcome(report, name)["unknown"]
        assert all(reason["reason"].startswith("hccn_tool is not here") for reason in unknown), unknown
        assert unknown and not outcome(report, name)["evaluated_hosts"]
    assert outcome(report, "npu-tools-missing")["status"] == "skipped"
