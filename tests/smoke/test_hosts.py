"""The smoke run on real hosts, over real SSH: whom it names when a host or the network between hosts fails it.

Faults of the network are put in by a rank, as root of its own host, in the midst of training: real rules of nft, on a
host's real interface. What follows from the host's own configuration is set up before.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.interfaces.test_cut_fleet import cut
from tests.net.injected_faults import injected
from tests.smoke.interpreter import visible_folders

pytestmark = [pytest.mark.torch, pytest.mark.hosts, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "RANK_"))}

AT_A_CALL = """
import subprocess

_plain_call = TracedComm.run_traced

def _call(self, op, *rest, **more):
    if self.rank == {rank} and STAGES[self.recorder.stage] == "training" and not hasattr(self, "struck"):
        self.struck = 0
    if getattr(self, "struck", -1) >= 0:
        self.struck += 1
        if self.struck == 20:
            subprocess.run(["sh", "-c", {command!r}], check=True)
    return _plain_call(self, op, *rest, **more)

TracedComm.run_traced = _call
"""


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(4, {"*": {"shows": visible_folders()}}, name="smk")


@pytest.fixture
def smoke(fleet: Fleet) -> Iterator[Callable[..., tuple[int, dict[str, Any]]]]:
    """Runs `doctor smoke` on the fleet; ``at`` (rank, shell command) strikes in the midst of training."""

    struck: list[str] = []

    def run(
        *arguments: str, at: tuple[int, str] | None = None, hosts: tuple[str, ...] = (), **variables: str
    ) -> tuple[int, dict[str, Any]]:
        struck.extend([fleet.hosts[at[0]]] if at else [])
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(AT_A_CALL.format(rank=at[0], command=at[1]) if at else "")
            file.flush()
            argv = [sys.executable, "-m", "tests.smoke.faulty", file.name, "smoke", ",".join(hosts or fleet.hosts)]
            argv += [
                "-F",
                str(fleet.ssh_config),
                "--python",
                sys.executable,
                "--ranks-per-host",
                "1",
                "--json",
                *arguments,
            ]
            done = fleet.run(argv, env={**CLEAN, **variables}, cwd=ROOT, timeout=150)
        assert "Traceback" not in done.stderr
        assert done.stdout, done.stderr
        if os.environ.get("SHOW"):
            print(json.dumps(json.loads(done.stdout).get("smoke"), indent=1)[:6000], done.stderr)
        return done.returncode, json.loads(done.stdout)

    yield run
    fleet.mend()
    if struck:
        fleet.renew(*struck)


def failed(report: dict[str, Any]) -> dict[str, list[str]]:
    """The hosts that each failed check blames."""
    return {
        outcome["check"]: sorted({host for finding in outcome["findings"] for host in finding["hosts"]})
        for outcome in report["outcomes"]
        if outcome["status"] == "failed"
    }


def messages(report: dict[str, Any]) -> list[str]:
    """Of all findings, with their figures."""
    return [finding["message"] for outcome in report["outcomes"] for finding in outcome["findings"]]


def findings_text(report: dict[str, Any], check: str) -> str:
    return json.dumps([outcome["findings"] for outcome in report["outcomes"] if outcome["check"] == check])


def left_behind(fleet: Fleet) -> list[str]:
    """Processes of a run, on any host."""
    look = "grep -l -a DOCTOR_SMOKE= /proc/[0-9]*/environ 2>/dev/null || true"
    return [host for host in fleet.hosts if fleet.enter(host, look).stdout.strip()]


@pytest.mark.every
def test_healthy_hosts_have_no_finding(smoke: Callable[..., Any], fleet: Fleet) -> None:
    code, report = smoke(hosts=fleet.hosts[:2])  # of three, healthy in other ways: tests/smoke/test_outside.py
    assert failed(report) == {}, messages(report)
    assert code == 0
    assert left_behind(fleet) == []


def drop(*rules: str) -> str:
    chain = "type filter hook input priority 0;"
    return f"nft 'table inet strike {{ chain in {{ {chain} {' ; '.join(rules)} ; }}; }}'"


@pytest.mark.sample
@pytest.mark.proves("smoke-network-silent")
@pytest.mark.parametrize("ways", [pytest.param("both", marks=pytest.mark.full), "one"])
def test_a_link_between_two_hosts_that_drops_everything(smoke: Callable[..., Any], fleet: Fleet, ways: str) -> None:
    first, second = fleet.hosts[1], fleet.hosts[2]
    address = fleet.addresses[second]
    rules = drop(f"ip saddr {address} drop")
    if ways == "both":
        rules += (
            f" && nft 'add chain inet strike out {{ type filter hook output priority 0; ip daddr {address} drop; }}'"
        )
    code, report = smoke("--layout", "dp=3", at=(1, rules), hosts=fleet.hosts[:3])
    assert code == 10
    assert failed(report) == {"smoke-network-silent": sorted([first, second])}


def test_a_fleet_that_is_cut_in_two_names_its_parts(smoke: Callable[..., Any], fleet: Fleet) -> None:
    parts = [list(fleet.hosts[:2]), list(fleet.hosts[2:])]
    with injected(fleet, cut(fleet, *parts)):
        code, report = smoke()
    [outcome] = [outcome for outcome in report["outcomes"] if outcome["status"] == "failed"]
    [finding] = outcome["findings"]
    assert (code, outcome["check"], finding["hosts"]) == (10, "smoke-rank-never-joined", list(fleet.hosts))
    assert (finding["values"]["cut_parts"], finding["values"]["ranks"]) == (parts, [])


@pytest.mark.full
def test_a_link_that_drops_large_packets_alone(smoke: Callable[..., Any], fleet: Fleet) -> None:
    first, second = fleet.hosts[1], fleet.hosts[2]
    code, report = smoke(at=(1, drop(f"ip saddr {fleet.addresses[second]} meta length 1000-65535 drop")))
    assert code == 10
    assert failed(report) == {"smoke-network-silent": sorted([first, second])}
    assert "MTU" in findings_text(report, "smoke-network-silent")


@pytest.mark.full
def test_a_host_that_reaches_nobody_but_us(smoke: Callable[..., Any], fleet: Fleet) -> None:
    others = ", ".join(fleet.addresses[host] for host in fleet.hosts)
    code, report = smoke(at=(1, drop(f"ip saddr {{ {others} }} drop")))
    assert code == 10
    assert failed(report) == {"smoke-network-silent": [fleet.hosts[1]]}


@pytest.mark.sample
@pytest.mark.proves("smoke-host-silent")
def test_a_host_that_falls_silent(smoke: Callable[..., Any], fleet: Fleet) -> None:
    code, report = smoke(at=(1, "ip link set eth0 down"), hosts=fleet.hosts[:3])
    assert code == 10
    assert failed(report) == {"smoke-host-silent": [fleet.hosts[1]]}


SSH_DROPPED = drop("tcp dport 22 drop")


@pytest.mark.sample
def test_a_short_loss_of_contact_is_no_finding(smoke: Callable[..., Any], fleet: Fleet) -> None:
    """Six seconds of loss on the way to the controller; training goes on over another port."""
    script = f"{SSH_DROPPED} && (sleep 6; nft delete table inet strike) >/dev/null 2>&1 &"
    code, report = smoke("--steps", "60", "--layout", "dp=3", at=(1, script), hosts=fleet.hosts[:3])
    assert failed(report) == {}, messages(report)
    assert code == 0


@pytest.mark.proves("smoke-host-unobserved")
@pytest.mark.full
def test_a_host_whose_reports_stop_while_it_trains(smoke: Callable[..., Any], fleet: Fleet) -> None:
    code, report = smoke("--steps", "100", *["--layout", "dp=4", "--layout", "dp=2,tp=2"] * 3, at=(1, SSH_DROPPED))
    assert failed(report) == {"smoke-host-unobserved": [fleet.hosts[1]]}
    assert code == 12


def test_the_port_that_the_ranks_meet_at_is_taken(smoke: Callable[..., Any], fleet: Fleet) -> None:
    listens = "import socket, time; s = socket.create_server(('', 29500)); print(flush=True); time.sleep(100)"
    script = (
        f'{sys.executable} -c "{listens}" >/tmp/ready 2>&1 </dev/null & until [ -s /tmp/ready ]; do sleep 0.01; done'
    )
    with fleet.broken(fleet.hosts[0], script):
        code, report = smoke("--master-port", "29500", hosts=fleet.hosts[:2])
    assert code == 10
    assert failed(report) == {"smoke-rank-never-joined": [fleet.hosts[0]]}
    assert "29500" in findings_text(report, "smoke-rank-never-joined")


@pytest.mark.full
def test_a_master_address_that_one_host_resolves_wrongly(smoke: Callable[..., Any], fleet: Fleet) -> None:
    for host in fleet.hosts:
        address = "127.0.0.9" if host == fleet.hosts[2] else fleet.addresses[fleet.hosts[0]]
        fleet.write(host, "/etc/hosts", f"127.0.0.1 localhost\n{address} head\n")
    code, report = smoke("--master-addr", "head", "--master-port", "29500", hosts=fleet.hosts[:3])
    assert code == 10
    assert failed(report) == {"smoke-rank-never-joined": [fleet.hosts[2]]}
    assert "127.0.0.9" in findings_text(report, "smoke-rank-never-joined")


@pytest.mark.sample
@pytest.mark.proves("smoke-rank-never-joined")
def test_a_firewall_before_the_port_that_the_ranks_meet_at(smoke: Callable[..., Any], fleet: Fleet) -> None:
    fleet.nft(fleet.hosts[0], drop(f"ip saddr {fleet.addresses[fleet.hosts[2]]} tcp dport 29500 drop")[5:-1])
    code, report = smoke("--master-port", "29500", hosts=fleet.hosts[:3])
    assert code == 10
    assert failed(report) == {"smoke-rank-never-joined": [fleet.hosts[2]]}
    assert "does not answer" in findings_text(report, "smoke-rank-never-joined")


@pytest.mark.full
def test_a_masters_host_that_lets_in_no_other_is_not_said_to_be_late(smoke: Callable[..., Any], fleet: Fleet) -> None:
    with fleet.broken(fleet.hosts[0], drop('iifname != "lo" tcp dport 29500 drop')):
        code, report = smoke("--master-port", "29500", hosts=fleet.hosts[:3])
    assert code == 10
    assert failed(report) == {"smoke-rank-never-joined": [fleet.hosts[0]]}
    text = findings_text(report, "smoke-rank-never-joined")
    assert "other ranks could not join rank" in text
    assert f"2 of the 2 other hosts do not reach {fleet.hosts[0]}: " in text


DATA_DROPPED = drop("ip saddr 10.0.0.0/8 tcp dport != {22, 29500} ct state new drop")
FEW_CONNECTIONS = drop("ip saddr 10.0.0.0/8 tcp dport != {22, 29500} ct state new ct count over 1 drop")


@pytest.mark.sample
@pytest.mark.parametrize("rule", [DATA_DROPPED, FEW_CONNECTIONS], ids=["data", "connections"])
def test_a_host_that_takes_no_new_connection_for_data_is_named_and_not_who_cannot_reach_it(
    smoke: Callable[..., Any], fleet: Fleet, rule: str
) -> None:
    with fleet.broken(fleet.hosts[2], rule):
        code, report = smoke("--master-port", "29500")
    assert code == 10
    # The first groups may have come about before the table was full.
    assert failed(report) in (
        {"smoke-rank-never-joined": [fleet.hosts[2]]},
        {"smoke-network-silent": [fleet.hosts[2]]},
    ), messages(report)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("wrapper", "check", "says"),
    [
        ("exit 0", "smoke-rank-not-started", "exit status 0, before it had imported torch"),
        ("kill -STOP $$", "smoke-rank-stopped", "stopped by a signal"),
    ],
    ids=["ends", "stops"],
)
def test_an_interpreter_that_does_not_get_to_its_import_is_named_on_its_host(
    smoke: Callable[..., Any], fleet: Fleet, wrapper: str, check: str, says: str
) -> None:
    """On all hosts the same file starts the job's Python; on one it does something else."""
    for host in fleet.hosts[:3]:
        body = wrapper if host == fleet.hosts[1] else f'exec {sys.executable} "$@"'
        fleet.write(host, "/usr/local/bin/job-python", f"#!/bin/sh\n{body}\n")
        fleet.enter(host, ["chmod", "755", "/usr/local/bin/job-python"])
    code, report = smoke("--python", "/usr/local/bin/job-python", hosts=fleet.hosts[:3])
    assert (code, failed(report)) == (10, {check: [fleet.hosts[1]]}), messages(report)
    assert says in findings_text(report, check)


