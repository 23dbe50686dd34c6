"""The way to pods on a real control plane: API server, controllers, kubelets, containerd (`tests/hosts/kubernetes`).

Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.hosts.kubernetes.cluster import Cluster, programs

pytestmark = pytest.mark.cluster(2)
DOCTOR = (sys.executable, "-m", "doctor")
MOUNTS = {"usr": "/usr"}


def container(name: str = "main", image: str = "machine", command: list[str] | None = None) -> dict[str, Any]:
    mounts = [{"name": key, "mountPath": path, "readOnly": True} for key, path in MOUNTS.items() if image == "machine"]
    shm = [{"name": "shm", "mountPath": "/dev/shm"}] if image == "machine" else []
    return {
        "name": name,
        "image": f"localhost/{image}:1",
        "imagePullPolicy": "Never",
        "command": command or ["sleep", "100000"],
        "volumeMounts": [*mounts, *shm],
    }


def template(labels: dict[str, str], *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": key, "hostPath": {"path": path}} for key, path in MOUNTS.items()]
    volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}})
    spec = {"terminationGracePeriodSeconds": 0, "containers": list(containers), "volumes": volumes, **more}
    return {"metadata": {"labels": labels}, "spec": spec}


def pod(name: str, item: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = template({"app": name}, item, **more)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {"name": name, "labels": {"app": name}}}


def gang(name: str, size: int) -> list[dict[str, Any]]:
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": name}, "ports": [{"port": 1}]}
    spec = {
        "serviceName": name,
        "replicas": size,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}},
        "template": template({"app": name}, container()),
    }
    metadata = {"name": name}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec},
    ]


def furnish(cluster: Cluster) -> None:
    """The three pods of ``train``."""
    cluster.apply(*gang("train", 3))
    cluster.wait_for_pods("app=train", 3)


def doctor(cluster: Cluster, *argv: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    command = [*DOCTOR, argv[0], "--transport", "kubernetes", *argv[1:]]
    return cluster.run(command, user, timeout=300)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The failed checks of a JSON report, with their first finding."""
    outcomes = json.loads(done.stdout)["outcomes"]
    return {item["check"]: item["findings"][0] for item in outcomes if item.get("findings")}


