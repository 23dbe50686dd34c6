"""`doctor preflight --gang` in pods of a real cluster, as an init container of a StatefulSet and in indexed pods.

The control plane is 1.20, which has no Indexed mode of its own: the pods of an Indexed Job are made as its controller
would make them (host name, subdomain, JOB_COMPLETION_INDEX), that is, by document.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from typing import Any

import pytest
import yaml

from tests.hosts.kubernetes.cluster import Cluster
from tests.smoke.interpreter import ROOT, visible_folders

pytestmark = pytest.mark.cluster(2)
Json = dict[str, Any]
FOLDERS = [path for path in dict.fromkeys([*visible_folders(), str(ROOT), sys.prefix]) if not path.startswith("/usr")]
"""What doctor and its interpreter are made of, beside /usr."""
QUICK = ["--net", "off", "--select", "shm-docker-default,host-unreachable,clocks-differ,interface-mtu-differs"]


def container(command: list[str], **environ: str) -> Json:
    secret = {"name": "DOCTOR_GANG_KEY", "valueFrom": {"secretKeyRef": {"name": "gang", "key": "key"}}}
    values = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp", **environ}
    mounts: list[Json] = [
        {"name": "usr", "mountPath": "/usr", "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    mounts += [{"name": f"f{number}", "mountPath": path, "readOnly": True} for number, path in enumerate(FOLDERS)]
    return {
        "name": "doctor",
        "image": "localhost/machine:1",
        "imagePullPolicy": "Never",
        "command": command,
        "env": [secret, *({"name": name, "value": value} for name, value in values.items())],
        "volumeMounts": mounts,
    }


def preflight(*options: str) -> list[str]:
    return [sys.executable, "-m", "doctor", "preflight", "--no-history", *options]


def volumes() -> list[Json]:
    paths = {"usr": "/usr", **{f"f{number}": path for number, path in enumerate(FOLDERS)}}
    made: list[Json] = [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]
    return [*made, {"name": "shm", "emptyDir": {"medium": "Memory"}}]


def service(name: str, published: bool = True) -> Json:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": published,
        "selector": {"app": name},
        "ports": [{"port": 1}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def stateful_set(name: str, size: int, *options: str) -> list[Json]:
    waits = {**container(["sleep", "100000"]), "name": "main"}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "initContainers": [container(preflight("--gang", str(size), *options))],
        "containers": [waits],
        "volumes": volumes(),
    }
    body = {
        "serviceName": name,
        "replicas": size,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
    }
    return [service(name), {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": body}]


def indexed(name: str, index: int, size: int, *options: str, has_shm: bool = True) -> Json:
    """A pod as the controller of an Indexed Job makes it. ``has_shm``: with an emptyDir, not with 64 MB."""
    item = container(preflight("--gang", str(size), *options), JOB_COMPLETION_INDEX=str(index))
    item["volumeMounts"] = [one for one in item["volumeMounts"] if has_shm or one["name"] != "shm"]
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,  # a gang needs no right at all
        "restartPolicy": "Never",
        "hostname": f"{name}-{index}",
        "subdomain": name,
        "containers": [item],
        "volumes": volumes(),
    }
    metadata = {"name": f"{name}-{index}", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def printed() -> tuple[Json, Json]:
    """The service and the job that the page prints."""
    text = (ROOT / "doctor" / "docs" / "kubernetes.md").read_text("utf-8")
    blocks = text.split("```yaml\n")[1:]
    (objects,) = (block.partition("```")[0] for block in blocks if "completionMode: Indexed" in block)
    service, job = yaml.safe_load_all(objects)
    return service, job


def as_printed(job: Json, index: int) -> Json:
    """A pod of the job, on this machine's files in the place of the images."""
    name = job["metadata"]["name"]
    spec = copy.deepcopy(job["spec"]["template"]["spec"])
    (first,), (main,) = spec["initContainers"], spec["containers"]
    own = container([sys.executable, "-m", "doctor"], JOB_COMPLETION_INDEX=str(index))
    first |= {key: own[key] for key in ("image", "imagePullPolicy", "command")}
    first["env"] += own["env"][1:]
    first["volumeMounts"] += [mount for mount in own["volumeMounts"] if mount["name"] != "shm"]
    main |= {"image": "localhost/no-python:1", "imagePullPolicy": "Never", "command": ["sleep", "100000"]}
    spec["volumes"] += [volume for volume in volumes() if volume["name"] != "shm"]
    spec |= {"hostname": f"{name}-{index}", "terminationGracePeriodSeconds": 0}
    metadata = {"name": f"{name}-{index}", "labels": {"job-name": name, "app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def ends(cluster: Cluster, name: str, count: int, seconds: float = 150.0) -> dict[str, tuple[int, str]]:
    """By pod: exit code and line, as Kubernetes shows them, once all have ended."""
    ended: dict[str, tuple[int, str]] = {}

    def have_ended() -> bool:
        for item in cluster.get("pods", "-l", f"app={name}")["items"]:
            status = item["status"]
            states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
            over = [
                one["state"]["terminated"] for one in states if one["name"] == "doctor" and "terminated" in one["state"]
            ]
            for state in over:
                ended[item["metadata"]["name"]] = (state["exitCode"], state.get("message", "").strip())
        return len(ended) == count

    cluster.wait(have_ended, f"the gang {name} does not end: {ended}", seconds)
    return ended


def furnish(cluster: Cluster) -> None:
    """The key of its gangs."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gang"}, "stringData": {"key": "k" * 32}}
    cluster.apply(secret)


def codes(done: dict[str, tuple[int, str]]) -> set[int]:
    return {code for code, _ in done.values()}


def test_init_containers_of_a_stateful_set(cluster: Cluster) -> None:
    cluster.apply(*stateful_set("set", 3, *QUICK))
    done = ends(cluster, "set", 3)
    assert codes(done) == {0}, done
    assert len({line for _, line in done.values()}) == 1
    assert " nodes=3/3 " in done["set-0"][1]
    cluster.kubectl("delete", "statefulset", "set", "--wait=false")


def test_the_job_that_the_page_prints(cluster: Cluster) -> None:
    """Its own Secret, service and options: all checks and the network test, in healthy pods."""
    service, job = printed()
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, job]})
    accepted = cluster.kubectl("apply", "--dry-run=server", "--validate=false", "-f", "-", stdin=text)
    assert accepted.returncode == 0, accepted.stderr
    cluster.apply(service, *(as_printed(job, index) for index in range(job["spec"]["completions"])))
    done = ends(cluster, "train", job["spec"]["completions"], 300)
    logs = cluster.kubectl("logs", "train-0", "-c", "doctor").stdout
    assert codes(done) == {0}, (done, logs)
    assert " nodes=4/4 " in done["train-0"][1]
    cluster.kubectl("delete", "pods", "-l", "job-name=train", "--grace-period=0", "--force")


def test_the_pod_with_a_small_shm_is_named_in_all(cluster: Cluster) -> None:
    cluster.apply(service("shm"))
    cluster.apply(*(indexed("shm", index, 3, *QUICK, "--fail-on", "warning", has_shm=index != 1) for index in range(3)))
    done = ends(cluster, "shm", 3)
    assert codes(done) == {10}, done
    assert all("shm-docker-default:shm-1 " in line for _, line in done.values()), done


def test_a_pod_that_never_comes_and_pods_that_start_apart(cluster: Cluster) -> None:
    cluster.apply(service("apart"))
    options = (*QUICK, "--gang-wait", "30s")
    cluster.apply(indexed("apart", 1, 3, *options))
    time.sleep(5)
    cluster.apply(indexed("apart", 0, 3, *options))
    done = ends(cluster, "apart", 2)
    assert codes(done) == {10}, done
    assert all("host-unreachable:apart-2 " in line for _, line in done.values()), done
    logs = cluster.kubectl("logs", "apart-0").stdout
    assert "apart-2 (index 2)" in logs, logs


def test_a_pod_that_dies_in_the_middle_comes_again(cluster: Cluster) -> None:
    """The kubelet starts its container again, as the restart policy has it."""
    cluster.apply(service("again"))
    made = [indexed("again", index, 3, *QUICK) for index in range(3)]
    for item in made[1:2]:
        item["spec"]["restartPolicy"] = "OnFailure"
        item["spec"]["volumes"].append({"name": "mark", "emptyDir": {}})
        main = item["spec"]["containers"][0]
        main["volumeMounts"].append({"name": "mark", "mountPath": "/mark"})
        # The first time, it kills itself once it has reached its leader.
        script = (
            'test -e /mark/1 && exec "$@"; touch /mark/1; "$@" & '
            "until grep -qi ':6FE[0-3] 01 ' /proc/net/tcp; do sleep 0.1; done; kill -9 $!; exit 1"
        )
        main["command"] = ["sh", "-c", script, "sh", *main["command"]]
    cluster.apply(*made[:2])
    cluster.wait(
        lambda: any(
            one.get("restartCount")
            for item in cluster.get("pods", "-l", "app=again")["items"]
            for one in item["status"].get("containerStatuses", ())
        ),
        "no container was started again",
    )
    cluster.apply(made[2])
    done = ends(cluster, "again", 3)
    assert codes(done) == {0}, done


def test_names_that_are_not_published_are_said_so(cluster: Cluster) -> None:
    """Pods in their init containers are not ready: without publishNotReadyAddresses no name resolves."""
    objects = stateful_set("hidden", 2, *QUICK, "--gang-wait", "8s")
    objects[0] = service("hidden", published=False)
    cluster.apply(*objects)
    done = ends(cluster, "hidden", 2)
    assert {name: code for name, (code, _) in done.items()} == {"hidden-0": 10, "hidden-1": 12}
    logs = cluster.kubectl("logs", "hidden-1", "-c", "doctor", "--previous").stdout
    logs += cluster.kubectl("logs", "hidden-1", "-c", "doctor").stdout
    cluster.kubectl("delete", "statefulset", "hidden", "--wait=false")
    assert "publishNotReadyAddresses" in logs
