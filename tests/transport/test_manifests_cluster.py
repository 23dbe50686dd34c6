"""The manifests on a real control plane (`tests/hosts/kubernetes`): accepted, run, and each right that is taken away.

Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosts.kubernetes.cluster import Cluster, programs
from tests.smoke.interpreter import visible_folders
from tests.test_manifests import FOLDER, FOLDERS, IDS, objects
from tests.transport.test_kubernetes_trouble_cluster import NODES

pytestmark = pytest.mark.cluster(2)
SPACE = "cluster-doctor"
ROOT = Path(__file__).parents[2]
CONDITION = "ClusterDoctorCheckFailed"
PATIENCE = 240.0
FAULT = "-s listen-queue-short --fail-on warning --brief"
"""What the nodes check in these tests: one thing, which a namespace of the network has for itself."""
_FOLDERS = ("/usr", str(ROOT), sys.prefix, sys.base_prefix, *visible_folders(), str(programs()))
MOUNTS = [*map(Path, dict.fromkeys(_FOLDERS))]
PATH = f"{sys.prefix}/bin:{programs()}:/usr/sbin:/usr/bin:/sbin:/bin"


def rendered(cluster: Cluster, folder: str, **settings: str) -> list[dict[str, Any]]:
    """The objects of a kustomization, whose pods run on this machine's own files; ``settings``: of ConfigMaps."""
    done = cluster.kubectl("kustomize", str(FOLDER / folder))
    assert done.returncode == 0, done.stderr
    items = [item for item in yaml.safe_load_all(done.stdout) if item]
    for item in items:
        if item["kind"] == "ConfigMap":
            item["data"] |= {name: value for name, value in settings.items() if name in item["data"]}
        if item["kind"] == "CronJob":
            item["apiVersion"] = "batch/v1beta1"  # of 1.20, as the file says
        spec = item.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            on_this_machine(spec["template"]["spec"])
    return items


def on_this_machine(spec: dict[str, Any]) -> None:
    """Its image is this machine."""
    mounts = [path for path in MOUNTS if not any(path != other and path.is_relative_to(other) for other in MOUNTS)]
    spec["volumes"] = spec.get("volumes", []) + [
        {"name": f"machine{number}", "hostPath": {"path": str(path)}} for number, path in enumerate(mounts)
    ]
    for container in spec["containers"]:
        container |= {"image": "localhost/machine:1", "imagePullPolicy": "Never"}
        container["volumeMounts"] = container.get("volumeMounts", []) + [
            {"name": f"machine{number}", "mountPath": str(path), "readOnly": True} for number, path in enumerate(mounts)
        ]
        environ = [item for item in container.get("env", []) if item["name"] != "PATH"]
        wrapped = any(mount["mountPath"] == "/host-python" for mount in container["volumeMounts"])
        environ.append({"name": "PATH", "value": f"/host-python:{PATH}" if wrapped else PATH})
        container["env"] = [*environ, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]


def use(cluster: Cluster, folder: str, **settings: str) -> None:
    """Applies it, and waits until the pods of the nodes are those that it describes."""
    items = rendered(cluster, folder, **{"INTERVAL": "1", "OPTIONS": FAULT, **settings})
    cluster.apply(*[item for item in items if item["kind"] == "Namespace"])
    cluster.apply(*items)


def restart(cluster: Cluster) -> None:
    """The pods of the nodes are made anew, so that their log begins."""
    cluster.kubectl(
        "delete", "pods", "-n", SPACE, "-l", "app.kubernetes.io/name=cluster-doctor", "--grace-period=0", "--force"
    )


def condition(cluster: Cluster, node: str, kind: str = CONDITION) -> dict[str, Any]:
    items = cluster.get("node", node)["status"]["conditions"]
    return next((item for item in items if item["type"] == kind), {})


def taints(cluster: Cluster, node: str) -> list[str]:
    return sorted(item["key"] for item in cluster.get("node", node)["spec"].get("taints", []))


def labels(cluster: Cluster, node: str) -> dict[str, str]:
    return dict(cluster.get("node", node)["metadata"]["labels"])


