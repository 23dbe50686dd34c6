"""smoke, net, watch --attach and diagnose in pods of a real cluster, healthy, sick, and with one that dies meanwhile.

The pods are emulated as test hosts are (`tests/hosts/kubernetes/pod_hosts.py`). Runs with ``--full``, and whenever
KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled. `test_kubernetes_hosts.py` holds
the same commands to their reports over SSH in every run of the tests.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import PREPARED
from tests.hosts.kubernetes.cluster import Cluster
from tests.hosts.kubernetes.pod_hosts import PodHosts, pod_hosts
from tests.smoke.interpreter import ROOT, visible_folders
from tests.smoke.test_hosts import AT_A_CALL, drop
from tests.transport.test_kubernetes_cluster import bind, container, pod
from tests.transport.test_kubernetes_hosts import SLEEPS, SMOKE, WAITS, findings, unknown

pytestmark = pytest.mark.cluster(3)
Json = dict[str, Any]
PODS = ("--transport", "kubernetes", "--selector", "app=sb")
LONG = ("--budget", "300")
"""Of a training on a busy machine."""


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[PodHosts]:
    with pod_hosts(cluster, {"*": PREPARED}, visible_folders()) as made:
        yield made


def run(pods: PodHosts, *words: str, user: str = "admin", strike: str = "") -> tuple[int, Json]:
    """Exit code and report of a command in these pods; ``strike``: text for the program of smoke's ranks."""
    file = pods.cluster.folder / "strike.py"
    file.write_text(strike)
    program = ["tests.smoke.faulty", str(file)] if strike else ["doctor"]
    more = ["--json", *([] if words[0] == "watch" else ["--no-history"])]
    argv = [sys.executable, "-m", *program, words[0], *PODS, *words[1:], *more]
    done = subprocess.run(
        pods.cluster.inside(argv),
        env=pods.cluster.environment(user),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def ranks_left(pods: PodHosts) -> list[str]:
    look = "grep -l -a DOCTOR_SMOKE= /proc/[0-9]*/environ 2>/dev/null || true"
    return [host for host in pods.hosts if pods.run(host, look).stdout.strip()]


def address(pods: PodHosts, host: str) -> str:
    return str(pods.cluster.get("pod", host)["status"]["podIP"])


def test_training(pods: PodHosts) -> None:
    code, report = run(pods, "smoke", *SMOKE, *LONG)
    assert (code, findings(report), ranks_left(pods)) == (0, set(), []), report
    assert [host["host"] for host in report["smoke"]["hosts"]] == list(pods.hosts)


def test_training_over_a_link_that_drops_everything(pods: PodHosts) -> None:
    _, second, third = pods.hosts
    rules = drop(f"ip saddr {address(pods, third)} drop")
    try:
        code, report = run(pods, "smoke", *SMOKE, *LONG, strike=AT_A_CALL.format(rank=1, command=rules))
    finally:
        pods.run(second, "nft delete table inet strike")
    assert (code, findings(report)) == (10, {("smoke-network-silent", (second, third))}), report
    assert not ranks_left(pods)


def network_report(pods: PodHosts) -> tuple[int, Json]:
    """Once more, where a starved machine kept the answers from coming: that is unknown, and rightly so."""
    code, report = run(pods, "net")
    return run(pods, "net") if unknown(report) else (code, report)


def test_the_network_and_a_port_that_is_blocked(pods: PodHosts) -> None:
    code, report = network_report(pods)
    assert (code, findings(report)) == (0, set()), report
    second = pods.hosts[1]
    rules = "table inet f { chain c { type filter hook input priority 0; tcp dport != 22 drop; }; }"
    pods.run(second, f"nft '{rules}'")
    try:
        code, report = network_report(pods)
    finally:
        pods.run(second, "nft delete table inet f")
    assert code == 10 and {hosts for _, hosts in findings(report)} == {(second,)}, report


def test_the_rank_that_sleeps(pods: PodHosts) -> None:
    for rank, (host, program) in enumerate(zip(pods.hosts, (WAITS, SLEEPS, WAITS), strict=True)):
        start = f"RANK={rank} WORLD_SIZE=3 MASTER_PORT=29777 setsid python3 -c {shlex.quote(program)}"
        pods.run(host, f"{start} >/dev/null 2>&1 </dev/null & echo $! >/run/rank.pid")
    try:
        code, report = run(pods, "watch", "--attach", "--py-spy", "off")
    finally:
        for host in pods.hosts:
            pods.run(host, "kill $(cat /run/rank.pid); rm /run/rank.pid")
    assert (code, findings(report)) == (10, {("smoke-rank-blocked", (pods.hosts[1],))}), report


RIGHTS = (("pods", "list"), ("pods/exec", "create"))


@pytest.mark.parametrize(("resource", "verb"), RIGHTS)
def test_training_without_a_right(pods: PodHosts, resource: str, verb: str) -> None:
    """One clear line, and the code of a run that could not be made or that reached no host."""
    rules = {"pods": ["get", "list"], "pods/exec": ["create", "get"]}
    bind(pods.cluster, {**rules, resource: [other for other in rules[resource] if other != verb]})
    argv = [sys.executable, "-m", "doctor", "smoke", *PODS, *SMOKE, "--no-history"]
    done = pods.cluster.run(argv, "nobody", timeout=300)
    text = done.stdout + done.stderr
    assert done.returncode in (10, 12, 78) and "Traceback" not in text, text
    assert f'forbids this user to {verb} resource "{resource}"' in text, text


def test_least_rights_are_enough_for_training(pods: PodHosts) -> None:
    bind(pods.cluster, {"pods": ["get", "list"], "pods/exec": ["create", "get"]})
    code, report = run(pods, "smoke", *SMOKE, *LONG, user="nobody")
    assert (code, findings(report)) == (0, set()), report


LOGS = {
    "fails-0": "step 1 loss 2.0\nstep 2 loss 1.9\n",
    "fails-1": (
        "Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.2 GiB is free.\n"
    ),
}


def test_the_cause_in_the_log_of_an_earlier_container(cluster: Cluster) -> None:
    for name, text in LOGS.items():
        sick = name == "fails-1"
        again = "test -e /mark/1 && echo step 1 loss 2.0 && exec sleep 100000; touch /mark/1"
        say = f"printf %s {shlex.quote(text)}"
        main = container(command=["sh", "-c", f"{again}; {say}; exit 1" if sick else f"{say}; sleep 100000"])
        made = pod(name, main, restartPolicy="Always")
        made["metadata"]["labels"]["job"] = "fails"
        made["spec"]["volumes"].append({"name": "mark", "emptyDir": {}})
        made["spec"]["containers"][0]["volumeMounts"].append({"name": "mark", "mountPath": "/mark"})
        cluster.apply(made)
    cluster.wait(
        lambda: any(
            state["restartCount"] for state in cluster.get("pod", "fails-1")["status"].get("containerStatuses", ())
        ),
        "no container was started again",
    )
    argv = ["diagnose", "--transport", "kubernetes", "--selector", "job=fails", "--json", "--no-history"]
    done = cluster.run([sys.executable, "-m", "doctor", *argv], timeout=300)
    assert done.returncode == 10 and "fails-1:main.previous.log" in done.stdout, done.stdout + done.stderr
    cause = json.loads(done.stdout)["causes"][0]
    assert "fails-1" in json.dumps(cause) and "memory" in json.dumps(cause), cause
    node = cluster.get("pod", "fails-1")["spec"]["nodeName"]
    removed = cluster.enter(node, "sh", "-c", "rm /var/log/pods/default_fails-1_*/main/0.log")
    assert removed.returncode == 0, removed.stderr
    done = cluster.run([sys.executable, "-m", "doctor", *argv], timeout=300)
    unread = json.loads(done.stdout)["unread"]
    assert done.returncode == 12, done.stdout  # and not that it ended well
    assert unread == ["the logs of fails-1: main.previous.log: its node has it no longer"], unread


def told(report: Json) -> list[str]:
    """What a report says of hosts, in words."""
    lines = [finding["message"] for outcome in report["outcomes"] for finding in outcome["findings"]]
    reasons = {f"{entry['hosts']}: {entry['reason']}": 0 for item in report["outcomes"] for entry in item["unknown"]}
    return [*lines, *reasons, *report["notes"]]


def struck(pods: PodHosts, trouble: Callable[[], None], meanwhile: str = "") -> tuple[int, Json]:
    """A training of some seconds, with trouble once a rank is in the midst of it, and what that rank does then."""
    second = pods.hosts[1]
    pods.run(second, "rm -f /run/now")
    strike = AT_A_CALL.format(rank=1, command=f"touch /run/now; {meanwhile}")
    with ThreadPoolExecutor(1) as background:
        answer = background.submit(run, pods, "smoke", *SMOKE, *LONG, "--for", "30s", strike=strike)
        pods.cluster.wait(
            lambda: answer.done() or pods.run(second, "test -e /run/now").returncode == 0, "no rank trains"
        )
        trouble()
        return answer.result(500)


def end_of_ranks(pods: PodHosts, *beside: str) -> None:
    pods.cluster.wait(lambda: not set(ranks_left(pods)) - set(beside), "ranks are left", 60)


def test_training_while_the_api_server_is_slow_for_ten_seconds(pods: PodHosts) -> None:
    def slow() -> None:
        pods.cluster.kill("kube-apiserver", signal.SIGSTOP)
        time.sleep(10)
        pods.cluster.kill("kube-apiserver", signal.SIGCONT)

    code, report = struck(pods, slow)
    assert (code, findings(report)) == (0, set()), told(report)
    end_of_ranks(pods)


def test_training_while_the_api_server_dies(pods: PodHosts) -> None:
    """All are lost at once, which is no fault of theirs: the way to them is named, and they end by themselves."""

    def gone() -> None:
        pods.cluster.kill("kube-apiserver")
        time.sleep(10)
        pods.cluster.start_apiserver()

    code, report = struck(pods, gone)
    lines = told(report)
    assert code in (10, 12) and any("through the API server was cut" in line for line in lines), (code, lines)
    assert all("\n" not in line for line in lines), lines
    end_of_ranks(pods)


def test_training_while_a_kubelet_dies(pods: PodHosts) -> None:
    third, node = pods.hosts[2], pods.cluster.nodes[2]

    def dies() -> None:
        pods.cluster.enter(node, "kill", "-KILL", str(pods.cluster.kubelet_pid(node)))

    code, report = struck(pods, dies)
    pods.cluster.start_kubelet(node)
    assert code == 10 and {host for _, hosts in findings(report) for host in hosts} == {third}, (code, told(report))
    end_of_ranks(pods)


def evict(pods: PodHosts, name: str) -> None:
    """As `kubectl drain` does."""
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    done = pods.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    assert done.returncode == 0, done.stderr


def delete(pods: PodHosts, name: str) -> None:
    pods.cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force")


@pytest.mark.parametrize("end", [evict, delete])
def test_training_in_a_pod_that_dies_in_the_middle(pods: PodHosts, end: Callable[[PodHosts, str], None]) -> None:
    second = pods.hosts[1]
    try:
        code, report = struck(pods, lambda: end(pods, second), "sleep 100")
        assert code == 10 and {host for _, hosts in findings(report) for host in hosts} == {second}, (
            code,
            told(report),
        )
        end_of_ranks(pods, second)
    finally:
        pods.cluster.wait(lambda: pods.cluster.kubectl("get", "pod", second).returncode != 0, "the pod stays")
        pods.start()
