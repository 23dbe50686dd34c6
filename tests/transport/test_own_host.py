"""Every command reads its own host without SSH, whatever the list calls it: on real hosts that SSH lets nobody into."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import ROOT, visible_folders

CLOSED = "nft add table inet shut; nft 'add chain inet shut in { type filter hook input priority -10; }'; "
CLOSED += "nft add rule inet shut in tcp dport 22 reject with tcp reset"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class OwnHost:
    """A host of two, and `doctor` as it is run there."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.host, self.other = fleet.hosts
        self.addresses = {
            host: json.loads(fleet.enter(host, "ip -j -4 addr show scope global").stdout)[0]["addr_info"][0]["local"]
            for host in fleet.hosts
        }

    def doctor(self, *arguments: str, **environ: str) -> Any:
        env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}
        argv = ["sh", "-c", 'cd /tmp && exec "$@"', "sh", sys.executable, "-m", "doctor", *arguments]
        return self.fleet.enter(self.host, argv, check=False, env={**env, **environ})

    def check(self, hosts: str, *arguments: str, **environ: str) -> dict[str, str]:
        """By host, why it was not reached; empty where it was."""
        done = self.doctor("check", hosts, "--json", "--select", "memory-short", *arguments, **environ)
        report = json.loads(done.stdout)
        (reached,) = (entry for entry in report["outcomes"] if entry["check"] == "host-unreachable")
        failed = {host: finding["message"] for finding in reached["findings"] for host in finding["hosts"]}
        return {host: failed.get(host, "") for host in report["hosts"]}


@pytest.fixture(scope="module")
def controller(make_fleet: Callable[..., Fleet]) -> Iterator[OwnHost]:
    fleet = make_fleet(2, {"*": {"shows": visible_folders(), "setup": CLOSED}}, name="ow")
    yield OwnHost(fleet)


def test_by_every_name(controller: OwnHost) -> None:
    """Aliases of /etc/hosts, with a domain, its address; and the other host is not reached under any name."""
    mine, others = controller.addresses[controller.host], controller.addresses[controller.other]
    names = f"{mine} {controller.host}.cluster.local trainer-0\n{others} worker-7\n127.0.1.1 copied-image\n"
    controller.fleet.enter(controller.host, "cat /etc/hosts - >/tmp/hosts && cat /tmp/hosts >/etc/hosts", input=names)
    listed = [controller.host, f"{controller.host}.cluster.local", "trainer-0", mine, "localhost"]
    assert controller.check(",".join(listed)) == dict.fromkeys(listed, "")
    others_names = [controller.other, others, "worker-7", "copied-image"]
    reached = controller.check(",".join([controller.host, *others_names]))
    assert {host for host, why in reached.items() if not why} == {controller.host}, reached
    openssh = controller.check(f"{controller.host},{controller.other}", "--transport", "openssh")
    assert {host for host, why in openssh.items() if not why} == {controller.host}, openssh


def test_in_a_job(controller: OwnHost) -> None:
    """One-node jobs where SSH lets nobody in: the scheduler's name, which no file and no server knows."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu-rack-7", "SLURM_JOB_NUM_NODES": "1"}
    slurm["SLURMD_NODENAME"] = "gpu-rack-7"
    done = controller.doctor("preflight", "--tier", "quick", "--select", "memory-short", **slurm)
    assert (done.returncode, "nodes=1/1" in done.stdout) == (0, True), done
    controller.fleet.enter(controller.host, "hostname job-worker-0")
    try:
        assert controller.check("job-worker-0.job") == {"job-worker-0.job": ""}
        assert controller.check("job-worker-1.job")["job-worker-1.job"]
    finally:
        controller.fleet.enter(controller.host, f"hostname {controller.host}")


def test_another_host_that_has_this_ones_name(controller: OwnHost) -> None:
    """By its name in the list it is the other one, whatever this machine calls itself."""
    controller.fleet.enter(controller.host, f"hostname {controller.other}")
    try:
        reached = controller.check(f"{controller.host},{controller.other}")
        assert {host for host, why in reached.items() if not why} == {controller.host}, reached
    finally:
        controller.fleet.enter(controller.host, f"hostname {controller.host}")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("fix", "sysctl-lost-at-reboot", "-w", "{host}"), (0, 10, 78), ""),
        (("diagnose", "{host}", "--logs", "/tmp/own.log"), (0, 10, 12), ""),
        (("watch", "--attach", "{host}"), (78,), "no rank of a job runs"),
        (("net", "{host},{other}", "--net", "quick"), (10,), ""),
        (("rank-table", "{host}"), (78, 10, 12), ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) and isinstance(value[0], str) else "",
)
def test_every_command(controller: OwnHost, command: tuple[str, ...], code: tuple[int, ...], says: str) -> None:
    controller.fleet.enter(controller.host, "echo 'rank 0: step 1 loss 2.0' >/tmp/own.log")
    done = controller.doctor(*(word.format(host=controller.host, other=controller.other) for word in command))
    text = done.stdout + done.stderr
    assert done.returncode in code and says in text, done
    for line in text.splitlines():
        assert not (controller.host in line and ("refused" in line or "port 22" in line)), text


def test_smoke(controller: OwnHost) -> None:
    arguments = (
        "smoke",
        controller.host,
        "--ranks-per-host",
        "2",
        "--backend",
        "gloo",
        "--python",
        sys.executable,
        "--budget",
        "100",
    )
    done = controller.doctor(*arguments)
    assert done.returncode == 0, done


def test_the_configuration_of_ssh_decides_where_a_name_leads(controller: OwnHost, tmp_path: Path) -> None:
    here, there = (controller.addresses[host] for host in (controller.host, controller.other))
    config = f"Host there\n HostName {there}\nHost here\n HostName {here}\n"
    config += f"Host proxied\n HostName {here}\n ProxyCommand false\n"
    config += "Host forwarded\n HostName 127.0.0.1\n Port 2201\n"
    controller.fleet.enter(controller.host, "cat >/tmp/ssh_config", input=config)
    reached = controller.check("here,there,forwarded,proxied", "-F", "/tmp/ssh_config")
    assert {host for host, why in reached.items() if not why} == {"here"}, reached