def events(cluster: Cluster, node: str) -> list[str]:
    """The reasons of a node's events."""
    items = cluster.get("events", "-n", "default", "--field-selector", f"involvedObject.name={node}")["items"]
    return [item["reason"] for item in items]


def wait(cluster: Cluster, done: Callable[[], bool], problem: str) -> None:
    cluster.wait(done, problem, PATIENCE)


def queue(cluster: Cluster, node: str, length: int) -> None:
    """The fault, and its end."""
    done = cluster.enter(node, "sh", "-c", f"echo {length} >/proc/sys/net/core/somaxconn")
    assert done.returncode == 0, done.stderr


def log(cluster: Cluster, component: str = "nodes") -> str:
    selector = f"app.kubernetes.io/component={component}"
    return cluster.kubectl("logs", "-n", SPACE, "-l", selector, "--tail=400").stdout


@pytest.mark.parametrize("folder", FOLDERS, ids=IDS)
def test_the_api_server_accepts_it(cluster: Cluster, folder: Path) -> None:
    cluster.apply(*[item for item in rendered(cluster, "base") if item["kind"] in ("Namespace", "PriorityClass")])
    items = rendered(cluster, str(folder.relative_to(FOLDER)))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    done = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


def test_a_sick_node_shows_it_until_it_is_mended(cluster: Cluster) -> None:
    """Condition, events and, with the overlay, the taint: of the sick one alone."""
    use(cluster, "overlays/taint")
    sick, well = cluster.nodes
    cluster.kubectl("taint", "node", sick, "of-another=x:PreferNoSchedule")
    wait(cluster, lambda: condition(cluster, well).get("status") == "False", "no verdict")
    queue(cluster, sick, 16)
    try:
        wait(cluster, lambda: condition(cluster, sick).get("status") == "True", "the fault has no condition")
        shown = condition(cluster, sick)
        assert shown["reason"] == "ListenQueueShort" and "16" in shown["message"], shown
        wait(cluster, lambda: len(taints(cluster, sick)) == 2, "no taint")
        assert not taints(cluster, well) and condition(cluster, well)["status"] == "False"
        wait(cluster, lambda: "ListenQueueShort" in events(cluster, sick), "no event")
        assert "ListenQueueShort" not in events(cluster, well)
    finally:
        queue(cluster, sick, 4096)
    wait(cluster, lambda: condition(cluster, sick)["status"] == "False", "the condition stays")
    wait(cluster, lambda: taints(cluster, sick) == ["of-another"], "the taint stays, or another has gone")
    cluster.kubectl("taint", "node", sick, "of-another-")


def without(cluster: Cluster, kind: str, name: str, resource: str, verb: str) -> dict[str, Any]:
    """The role as it is, once a verb of it was taken away."""
    where = ["-n", "default"] if kind == "role" else []
    role = cluster.get(kind, name, *where)
    less = json.loads(json.dumps(role))
    for rule in less["rules"]:
        if resource in rule["resources"]:
            rule["verbs"] = [item for item in rule["verbs"] if item != verb]
    less["rules"] = [rule for rule in less["rules"] if rule["verbs"]]
    put(cluster, less)
    return dict(role)


def put(cluster: Cluster, role: dict[str, Any]) -> None:
    role = {key: value for key, value in role.items() if key in ("apiVersion", "kind", "metadata", "rules")}
    role["metadata"] = {key: value for key, value in role["metadata"].items() if key in ("name", "namespace")}
    done = cluster.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    assert done.returncode == 0, done.stderr


RIGHTS = [
    ("taint", "clusterrole", "cluster-doctor-condition", "nodes", "get"),
    ("taint", "clusterrole", "cluster-doctor-condition", "nodes/status", "patch"),
    ("taint", "clusterrole", "cluster-doctor-taint", "nodes", "patch"),
    ("taint", "role", "cluster-doctor-events", "events", "create"),
    ("gate", "clusterrole", "cluster-doctor-label", "nodes", "patch"),
]
OF_STALE = [("cluster-doctor-stale", "list"), ("cluster-doctor-stale", "get"), ("cluster-doctor-label", "patch")]
OF_IDLE = ("cluster-doctor-idle", "pods", "list")


