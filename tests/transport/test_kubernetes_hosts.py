"""The commands in pods that are test hosts: the same report as over SSH to the same hosts, healthy and sick.

kubectl is real, the API server is the small one (`tests.hosts.kubernetes.small_server`), and each pod is a host of
`tests.hosts.fleet`. `test_pod_commands_cluster.py` does it on a real control plane.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.conftest import PREPARED
from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.kubernetes.small_server import SmallServer, pod
from tests.hosts.testbed import merge
from tests.smoke.interpreter import ROOT, visible_folders
from tests.smoke.test_hosts import AT_A_CALL, drop
from tests.transport.test_kubernetes import kubectl_speaks_websocket

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(590),
    pytest.mark.skipif(not kubectl_speaks_websocket(), reason="needs kubectl 1.31 or later"),
]
Json = dict[str, Any]
JOB = ("--transport", "kubernetes", "--job", "train")
SMOKE = ("--python", sys.executable, "--ranks-per-host", "1", "--steps", "1", "--layout", "dp=3")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(3, {"*": merge(PREPARED, {"shows": visible_folders()})}, name="kp", shm="4g")


@pytest.fixture
def server(fleet: Fleet, tmp_path: Path) -> Iterator[SmallServer]:
    """Its pods are the hosts of the fleet."""
    pods = [
        pod(host, labels={"job-name": "train"}, owner="Job/train", status={"podIP": fleet.addresses[host]})
        for host in fleet.hosts
    ]
    small = SmallServer(tmp_path, pods)
    small.enter, small.variables = fleet.enter_argv, INSIDE
    yield small
    small.close()
    fleet.mend()


def both_ways(fleet: Fleet, server: SmallServer, *words: str, strike: str = "") -> Iterator[tuple[int, Json]]:
    """Exit code and report: over SSH, and through the API server, from where no host can be reached.

    ``strike``: text for the ranks' program, which puts a rule into the second host's firewall in the midst of it.
    """
    file = server.folder / "strike.py"
    file.write_text(strike)
    argv = [sys.executable, "-m", *(["tests.smoke.faulty", str(file)] if strike else ["doctor"]), *words]
    more = ["--json", *([] if words[0] == "watch" else ["--no-history"])]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    options: Json = {"cwd": ROOT, "timeout": 300, "capture_output": True, "text": True}
    done = fleet.run([*argv, ",".join(fleet.hosts), "-F", fleet.ssh_config, *more], env=environ, **options)
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    yield done.returncode, json.loads(done.stdout)
    if strike:
        fleet.enter(fleet.hosts[1], "nft delete table inet strike")
    done = preloaded.run([*argv, *JOB, *more], env={**environ, **server.environment()}, **options)
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    yield done.returncode, json.loads(done.stdout)


def findings(report: Json) -> set[tuple[str, tuple[str, ...]]]:
    """Each check that found something, and the hosts."""
    return {
        (outcome["check"], tuple(sorted(finding["hosts"])))
        for outcome in report["outcomes"]
        for finding in outcome["findings"]
    }


def unknown(report: Json) -> set[str]:
    return {outcome["check"] for outcome in report["outcomes"] if outcome["unknown"] or outcome["crashed"]}


def same(fleet: Fleet, server: SmallServer, *words: str, strike: str = "") -> tuple[int, Json]:
    """The report through the API server, which is that over SSH."""
    (code, over_ssh), (same_code, report) = both_ways(fleet, server, *words, strike=strike)
    assert findings(report) == findings(over_ssh)
    assert (same_code, unknown(report)) == (code, unknown(over_ssh)), report
    assert not server.commands
    return code, report


def test_check_of_healthy_pods_and_of_a_sick_one(fleet: Fleet, server: SmallServer) -> None:
    code, report = same(fleet, server, "check")
    assert (code, findings(report)) == (0, set())
    fleet.sysctl(fleet.hosts[1], "net.core.somaxconn", 16)
    code, report = same(fleet, server, "check")
    assert findings(report) == {("listen-queue-short", (fleet.hosts[1],))}


def test_net_in_healthy_pods_and_past_a_firewall(fleet: Fleet, server: SmallServer) -> None:
    code, report = same(fleet, server, "net")
    assert (code, findings(report)) == (0, set())
    second = fleet.hosts[1]
    fleet.nft(second, "table inet f { chain c { type filter hook input priority 0; tcp dport != 22 drop; }; }")
    code, report = same(fleet, server, "net")
    assert code == 10 and {hosts for _, hosts in findings(report)} == {(second,)}, report


@pytest.mark.parametrize("drops", [False, True], ids=["healthy", "a link drops everything"])
def test_training_in_pods(fleet: Fleet, server: SmallServer, drops: bool) -> None:
    _, second, third = fleet.hosts
    rules = drop(f"ip saddr {fleet.addresses[third]} drop")
    code, report = same(fleet, server, "smoke", *SMOKE, strike=AT_A_CALL.format(rank=1, command=rules) if drops else "")
    expected = {("smoke-network-silent", (second, third))} if drops else set()
    assert (code, findings(report)) == (10 if drops else 0, expected), report
    assert [host["host"] for host in report["smoke"]["hosts"]] == list(fleet.hosts)


WAITS = "import threading; threading.Event().wait()"
SLEEPS = "import time; time.sleep(3600)"


def test_the_rank_that_sleeps_in_one_of_the_pods(fleet: Fleet, server: SmallServer) -> None:
    for rank, (host, program) in enumerate(zip(fleet.hosts, (WAITS, SLEEPS, WAITS), strict=True)):
        start = f"RANK={rank} WORLD_SIZE=3 MASTER_PORT=29777 setsid python3 -c {shlex.quote(program)}"
        fleet.enter(host, f"{start} >/dev/null 2>&1 </dev/null & echo $! >/run/rank.pid")
    try:
        code, report = same(fleet, server, "watch", "--attach", "--py-spy", "off")
    finally:
        for host in fleet.hosts:
            fleet.enter(host, "kill $(cat /run/rank.pid); rm /run/rank.pid")
    assert (code, findings(report)) == (10, {("smoke-rank-blocked", (fleet.hosts[1],))}), report