@pytest.mark.proves("smoke-rank-not-started")
def test_a_host_without_torch(smoke: Callable[..., Any], fleet: Fleet) -> None:
    code, report = smoke("--python", "/usr/bin/python3", hosts=fleet.hosts[:2])
    assert code == 10
    assert failed(report) == {"smoke-rank-not-started": sorted(fleet.hosts[:2])}
    assert "torch" in findings_text(report, "smoke-rank-not-started")


WITHOUT_NUMPY = """import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise ModuleNotFoundError("No module named 'numpy'", name=name)

sys.meta_path.insert(0, Finder())
"""
OLD_NUMPY = "import numpy; numpy.__version__ = '1.0.3'\n"


@pytest.mark.sample
@pytest.mark.proves("smoke-numpy-missing", "smoke-version-differs")
def test_hosts_with_other_versions_and_without_numpy(smoke: Callable[..., Any], fleet: Fleet) -> None:
    """The masks of all hosts differ then: the host without NumPy is the cause, and the only one that is blamed."""
    for host, site in zip(fleet.hosts, ("", WITHOUT_NUMPY, OLD_NUMPY, ""), strict=True):
        fleet.enter(host, f"mkdir -p /tmp/site && printf %s {shlex.quote(site)} >/tmp/site/sitecustomize.py")
        script = f'#!/bin/sh\nPYTHONPATH=/tmp/site exec {sys.executable} "$@"\n'
        fleet.enter(host, f"printf %s {shlex.quote(script)} >/tmp/job-python && chmod +x /tmp/job-python")
    code, report = smoke("--python", "/tmp/job-python")
    assert code == 10
    assert failed(report) == {
        "smoke-numpy-missing": [fleet.hosts[1]],
        "smoke-version-differs": [fleet.hosts[2]],
    }