def test_each_right_that_the_manifests_give_is_taken_away_somewhere() -> None:
    tried = {(name, resource, verb) for _, _, name, resource, verb in RIGHTS} | {OF_IDLE}
    tried |= {(name, "nodes", verb) for name, verb in OF_STALE}
    tried |= {("fleet", resource, verb) for resource, verbs in NODES.items() for verb in verbs}
    given = {
        (item["metadata"]["name"], resource, verb)
        for _, item in objects()
        for rule in item.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given == tried


@pytest.mark.parametrize(("overlay", "kind", "name", "resource", "verb"), RIGHTS)
def test_each_right_is_needed(cluster: Cluster, overlay: str, kind: str, name: str, resource: str, verb: str) -> None:
    other = "label" if overlay == "taint" else "taint"
    cluster.kubectl("delete", "clusterrolebinding", f"cluster-doctor-{other}", "--ignore-not-found")
    use(cluster, f"overlays/{overlay}")
    whole = without(cluster, kind, name, resource, verb)
    sick = cluster.nodes[0]
    line = f'doctor: --notify kubernetes: not sent: the API server forbids this user to {verb} resource "{resource}"\n'
    try:
        restart(cluster)
        wait(cluster, lambda: log(cluster).count("this host alone") >= len(cluster.nodes), "no run of the new pods")
        queue(cluster, sick, 16)  # only now: an event is sent once, and the pods before these would have tried it
        wait(cluster, lambda: line in log(cluster), f"no line about {verb} {resource}")
        assert "Traceback" not in log(cluster)
    finally:
        put(cluster, whole)
        queue(cluster, sick, 4096)
    wait(cluster, lambda: condition(cluster, sick).get("status") == "False", "the condition stays")


def test_a_node_is_not_taken_for_idle_without_the_right_to_list_its_pods(cluster: Cluster) -> None:
    use(cluster, "overlays/idle", OPTIONS="--brief")
    whole = without(cluster, "clusterrole", *OF_IDLE)
    try:
        restart(cluster)
        line = 'the API server forbids this user to list resource "pods"'
        wait(cluster, lambda: line in log(cluster, "training"), "no line")
        text = log(cluster, "training")
        assert "Traceback" not in text and "ranks" not in text, text
    finally:
        put(cluster, whole)
        cluster.kubectl("delete", "daemonset", "training", "nodes", "-n", SPACE)


def gated(name: str, file: str) -> dict[str, Any]:
    """A gang of two, on nodes that the file accepts, one on each."""
    spec: dict[str, Any] = yaml.safe_load((FOLDER / "overlays" / "gate" / file).read_text("utf-8"))
    apart = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
    spec["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    spec["containers"] = [
        {"name": "main", "image": "localhost/no-python:1", "imagePullPolicy": "Never", "command": ["sleep", "1000"]}
    ]
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    job = {"parallelism": 2, "completions": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}


def placed(cluster: Cluster, name: str) -> list[str]:
    """The nodes of its pods that have one, once the scheduler has looked at each."""

    def looked_at() -> bool:
        items = cluster.get("pods", "-l", f"app={name}")["items"]
        return len(items) == 2 and all(item["status"].get("conditions") for item in items)

    wait(cluster, looked_at, f"the pods of {name} are not scheduled")
    items = cluster.get("pods", "-l", f"app={name}")["items"]
    return sorted(item["spec"]["nodeName"] for item in items if "nodeName" in item["spec"])


def test_the_gate_fails_closed_or_open_as_it_is_told(cluster: Cluster) -> None:
    use(cluster, "overlays/gate")
    sick, well = cluster.nodes
    queue(cluster, sick, 16)
    state = {}

    def both() -> bool:
        state.update({node: labels(cluster, node).get("cluster-doctor.dev/check") for node in cluster.nodes})
        return state == {sick: "failed", well: "healthy"}

    try:
        wait(cluster, both, "no labels")
        for name, file in (("closed", "closed.yaml"), ("open", "open.yaml")):
            cluster.apply(gated(name, file))
            assert placed(cluster, name) == [well]
        queue(cluster, sick, 4096)
        for name in ("closed", "open"):  # the rest of the gang follows once its node is well
            wait(cluster, lambda name=name: placed(cluster, name) == [sick, well], f"{name} waits")  # type: ignore[misc]
    finally:
        queue(cluster, sick, 4096)
        cluster.kubectl("delete", "job", "closed", "open", "--wait=true")


def start_stale(cluster: Cluster) -> None:
    """The CronJob's job, now."""
    schedule = next(item for item in rendered(cluster, "overlays/gate", MAX_AGE="60") if item["kind"] == "CronJob")
    about = {"name": "stale-now", "namespace": SPACE}
    spec = schedule["spec"]["jobTemplate"]["spec"]
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec})