@pytest.mark.parametrize("program", ["kubectl", str(programs() / "kubectl")], ids=["of this machine", "1.20"])
def test_check_of_a_stateful_set(cluster: Cluster, program: str) -> None:
    options = [
        "--transport",
        "kubernetes",
        "--job",
        "train",
        "-s",
        "kernel",
        "-s",
        "host-name-unresolved",
        "--no-history",
    ]
    done = cluster.run(["env", f"DOCTOR_KUBECTL={program}", *DOCTOR, "check", *options], timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 hosts from the job train of default" in done.stdout
    left = cluster.kubectl("exec", "train-0", "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout.split()
    assert "python3" not in left


def test_network_test_between_pods(cluster: Cluster) -> None:
    done = doctor(cluster, "net", "--selector", "app=train", "--no-history")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 pairs" in done.stdout


def test_attach_sees_the_processes_of_pods(cluster: Cluster) -> None:
    rank = "WORLD_SIZE=2 MASTER_ADDR=train-0.train MASTER_PORT=1 exec python3 -c 'import time; time.sleep(600)'"
    for number in range(2):
        script = f'RANK={number} setsid sh -c "{rank}" >/dev/null 2>&1 </dev/null &'
        assert cluster.kubectl("exec", f"train-{number}", "--", "sh", "-c", script).returncode == 0
    done = doctor(cluster, "watch", "--attach", "train-0,train-1", "--interval", "1", "--json")
    assert done.returncode in (0, 10, 12), done.stdout + done.stderr
    assert set(json.loads(done.stdout)["hosts"]) >= {"train-0", "train-1"}, done.stdout
    by_job = cluster.run(
        [*DOCTOR, "watch", "--attach", "--job", "k8s:default/statefulset/train", "--interval", "1", "--json"],
        timeout=300,
    )
    assert by_job.returncode == done.returncode, by_job.stdout + by_job.stderr
    report = json.loads(by_job.stdout)
    assert set(report["hosts"]) >= {"train-0", "train-1"}, by_job.stdout
    assert report["source"] == "3 hosts from the job statefulset/train of default"


def test_diagnose_by_the_jobs_name(cluster: Cluster) -> None:
    done = cluster.run([*DOCTOR, "diagnose", "--job", "k8s:default/train", "--json", "--no-history"], timeout=300)
    same = doctor(cluster, "diagnose", "--job", "train", "--json", "--no-history")
    assert (done.returncode, done.stderr) == (same.returncode, same.stderr), done.stdout
    for answer in (done, same):
        hosts = {file["host"] for file in json.loads(answer.stdout)["files"]}
        assert hosts <= {"", "train-0", "train-1", "train-2"}  # events are of no pod
    absent = cluster.run([*DOCTOR, "diagnose", "--job", "k8s:default/gone", "--no-history"], timeout=300)
    assert absent.returncode == 78, absent.stdout
    assert "--job gone: none of the" in absent.stderr


@pytest.mark.parametrize(
    ("name", "item", "text"),
    [
        ("no-python", container(image="no-python"), "there is no python3"),
        ("no-shell", container(image="pause", command=["/pause"]), "no shell"),
        ("absent-image", container(image="absent"), "ErrImageNeverPull"),
        ("done", container(command=["true"]), "its pod has ended: Completed"),
    ],
)
def test_a_pod_that_cannot_be_read_is_one_line(cluster: Cluster, name: str, item: dict[str, Any], text: str) -> None:
    cluster.apply(pod(name, item, restartPolicy="Never"))

    def settled() -> bool:
        status = cluster.get("pod", name)["status"]
        states = [state["state"] for state in status.get("containerStatuses", ())]
        reasons = [state.get("waiting", {}).get("reason", "ContainerCreating") for state in states]
        waits = any(reason != "ContainerCreating" for reason in reasons)
        return status["phase"] in (("Succeeded",) if name == "done" else ("Running", "Failed")) or waits

    cluster.wait(settled, f"{name} does not settle")
    done = doctor(cluster, "check", name, "-s", "connectivity", "--json", "--no-history")
    assert done.returncode in (10, 12), done.stderr
    assert text in done.stdout, done.stdout
    cluster.kubectl("delete", "pod", name, "--wait=false", "--grace-period=0", "--force")


ROLE = {
    "check": ({"pods": ["get", "list"], "pods/exec": ["create", "get"]}, ("check", "--job", "train", "-s", "kernel")),
    "diagnose": (
        {"pods": ["get", "list"], "pods/log": ["get"], "events": ["list"]},
        ("diagnose", "--job", "train"),
    ),
}


def bind(cluster: Cluster, rules: dict[str, list[str]]) -> None:
    """The rights of the user ``nobody``: these and no others."""
    about = {"metadata": {"name": "nobody", "namespace": "default"}}
    group = "rbac.authorization.k8s.io"
    listed = [{"apiGroups": [""], "resources": [item], "verbs": verbs} for item, verbs in rules.items() if verbs]
    subject = {"kind": "User", "name": "nobody", "apiGroup": group}
    reference = {"kind": "Role", "name": "nobody", "apiGroup": group}
    version = {"apiVersion": f"{group}/v1"}
    cluster.apply(
        {**version, "kind": "Role", **about, "rules": listed},
        {**version, "kind": "RoleBinding", **about, "subjects": [subject], "roleRef": reference},
    )


def with_kubectl_of_1_20(cluster: Cluster, *argv: str) -> str:
    """What a user says who has the role alone; newer versions of kubectl do not look at the pod first."""
    words = ["env", f"DOCTOR_KUBECTL={programs() / 'kubectl'}", *DOCTOR, argv[0], "--transport", "kubernetes"]
    done = cluster.run([*words, *argv[1:], "--no-history"], "nobody", timeout=300)
    text = done.stdout + done.stderr
    assert "forbids" not in text or done.returncode in (10, 12, 78), (done.returncode, text)
    return text


@pytest.mark.parametrize("command", ROLE)
def test_each_right_is_needed_and_no_other(cluster: Cluster, command: str) -> None:
    rules, argv = ROLE[command]
    bind(cluster, rules)
    assert "forbids" not in with_kubectl_of_1_20(cluster, *argv)
    for resource, verbs in rules.items():
        for verb in verbs:
            bind(cluster, {**rules, resource: [other for other in verbs if other != verb]})
            text = with_kubectl_of_1_20(cluster, *argv)
            needed = (resource, verb) != ("pods/exec", "get")  # kubectl from 1.31 on; earlier ones have no such request
            assert (f'forbids this user to {verb} resource "{resource}"' in text) == needed, (resource, verb, text)


def test_logs_of_a_container_that_ran_before(cluster: Cluster) -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    script = f"import sys; print({line!r}, flush=True); sys.exit(1)"
    cluster.apply(pod("crash", container(command=["python3", "-c", script])))
    cluster.wait(
        lambda: any(
            state["restartCount"] for state in cluster.get("pod", "crash")["status"].get("containerStatuses", ())
        ),
        "the container does not start again",
    )
    done = doctor(cluster, "diagnose", "crash", "--json", "--no-history")
    assert done.returncode == 10, done.stdout + done.stderr
    assert "crash" in done.stdout
    cluster.kubectl("delete", "pod", "crash", "--wait=false", "--grace-period=0", "--force")


def test_an_api_server_that_is_gone_for_a_moment(cluster: Cluster) -> None:
    cluster.kill("kube-apiserver")
    argv = ["check", "--transport", "kubernetes", "--job", "train", "-s", "kernel", "--no-history"]
    gone = cluster.run([*DOCTOR, *argv], timeout=300)
    assert gone.returncode == 78 and gone.stderr.startswith("doctor: the API server"), gone.stderr
    assert gone.stderr.count("\n") == 1
    cluster.start_apiserver()
    done = doctor(cluster, "check", "--job", "train", "-s", "kernel", "--no-history")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_kubelet_that_hangs_or_is_gone(cluster: Cluster) -> None:
    node = cluster.get("pod", "train-0")["spec"]["nodeName"]
    others = [item["metadata"]["name"] for item in cluster.get("pods", "-l", "app=train")["items"]]
    others = [name for name in others if cluster.get("pod", name)["spec"]["nodeName"] != node]
    cluster.enter(node, "kill", "-STOP", str(cluster.kubelet_pid(node)))
    try:
        argv = ("check", "--job", "train", "-s", "connectivity", "--timeout", "5", "--connect-timeout", "2")
        done = doctor(cluster, *argv, "--json", "--no-history")
    finally:
        cluster.enter(node, "kill", "-CONT", str(cluster.kubelet_pid(node)))
    failed = findings(done)["host-unreachable"]
    assert "train-0" in failed["hosts"] and not set(others) & set(failed["hosts"]), done.stdout


def by_node_pods(cluster: Cluster) -> list[str]:
    items = cluster.get("pods", "-l", "app.kubernetes.io/managed-by=cluster-doctor")["items"]
    return [item["metadata"]["name"] for item in items]


def test_nodes_by_pods_that_are_removed(cluster: Cluster) -> None:
    argv = ("check", "node1,node2", "--node-image", "localhost/no-python:1", "-s", "kernel", "--no-history")
    done = doctor(cluster, *argv)
    assert "2 hosts from the command line, each by a pod on it" in done.stdout, done.stdout + done.stderr
    assert done.returncode in (0, 10, 12)
    cluster.wait(lambda: not by_node_pods(cluster), "pods are left")


def test_pods_on_nodes_are_removed_when_doctor_is_killed(cluster: Cluster) -> None:
    options = ["--transport", "kubernetes", "--node-image", "localhost/no-python:1", "--no-history"]
    argv = [*DOCTOR, "check", "node1", *options]
    running = subprocess.Popen(
        cluster.inside(argv), env=cluster.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: bool(by_node_pods(cluster)))
    running.send_signal(signal.SIGKILL)
    running.wait()
    cluster.wait(lambda: not by_node_pods(cluster), "pods are left")


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