@pytest.mark.proves("smoke-loader-failed")
@pytest.mark.full
def test_a_host_with_one_megabyte_of_shared_memory(smoke: Callable[..., Any], fleet: Fleet) -> None:
    fleet.renew(fleet.hosts[3], shm="1m")
    code, report = smoke()
    assert code == 10
    assert failed(report) == {"smoke-loader-failed": [fleet.hosts[3]]}
    assert "/dev/shm" in findings_text(report, "smoke-loader-failed")


SHAPED = "tc qdisc add dev eth0 root {}tbf rate 40mbit burst 64kb latency 400ms"


@pytest.mark.sample
def test_a_host_whose_network_is_slow(smoke: Callable[..., Any], fleet: Fleet) -> None:
    fleet.enter(fleet.hosts[1], SHAPED.format(""))
    code, report = smoke()
    fleet.renew(fleet.hosts[1])
    assert failed(report) == {"smoke-host-slow": [fleet.hosts[1]]}
    assert code in (0, 10)


@pytest.mark.full
def test_a_link_that_is_slow(smoke: Callable[..., Any], fleet: Fleet) -> None:
    """Only what goes from one host to one other is held back."""
    first, second = fleet.hosts[1], fleet.hosts[2]
    shape = [
        "tc qdisc add dev eth0 root handle 1: htb",
        "tc class add dev eth0 parent 1: classid 1:2 htb rate 40mbit quantum 1514",
        "nft 'add table inet shape; add chain inet shape out { type filter hook output priority 0; }'",
        f"nft add rule inet shape out ip daddr {fleet.addresses[second]} meta priority set 0x10002",
    ]
    fleet.enter(first, " && ".join(shape))
    code, report = smoke()
    fleet.renew(first)
    assert failed(report) == {"smoke-link-slow": sorted([first, second])}
    assert code in (0, 10)


