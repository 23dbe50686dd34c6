"""Sick pods of many kinds in another namespace: each is one plain line, and the healthy ones beside them are checked.

Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.hosts.kubernetes.cluster import Cluster
from tests.transport.test_kubernetes_cluster import container, doctor, findings, gang, pod, template

pytestmark = pytest.mark.cluster(2)
Json = dict[str, Any]
SPACE = "team-b"
LONG = "a" * 50 + "-rank-000001x"
TOO_MUCH = {"resources": {"requests": {"cpu": "1000"}}}
SMALL = {"resources": {"limits": {"ephemeral-storage": "1Mi"}}}
FAR = {**container(), "image": "registry.invalid/train:1", "imagePullPolicy": "Always"}
DEAF = "trap '' TERM; while :; do sleep 1; done"
WAITS = "until [ -e /tmp/end ]; do sleep 0.1; done; exit $(cat /tmp/end)"


FILLS = "i=0; while [ $i -lt 100000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done >/tmp/file"


def first(command: str) -> Json:
    return {"initContainers": [container("first", command=["sh", "-c", command])]}


SICK: dict[str, tuple[Json, str]] = {
    "crashes": (
        pod("crashes", container(command=["false"])),
        # Or, where the kubelet has not told of its latest end yet: nothing can be started in it.
        (
            r"its container main (waits: CrashLoopBackOff.*; before that it ended|has ended): Error \(exit code 1\)"
            r"|its container does not run|starts no command in it"
        ),
    ),
    "no-image": (pod("no-image", FAR), r"its container main waits: (ErrImagePull|ImagePullBackOff)"),
    "too-big": (pod("too-big", container() | TOO_MUCH), r"its pod is on no node: 0/2 nodes are available: 2 Insuff"),
    "first-hangs": (pod("first-hangs", container(), **first("sleep 10000")), r"its init container first still runs"),
    "first-fails": (
        pod("first-fails", container(), **first("exit 12")),
        r"its init container first (waits: CrashLoopBackOff.*; before that it ended|has ended): Error \(exit code 12\)",
    ),
    "first-failed": (
        pod("first-failed", container(), restartPolicy="Never", **first("exit 12")),
        r"its init container first has ended: Error \(exit code 12\)",
    ),
    "evicted": (
        pod("evicted", container(command=["sh", "-c", f"{FILLS}; sleep 1000"]) | SMALL, restartPolicy="Never"),
        r"its pod has ended: Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 1Mi",
    ),
    "beside-runs": (
        pod("beside-runs", container(command=["true"]), restartPolicy="Never"),
        r"its container main has ended: Completed",
    ),
}
SICK["beside-runs"][0]["spec"]["containers"].append(container("beside"))
WELL: dict[str, Json] = {
    LONG: pod(LONG, container()),
    "two": pod("two", container()),
    "leaves": pod("leaves", container(command=["sh", "-c", DEAF]), terminationGracePeriodSeconds=600),
}
WELL["two"]["spec"]["containers"].append(container("beside", image="no-python"))
SOON = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in ("unreachable", "not-ready")
]
"""Seconds for which a pod stays on a node that is gone; without this, five minutes."""


def job(name: str, **more: Any) -> Json:
    spec = {
        "parallelism": 2,
        "completions": 4,
        "template": template({"app": name}, container(command=["sh", "-c", WAITS]), restartPolicy="Never", **more),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def furnish(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    cluster.wait(lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", SPACE).returncode == 0, "no account")
    for item in (*(item for item, _ in SICK.values()), *WELL.values()):
        item["metadata"] |= {"namespace": SPACE, "labels": {"of": "sick"}}
        cluster.apply(item)
    twin = pod("twin", container()) | {
        "metadata": {"generateName": "twin-", "namespace": SPACE, "labels": {"of": "sick"}}
    }
    for _ in range(2):
        done = cluster.kubectl("create", "-f", "-", stdin=json.dumps(twin))
        assert done.returncode == 0, done.stderr


def pods(cluster: Cluster, selector: str) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in cluster.get("pods", "-n", SPACE, "-l", selector)["items"]}


def states(item: Json) -> list[Json]:
    kinds = ("initContainerStatuses", "containerStatuses")
    return [state for kind in kinds for state in item["status"].get(kind, ())]


def settled(item: Json) -> bool:
    """It has come as far as it ever will."""
    seen = [state["state"] for state in states(item)]
    if item["metadata"]["name"] in ("crashes", "first-fails"):
        return any(state["restartCount"] for state in states(item))
    if item["metadata"]["name"] in ("first-failed", "beside-runs"):
        return any("terminated" in state for state in seen)
    if item["metadata"]["name"] == "no-image":
        return any("Image" in state.get("waiting", {}).get("reason", "") for state in seen)
    if item["metadata"]["name"] == "evicted":
        return bool(item["status"]["phase"] == "Failed")
    if item["metadata"]["name"] == "too-big":
        return any(one["type"] == "PodScheduled" for one in item["status"].get("conditions", ()))
    return any("running" in state for state in seen)


def checked(cluster: Cluster, *argv: str) -> tuple[int, Json]:
    done = doctor(cluster, "check", *argv, "--namespace", SPACE, "-s", "kernel", "--json", "--no-history")
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def unreachable(report: Json) -> dict[str, str]:
    """By host: the one line about it."""
    (found,) = (item for item in report["outcomes"] if item["check"] == "host-unreachable")
    return {host: finding["message"] for finding in found["findings"] for host in finding["hosts"]}


def test_each_sick_pod_is_named_with_its_reason_and_the_others_are_checked(cluster: Cluster) -> None:
    everybody = len(SICK) + len(WELL) + 2
    cluster.wait(lambda: sum(map(settled, pods(cluster, "of=sick").values())) == everybody, "pods do not settle")
    cluster.kubectl("delete", "pod", "leaves", "-n", SPACE, "--wait=false")
    code, report = checked(cluster, "--selector", "of=sick")
    lines = unreachable(report)
    code_of_names, by_names = checked(cluster, ",".join([*SICK, *WELL]))
    ended = {"first-failed", "evicted"}  # by labels, those that have ended are none
    assert set(lines) == set(SICK) - ended and set(unreachable(by_names)) == set(SICK), (lines, unreachable(by_names))
    assert code == code_of_names == 10
    for name, (_, text) in SICK.items():
        line = unreachable(by_names)[name]
        assert re.search(text, line) and "\n" not in line and line.isprintable(), (name, line)
        assert name in ended or re.search(text, lines[name]), (name, lines[name])
    read = next(item for item in report["outcomes"] if item["check"] == "listen-queue-short")
    assert set(WELL) < set(read["evaluated_hosts"]) and len(read["evaluated_hosts"]) == len(WELL) + 2, read


def test_the_kubelets_reason_for_an_eviction_is_the_diagnosis(cluster: Cluster) -> None:
    cluster.wait(lambda: settled(pods(cluster, "of=sick")["evicted"]), "it is not evicted")
    done = doctor(cluster, "diagnose", "evicted", "--namespace", SPACE, "--json", "--no-history")
    (cause,) = json.loads(done.stdout)["causes"]
    assert done.returncode == 10 and cause["signature"] == "kubernetes-storage-limit", done.stdout
    assert "pod evicted" in cause["summary"], cause


def test_a_pod_that_a_quota_keeps_from_being_made_is_named(cluster: Cluster) -> None:
    """It is on no list: only the StatefulSet tells of it. For a user who may not read that, the others are the job."""
    space = "team-c"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    quota = {"metadata": {"name": "two", "namespace": space}, "spec": {"hard": {"pods": "2"}}}
    cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})

    def counted() -> bool:
        return "used" in cluster.get("resourcequota", "two", "-n", space).get("status", {})

    cluster.wait(counted, "the quota does not count")
    for item in gang("short", 3):
        item["metadata"]["namespace"] = space
        cluster.apply(item)

    def two_run() -> bool:
        items = cluster.get("pods", "-n", space)["items"]
        return [item["status"]["phase"] for item in items] == ["Running"] * 2

    cluster.wait(two_run, "the pods do not run")
    argv = ("check", "--job", "short", "--namespace", space, "-s", "kernel", "--json", "--no-history")
    done = doctor(cluster, *argv)
    report = json.loads(done.stdout)
    made = {item["metadata"]["name"] for item in cluster.get("pods", "-n", space)["items"]}
    assert done.returncode == 10, done.stdout
    assert unreachable(report).keys() == {f"short-{number}" for number in range(3)} - made, report
    assert all("has no such pod" in line for line in unreachable(report).values()), report
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
    ]
    group = "rbac.authorization.k8s.io"
    about = {"apiVersion": f"{group}/v1", "metadata": {"name": "nobody", "namespace": space}}
    role = {"kind": "Role", "name": "nobody", "apiGroup": group}
    subjects = [{"kind": "User", "name": "nobody", "apiGroup": group}]
    cluster.apply({**about, "kind": "Role", "rules": rules})
    cluster.apply({**about, "kind": "RoleBinding", "subjects": subjects, "roleRef": role})
    done = doctor(cluster, *argv, user="nobody")
    assert done.returncode == 0 and set(json.loads(done.stdout)["hosts"]) == made, done.stdout + done.stderr


RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def test_pods_without_any_right_are_judged_as_far_as_any_could_be(cluster: Cluster) -> None:
    """As the restricted profile of Kubernetes has them: nothing is unknown that no user of them could read."""
    items = gang("strict", 2)
    items[1]["spec"]["template"]["spec"]["containers"][0]["securityContext"] = RESTRICTED
    cluster.apply(*items)
    cluster.wait_for_pods("app=strict", 2)
    done = doctor(cluster, "check", "--job", "strict", "--json", "--no-history")
    outcomes = json.loads(done.stdout)["outcomes"]
    assert not [item for item in outcomes if item["unknown"] or item["crashed"]], done.stdout
    of_the_template = {"folder-not-writable", "container-user-unnamed"}  # it has no volume at /tmp
    assert set(findings(done)) <= of_the_template and done.returncode == 0, done.stdout
    cluster.kubectl("delete", "statefulset", "strict", "--wait=false")


def tell(cluster: Cluster, name: str, code: int) -> None:
    done = cluster.kubectl(
        "exec", name, "-n", SPACE, "--", "sh", "-c", f"echo {code} >/tmp/end.new; mv /tmp/end.new /tmp/end"
    )
    assert done.returncode == 0, done.stderr


def test_a_job_with_pods_that_failed_succeeded_and_were_made_again(cluster: Cluster) -> None:
    cluster.apply(job("mixed"))

    def alive() -> list[str]:
        return [
            name
            for name, item in pods(cluster, "app=mixed").items()
            if item["status"]["phase"] == "Running" and all("running" in state["state"] for state in states(item))
        ]

    cluster.wait(lambda: len(alive()) == 2, "the job does not start")
    over = alive()
    for name, code in zip(over, (3, 0), strict=True):
        tell(cluster, name, code)
        cluster.wait(lambda: len(pods(cluster, "app=mixed")) > 2, "no later pod")
    cluster.wait(lambda: len(alive()) == 2 and not set(alive()) & set(over), "no later pods")
    for options in (("--job", "mixed"), ("--job", "job/mixed"), ("--selector", "app=mixed")):
        code, report = checked(cluster, *options)
        assert code == 0 and sorted(report["hosts"]) == sorted(alive()), (options, report)


def test_a_rollout_whose_pods_leave_and_whose_later_pods_do_not_start(cluster: Cluster) -> None:
    """Those that leave are no hosts once their successors are there; one that does not start is named."""

    def deployment(item: Json) -> Json:
        body = {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "rolls"}},
            "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
            "template": template({"app": "rolls"}, item, terminationGracePeriodSeconds=600),
        }
        about = {"name": "rolls", "namespace": SPACE}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": body}

    def alive() -> set[str]:
        items = pods(cluster, "app=rolls").items()
        return {
            name
            for name, item in items
            if settled(item) and item["status"]["phase"] == "Running" and not item["metadata"].get("deletionTimestamp")
        }

    deaf = container(command=["sh", "-c", DEAF])
    cluster.apply(deployment(deaf))
    cluster.wait(lambda: len(alive()) == 2, "the deployment does not start")
    before = alive()
    cluster.apply(deployment({**deaf, "env": [{"name": "REVISION", "value": "2"}]}))
    cluster.wait(lambda: len(alive()) == 2 and not alive() & before, "no later pods")
    code, report = checked(cluster, "--selector", "app=rolls")
    assert code == 0 and set(report["hosts"]) == alive(), (before, report)
    assert any("later pods stand in their place" in note for note in report["notes"]), report["notes"]
    kept = alive()
    cluster.apply(deployment({**deaf, "image": "localhost/absent:1"}))
    cluster.wait(lambda: len(pods(cluster, "app=rolls")) == len(before) + 4, "no third revision")
    code, report = checked(cluster, "--selector", "app=rolls")
    waiting = set(unreachable(report))
    assert code == 10 and len(waiting) == 2 and set(report["hosts"]) == waiting | kept, report
    cluster.kubectl("delete", "deployment", "rolls", "-n", SPACE, "--wait=false")
    cluster.kubectl("delete", "pods", "-n", SPACE, "-l", "app=rolls", "--grace-period=0", "--force", "--wait=false")


def test_a_node_that_died_and_the_pods_that_came_in_place_of_its_own(cluster: Cluster) -> None:
    """What a dead kubelet leaves is being deleted for ever; where another took over, it is no host of the job."""
    cluster.apply(job("moves", tolerations=SOON, terminationGracePeriodSeconds=5))
    cluster.wait(lambda: all(map(settled, pods(cluster, "app=moves").values())), "the job does not start")
    before = {name: item["spec"]["nodeName"] for name, item in pods(cluster, "app=moves").items()}
    dead = min(before.values())
    cluster.enter(dead, "kill", "-KILL", str(cluster.kubelet_pid(dead)))

    def left() -> set[str]:
        items = pods(cluster, "app=moves").items()
        return {name for name, item in items if item["metadata"].get("deletionTimestamp")}

    def moved() -> bool:
        items = [item for name, item in pods(cluster, "app=moves").items() if name not in left()]
        return len(items) == 2 and all(settled(item) and item["spec"]["nodeName"] != dead for item in items)

    cluster.wait(moved, "no pods on another node")
    assert left() == {name for name, node in before.items() if node == dead}
    for options in (("--job", "moves"), ("--selector", "app=moves")):
        code, report = checked(cluster, *options)
        assert code == 0 and len(report["hosts"]) == 2 and not left() & set(report["hosts"]), report
    code, report = checked(cluster, ",".join(sorted(left())), "--connect-timeout", "2")
    assert code == 10 and set(unreachable(report)) == left(), report