@pytest.mark.parametrize(("name", "verb"), OF_STALE)
def test_each_right_of_the_job_for_stale_labels_is_needed(cluster: Cluster, name: str, verb: str) -> None:
    use(cluster, "overlays/gate")
    cluster.kubectl("delete", "daemonset", "nodes", "-n", SPACE)
    dead = ("cluster-doctor.dev/check-time=1000", "cluster-doctor.dev/check=healthy")
    cluster.kubectl("label", "node", cluster.nodes[0], *dead, "--overwrite")
    whole = without(cluster, "clusterrole", name, "nodes", verb)
    try:
        start_stale(cluster)
        wait(cluster, lambda: f'cannot {verb} resource "nodes"' in log(cluster, "stale"), f"no line about {verb}")
        assert labels(cluster, cluster.nodes[0])["cluster-doctor.dev/check"] == "healthy"
    finally:
        put(cluster, whole)
        cluster.kubectl("delete", "job", "-n", SPACE, "stale-now")


def test_a_verdict_that_is_too_old_is_not_a_good_one(cluster: Cluster) -> None:
    """The doctor of one node is dead: its label is stale, and only the gate that fails open lets pods on it."""
    use(cluster, "overlays/gate", MAX_AGE="60")
    dead, well = cluster.nodes
    wait(cluster, lambda: "cluster-doctor.dev/check-time" in labels(cluster, well), "no labels")
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": well}}}}}
    cluster.kubectl("patch", "daemonset", "nodes", "-n", SPACE, "-p", json.dumps(selector))
    wait(cluster, lambda: len(pods(cluster, "nodes")) == 1, "the doctor of a node goes on")
    cluster.kubectl(
        "label", "node", dead, "cluster-doctor.dev/check-time=1000", "cluster-doctor.dev/check=healthy", "--overwrite"
    )
    start_stale(cluster)
    try:
        wait(cluster, lambda: labels(cluster, dead)["cluster-doctor.dev/check"] == "stale", "the label stays")
        assert labels(cluster, well)["cluster-doctor.dev/check"] == "healthy"
        for name, nodes in (("closed", [well]), ("open", [dead, well])):
            cluster.apply(gated(name, f"{name}.yaml"))
            wait(cluster, lambda name=name, nodes=nodes: placed(cluster, name) == nodes, name)  # type: ignore[misc]
    finally:
        cluster.kubectl("delete", "job", "closed", "open", "--wait=true")
        cluster.kubectl("delete", "job", "-n", SPACE, "stale-now")
        cluster.kubectl("delete", "daemonset", "nodes", "-n", SPACE)


def pods(cluster: Cluster, component: str) -> list[dict[str, Any]]:
    items = cluster.get("pods", "-n", SPACE, "-l", f"app.kubernetes.io/component={component}")["items"]
    return [item for item in items if not item["metadata"].get("deletionTimestamp")]


def advertise(cluster: Cluster, node: str, resource: str) -> None:
    """Eight devices, as Kubernetes' page "Advertise Extended Resources for a Node" has it."""
    patch = json.dumps([{"op": "add", "path": f"/status/capacity/{resource}", "value": "8"}])
    done = cluster.kubectl("patch", "node", node, "--subresource=status", "--type=json", "--patch", patch)
    assert done.returncode == 0, done.stderr