BRIDGE = "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && ip link set docker0 up"


@pytest.mark.proves("smoke-environment-fails")
@pytest.mark.full
def test_an_interface_of_the_jobs_that_nobody_else_reaches(smoke: Callable[..., Any], fleet: Fleet) -> None:
    """The real job hangs in its rendezvous: each host's bridge has the same address."""
    some = fleet.hosts[:2]
    for host in some:
        fleet.enter(host, BRIDGE)
    code, report = smoke(hosts=some, GLOO_SOCKET_IFNAME="docker0", NCCL_DEBUG="WARN")
    clean = smoke("--env", "clean", hosts=some, GLOO_SOCKET_IFNAME="docker0")
    fleet.renew(*some)
    assert failed(report) == {"smoke-environment-fails": []}
    assert "GLOO_SOCKET_IFNAME=docker0" in findings_text(report, "smoke-environment-fails")
    assert code == 10
    assert clean[0] == 0


@pytest.mark.sample
def test_a_host_whose_own_name_is_a_loopback_address(smoke: Callable[..., Any], fleet: Fleet) -> None:
    some = fleet.hosts[:2]
    for host in some:
        others = "".join(f"{fleet.addresses[other]} {other}\n" for other in some if other != host)
        fleet.write(host, "/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {host}\n{others}")
    code, report = smoke(hosts=some)
    assert failed(report) == {"smoke-environment-fails": []}
    assert "GLOO_SOCKET_IFNAME is not set" in findings_text(report, "smoke-environment-fails")
    assert code == 10
