"""What goes wrong while `doctor` is in pods of a real cluster: one clear line, the right code, and nothing left behind.

Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hosts.kubernetes.cluster import SERVER, Cluster
from tests.transport.test_kubernetes_cluster import DOCTOR, bind, by_node_pods, container, doctor, gang, pod, wait_until

pytestmark = pytest.mark.cluster(2)
SLOW = """\
mkdir -p /tmp/bin
cat >/tmp/bin/python3 <<'END'
#!/bin/sh
case $HOSTNAME in
*-0)
    echo >>/tmp/calls
    if [ "$(wc -l </tmp/calls)" -ge "$(cat /tmp/waits-at)" ]; then
        touch /tmp/started; until [ -e /tmp/go ]; do sleep 0.1; done
    fi
    exec /usr/bin/python3 "$@" ;;
esac
/usr/bin/python3 "$@"
code=$?
touch /tmp/done
exit $code
END
chmod 755 /tmp/bin/python3
ln -s /usr/bin/python3 /tmp/bin/rank
export WORLD_SIZE=2 MASTER_ADDR=${HOSTNAME%-*}-0 MASTER_PORT=29777
RANK=${HOSTNAME##*-} rank -c 'import threading; threading.Event().wait()' &
exec sleep 100000
"""
"""The first pod's interpreter waits until it is let go: what happens meanwhile happens in the middle of a command."""
CHECK = ("check", "--job", "slow", "-s", "kernel", "--json", "--no-history")
COMMANDS = {
    "check": (1, CHECK),
    "net": (3, ("net", "--job", "slow", "--json", "--no-history")),
    "attach": (1, ("watch", "--attach", "--job", "slow", "--interval", "15", "--json")),
}
"""And which start of an interpreter waits: that of the prober is the third, behind the two rounds of facts."""


def slow_gang(name: str, node: str) -> list[dict[str, Any]]:
    objects = gang(name, 2)
    spec = objects[1]["spec"]["template"]["spec"]
    spec["nodeName"] = node
    main = container(command=["sh", "-c", SLOW])
    main["env"] = [{"name": "PATH", "value": "/tmp/bin:/usr/sbin:/usr/bin:/sbin:/bin"}]
    spec["containers"] = [main]
    return objects


def furnish(cluster: Cluster) -> None:
    cluster.apply(*slow_gang("slow", "node1"), *slow_gang("dying", "node2"))
    cluster.wait_for_pods("app=slow", 2)
    cluster.wait_for_pods("app=dying", 2)


def at(cluster: Cluster, pod: str, script: str) -> subprocess.CompletedProcess[str]:
    return cluster.kubectl("exec", pod, "--", "sh", "-c", script)


def start(cluster: Cluster, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        cluster.inside([*DOCTOR, argv[0], "--transport", "kubernetes", *argv[1:]]),
        env=cluster.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def in_the_middle(cluster: Cluster, command: str, job: str = "slow") -> Iterator[subprocess.Popen[str]]:
    """Runs a command, which has begun in the first pod of its job and waits there."""
    call, argv = COMMANDS[command]
    for number in range(2):
        forget = f"rm -f /tmp/started /tmp/go /tmp/done /tmp/calls; echo {call} >/tmp/waits-at"
        assert at(cluster, f"{job}-{number}", forget).returncode == 0
    running = start(cluster, *(job if word == "slow" else word for word in argv))
    try:
        cluster.wait(lambda: at(cluster, f"{job}-0", "ls /tmp/started").returncode == 0, "it does not begin")
        if command == "check":
            cluster.wait(lambda: at(cluster, f"{job}-1", "ls /tmp/done").returncode == 0, "the other pod does not end")
        yield running
    finally:
        running.kill()
        running.communicate()


def let_go(cluster: Cluster) -> None:
    cluster.wait(lambda: at(cluster, "slow-0", "touch /tmp/go").returncode == 0, "no answer any more")


def answer(running: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and report."""
    out, err = running.communicate(timeout=200)
    assert out and "Traceback" not in err, (out, err)
    return running.returncode, json.loads(out)


def unreachable(report: dict[str, Any]) -> dict[str, str]:
    """By host: the one line about it."""
    found = next(item for item in report["outcomes"] if item["check"] == "host-unreachable")
    return {host: finding["message"] for finding in found["findings"] for host in finding["hosts"]}


def said(running: subprocess.Popen[str]) -> tuple[int, set[str], str]:
    """Exit code, the hosts that findings name, and every line that is said of hosts; without a report, that of why."""
    out, err = running.communicate(timeout=200)
    assert "Traceback" not in err, (out, err)
    outcomes = json.loads(out)["outcomes"] if out else []
    findings = [finding for item in outcomes for finding in item["findings"]]
    lines = [finding["message"] for finding in findings]
    lines += [f"{','.join(entry['hosts'])}: {entry['reason']}" for item in outcomes for entry in item["unknown"]]
    assert all(line.isprintable() and "doctor-in-container" not in line for line in lines), lines
    assert out or err.count("\n") == 1, err
    return running.returncode, {host for finding in findings for host in finding["hosts"]}, "\n".join([*lines, err])


def nothing_runs(cluster: Cluster, *pods: str) -> None:
    """Of what a command has started there; one that has ended waits for the first process of the pod."""
    deadline = time.monotonic() + 60
    for name in pods:
        at(cluster, name, "touch /tmp/go")
        while re.search(r"\(python3\) [^ZX]", running := at(cluster, name, "cat /proc/[0-9]*/stat").stdout):
            assert time.monotonic() < deadline, running
            time.sleep(0.5)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_api_server_that_is_slow_for_ten_seconds(cluster: Cluster, command: str) -> None:
    """The report is the one without it."""
    with in_the_middle(cluster, command) as running:
        let_go(cluster)
        expected = said(running)
    with in_the_middle(cluster, command) as running:
        cluster.kill("kube-apiserver", signal.SIGSTOP)
        try:
            time.sleep(10)  # that long it answers nothing
        finally:
            cluster.kill("kube-apiserver", signal.SIGCONT)
        let_go(cluster)
        assert said(running) == expected
    assert (expected[0] == 0 or command == "attach") and not expected[1], expected
    nothing_runs(cluster, "slow-0", "slow-1")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_api_server_that_dies_in_the_middle(cluster: Cluster, command: str) -> None:
    with in_the_middle(cluster, command) as running:
        cluster.kill("kube-apiserver")
        time.sleep(10)  # that long it is gone
        cluster.start_apiserver()
        code, blamed, lines = said(running)
    assert "the connection through the API server was cut" in lines and "slow-0" in lines, lines
    lost_all = {"check": (10, {"slow-0"}), "net": (12, set()), "attach": (78, set())}
    assert (code, blamed) == lost_all[command], lines  # of check, the other pod had answered
    nothing_runs(cluster, "slow-0", "slow-1")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["gone", "slow"])
def test_an_api_server_that_is_absent_for_ten_seconds_before_it_lists_the_pods(
    cluster: Cluster, how: signal.Signals
) -> None:
    let_go(cluster)
    cluster.kill("kube-apiserver", how)
    running = start(cluster, *CHECK, "--connect-timeout", "120")
    try:
        time.sleep(10)  # that long it answers nothing
        assert running.poll() is None, running.communicate()
    finally:
        if how == signal.SIGSTOP:
            cluster.kill("kube-apiserver", signal.SIGCONT)
        else:
            cluster.start_apiserver()
    code, report = answer(running)
    assert (code, unreachable(report)) == (0, {}), report


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pod_that_is_evicted_in_the_middle(cluster: Cluster, command: str) -> None:
    """By the API of evictions, as `kubectl drain` does."""
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "slow-0"}}
    with in_the_middle(cluster, command) as running:
        path = "/api/v1/namespaces/default/pods/slow-0/eviction"
        done = cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        assert done.returncode == 0, done.stderr
        code, blamed, lines = said(running)
    # Until the name server knows the pod that comes in its place, the other one cannot resolve that name.
    told = [line for line in lines.splitlines() if "cannot resolve slow-0" not in line]
    assert any("slow-0" in line for line in told), lines
    assert (code, blamed) == (10, {"slow-0"}) or (command != "check" and code in (10, 12)), lines
    assert not blamed - {"slow-0"} or len(told) < len(lines.splitlines()), lines
    nothing_runs(cluster, "slow-1")
    cluster.wait_for_pods("app=slow", 2)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kubelet_that_dies_in_the_middle(cluster: Cluster, command: str) -> None:
    """Both pods are on its node."""
    with in_the_middle(cluster, command, "dying") as running:
        cluster.enter("node2", "kill", "-KILL", str(cluster.kubelet_pid("node2")))
        code, blamed, lines = said(running)
    cluster.start_kubelet("node2")
    assert "the connection through the API server was cut" in lines and "dying-0" in lines, lines
    assert command != "check" or (code, blamed) == (10, {"dying-0"}), lines
    assert code in (10, 12, 78) and blamed <= {"dying-0", "dying-1"}, lines  # both are on that node
    nothing_runs(cluster, "dying-0", "dying-1")


WAITING_KUBECTL = """\
#!/bin/sh
case " $* " in *" logs "*) touch {folder}/started; until [ -e {folder}/go ]; do sleep 0.1; done ;; esac
exec kubectl "$@"
"""


@contextlib.contextmanager
def before_the_logs(cluster: Cluster, job: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A diagnosis that knows its pods, and has asked for no log yet."""
    folder = cluster.folder / "waits"
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text(WAITING_KUBECTL.format(folder=folder))
    program.chmod(0o755)
    running = subprocess.Popen(
        cluster.inside([*DOCTOR, "diagnose", "--job", f"k8s:default/{job}", "--json", "--no-history", *options]),
        env={**cluster.environment(), "DOCTOR_KUBECTL": str(program)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until((folder / "started").exists)
        yield running
    finally:
        running.kill()
        running.communicate()
        shutil.rmtree(folder)


def say(cluster: Cluster, job: str) -> None:
    """A line in the log of each pod, by its first process."""
    for number in range(2):
        assert at(cluster, f"{job}-{number}", "echo step 1 loss 2.0 >/proc/1/fd/1").returncode == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["gone", "slow"])
def test_an_api_server_that_is_absent_for_ten_seconds_before_the_logs(cluster: Cluster, how: signal.Signals) -> None:
    say(cluster, "slow")
    with before_the_logs(cluster, "slow", "--connect-timeout", "120") as running:
        cluster.kill("kube-apiserver", how)
        (cluster.folder / "waits" / "go").touch()
        time.sleep(10)
        if how == signal.SIGSTOP:
            cluster.kill("kube-apiserver", signal.SIGCONT)
        else:
            cluster.start_apiserver()
        code, report = answer(running)
    read = {file["host"] for file in report["files"] if file["host"]}
    assert (code, report["unread"], read) == (12, [], {"slow-0", "slow-1"}), report  # no line says that it ended well


def test_a_kubelet_that_dies_before_the_logs(cluster: Cluster) -> None:
    with before_the_logs(cluster, "dying") as running:
        cluster.enter("node2", "kill", "-KILL", str(cluster.kubelet_pid("node2")))
        (cluster.folder / "waits" / "go").touch()
        code, report = answer(running)
    cluster.start_kubelet("node2")
    assert code == 12 and len(report["unread"]) == 2, report
    assert all("does not reach the kubelet of its node" in line for line in report["unread"]), report


NODES = {"pods": ["create", "get", "delete"], "pods/exec": ["create", "get"]}
AMONG_NODES = ("check", "node1", "--node-image", "localhost/no-python:1", "-s", "kernel", "--no-history")


def test_each_right_for_nodes_is_needed_and_no_pod_is_left(cluster: Cluster) -> None:
    bind(cluster, NODES)
    whole = doctor(cluster, *AMONG_NODES, user="nobody")
    assert "forbids" not in whole.stdout + whole.stderr and "1 host from" in whole.stdout, whole
    for resource, verbs in NODES.items():
        for verb in verbs:
            bind(cluster, {**NODES, resource: [other for other in verbs if other != verb]})
            done = doctor(cluster, *AMONG_NODES, user="nobody")
            if (resource, verb) == ("pods/exec", "get"):
                continue  # of kubectl from 1.31 on, which falls back to the older way
            text = done.stdout + done.stderr
            assert done.returncode in (10, 12), (resource, verb, text)
            assert f'forbids this user to {verb} resource "{resource}"' in text, (resource, verb, text)
            assert "Traceback" not in text
            cluster.wait(lambda: not by_node_pods(cluster), f"pods are left without {verb} {resource}")
    wait_until(lambda: not by_node_pods(cluster))


@pytest.mark.parametrize("command", ["net", "attach"])
def test_each_right_of_the_other_commands_is_needed(cluster: Cluster, command: str) -> None:
    rules = {"pods": ["get", "list"], "pods/exec": ["create", "get"]}
    argv = [word for word in COMMANDS[command][1] if word != "--json"]
    let_go(cluster)
    for resource, verb in (("pods", "list"), ("pods/exec", "create")):
        bind(cluster, {**rules, resource: [other for other in rules[resource] if other != verb]})
        done = doctor(cluster, *argv, user="nobody")
        text = done.stdout + done.stderr
        assert done.returncode in (10, 12, 78), (verb, text)
        assert f'forbids this user to {verb} resource "{resource}"' in text and "Traceback" not in text, text


def plugin(cluster: Cluster, name: str, script: str) -> dict[str, Any]:
    """A user whose login comes from a program of its own."""
    path = cluster.folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(path)}}


CREDENTIAL = (
    """echo '{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", """
    """"status": {"token": "token-admin"}}'"""
)


def configuration(
    cluster: Cluster, user: dict[str, Any], server: dict[str, Any] | None = None, current: str = "one"
) -> str:
    """A kubeconfig with two contexts: the first leads to this cluster, the second to a closed port."""
    here = {"server": SERVER, "insecure-skip-tls-verify": True}
    clusters = {"one": server or here, "two": {**here, "server": "https://10.77.0.1:1"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": value} for name, value in clusters.items()],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "user"}} for name in clusters],
        "current-context": current,
    }
    path = cluster.folder / "other.conf"
    path.write_text(json.dumps(document))
    return str(path)


def listed(cluster: Cluster, kubeconfig: str, *options: str) -> subprocess.CompletedProcess[str]:
    let_go(cluster)
    return doctor(cluster, *CHECK[:-2], "--no-history", "--kubeconfig", kubeconfig, *options)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line."""
    assert done.returncode == 78 and not done.stdout, done
    assert done.stderr.count("\n") == 1, done
    line = done.stderr.rstrip("\n")
    assert line.startswith("doctor: ") and line.isprintable(), done
    return line


def test_a_login_by_a_program_and_a_second_context(cluster: Cluster) -> None:
    user = plugin(cluster, "login", CREDENTIAL)
    assert listed(cluster, configuration(cluster, user)).returncode == 0
    two = configuration(cluster, {"token": "token-admin"}, current="two")
    assert "refuses connections" in refusal(listed(cluster, two))
    assert listed(cluster, two, "--context", "one").returncode == 0
    assert 'context "three" does not exist' in refusal(listed(cluster, two, "--context", "three"))


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 1", "kubectl has no login for the API server"),
        ("printf '\\033[31mno\\033]0;x\\007 login\\n' >&2; exit 1", "kubectl has no login for the API server"),
        ("head -c 3000000 /dev/zero | tr '\\0' x", "kubectl has no login for the API server"),
        (CREDENTIAL.replace("token-admin", "token-expired"), "the API server does not accept this user's login"),
    ],
    ids=["fails", "escapes", "floods", "expired"],
)
def test_a_login_that_fails_is_one_line(cluster: Cluster, script: str, text: str) -> None:
    assert text in refusal(listed(cluster, configuration(cluster, plugin(cluster, "login", script))))


def test_a_program_for_the_login_that_is_not_installed(cluster: Cluster) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/nowhere/login"}}
    assert "kubectl has no login for the API server" in refusal(listed(cluster, configuration(cluster, user)))


def test_an_expired_token_and_a_wrong_authority(cluster: Cluster) -> None:
    expired = configuration(cluster, {"token": "token-expired"})
    assert "does not accept this user's login" in refusal(listed(cluster, expired))
    key, certificate = cluster.folder / "other.key", cluster.folder / "other.crt"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other", "-days", "2"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = {"server": SERVER, "certificate-authority": str(certificate)}
    wrong = configuration(cluster, {"token": "token-admin"}, server)
    assert "the API server's certificate is not accepted" in refusal(listed(cluster, wrong))


ESCAPES = r"\033[2J\033]0;owned\007"
HOSTILE = "\033[2J\033]0;owned\007[red]bold[/red] $(touch /tmp/owned) `id` " + "x" * 3000


def test_a_pod_with_hostile_texts(cluster: Cluster) -> None:
    """Annotations, environment and log: no escape of them comes out, and none is run."""
    item = container(
        command=["sh", "-c", f"printf '%b\\n' '{ESCAPES}' 'RuntimeError: NCCL error {ESCAPES}'; sleep 9999"]
    )
    item["env"] = [{"name": "HOSTILE", "value": HOSTILE}, {"name": "HCCL_CONNECT_TIMEOUT", "value": HOSTILE}]
    init = {**container("first", command=["sh", "-c", f"printf '%b' '{ESCAPES}'"]), "name": "first"}
    made = pod("hostile", item, initContainers=[init])
    made["spec"]["containers"].append(container("beside"))
    made["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": HOSTILE, "note": HOSTILE}
    cluster.apply(made)
    cluster.wait_for_pods("app=hostile", 1)
    for argv in (("check", "hostile", "-s", "kernel,versions"), ("diagnose", "hostile"), ("net", "hostile,slow-1")):
        done = doctor(cluster, *argv, "--no-history")
        text = done.stdout + done.stderr
        assert done.returncode in (0, 10, 11, 12, 78) and "Traceback" not in text, (argv, text)
        assert not {letter for letter in text if not letter.isprintable() and letter != "\n"}, (argv, text)
        assert max(map(len, text.splitlines())) < 2000, (argv, text)
    assert at(cluster, "hostile", "ls /tmp/owned").returncode != 0
    named = doctor(cluster, "check", "hostile", "--container", "beside", "-s", "kernel", "--no-history")
    assert named.returncode == 0, named
    wrong = doctor(cluster, "check", "hostile", "--container", "no\033[2Jne", "-s", "kernel", "--no-history")
    assert "\033" not in wrong.stdout + wrong.stderr and "has no container" in wrong.stdout + wrong.stderr, wrong
    cluster.kubectl("delete", "pod", "hostile", "--wait=false", "--grace-period=0", "--force")