def test_an_idle_node_is_trained_on_and_never_beside_a_job(cluster: Cluster) -> None:
    busy, idle = cluster.nodes
    advertise(cluster, busy, "nvidia.com~1gpu")
    job = gated("job", "open.yaml")["spec"]["template"]["spec"]
    job["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": job})
    wait(cluster, lambda: cluster.get("pod", "job")["spec"].get("nodeName") == busy, "the job is not placed")
    short = "--ranks-per-host 1 --steps 1 --layout dp=1 --brief --on-unknown ok"
    use(cluster, "overlays/idle", OPTIONS=short)
    kind = "ClusterDoctorSmokeFailed"
    wait(cluster, lambda: condition(cluster, idle, kind).get("status") == "False", "the idle node is not tested")
    line = f"doctor: --when-idle {busy}: nothing is tested beside the pod default/job (nvidia.com/gpu)\n"
    wait(cluster, lambda: line in log(cluster, "training"), "no line about the busy node")
    assert not condition(cluster, busy, kind)
    cluster.kubectl("delete", "pod", "job", "--grace-period=0", "--force")
    wait(cluster, lambda: condition(cluster, busy, kind).get("status") == "False", "it is not tested by itself")
    cluster.kubectl("delete", "daemonset", "training", "nodes", "-n", SPACE)


def test_a_job_for_one_run_of_the_fleet(cluster: Cluster) -> None:
    use(cluster, "overlays/fleet", HOSTS="node[1-2]", NODE_IMAGE="localhost/no-python:1", OPTIONS=FAULT)
    cluster.kubectl("delete", "daemonset", "nodes", "-n", SPACE)
    queue(cluster, cluster.nodes[0], 16)
    try:
        wait(cluster, lambda: bool(cluster.get("job", "fleet", "-n", SPACE)["status"].get("conditions")), "it goes on")
        text = log(cluster, "fleet")
        assert "listen-queue-short on node1" in text and "2 hosts" in text, text
        assert "not sent" not in text, text
        left = cluster.get("pods", "-n", SPACE, "-l", "app.kubernetes.io/managed-by=cluster-doctor")["items"]
        assert not [item for item in left if not item["metadata"].get("deletionTimestamp")]
    finally:
        queue(cluster, cluster.nodes[0], 4096)


def test_all_checks_of_a_node_by_privileged_pods(cluster: Cluster) -> None:
    """They read what a container cannot: the node's firewall."""
    use(cluster, "overlays/host", OPTIONS="-s firewall,kernel --brief --json --quiet")
    found: list[str] = []

    def is_reported() -> bool:
        """Whole: while it is being written the log has its beginning."""
        found.extend(text for text in documents(log(cluster)) if '"outcomes"' in text)
        return bool(found)

    wait(cluster, is_reported, "no report")
    states = {item["check"]: item["status"] for item in json.loads(found[0])["outcomes"]}
    assert states["firewall-blocks-job"] in ("passed", "skipped"), states
    cluster.kubectl("delete", "daemonset", "nodes", "-n", SPACE)


def documents(text: str) -> list[str]:
    """The JSON documents of a log, one a pass."""
    parts = text.split("\n{\n")
    return [part if part.startswith("{") else "{\n" + part for part in parts if part.strip().endswith("}")]


def test_metrics_are_where_node_exporter_reads_them(cluster: Cluster) -> None:
    use(
        cluster,
        "overlays/prometheus",
        OPTIONS="-s listen-queue-short --quiet -f prometheus=/metrics/cluster-doctor.prom",
    )
    path = "/var/lib/node_exporter/textfile_collector/cluster-doctor.prom"
    wait(cluster, lambda: "doctor_host_healthy" in cluster.enter("node1", "cat", path).stdout, "no metrics")
    cluster.kubectl("delete", "daemonset", "nodes", "-n", SPACE)
    began = time.monotonic()
    wait(cluster, lambda: not pods(cluster, "nodes"), "the pods stay")
    assert time.monotonic() - began < PATIENCE
