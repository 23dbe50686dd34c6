"""Jobs of controllers that are newer than the test cluster, or no part of Kubernetes: found by name, and as gangs.

By document: the pods are those that the controller of each kind makes (sources: `jobs.toml` of the transport, and each
function here), owned by an object of a kind that this API server does not know. Pods, names, services, and the Jobs and
StatefulSets in between are real. Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that
``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.hosts.kubernetes.cluster import Cluster
from tests.preflight.test_gang_cluster import container, preflight, service, volumes
from tests.preflight.test_gang_cluster import furnish as give_key
from tests.transport.test_kubernetes_cluster import doctor

pytestmark = pytest.mark.cluster(2)
Json = dict[str, Any]
OWNERS = {
    "js": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "lw": ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    "pt": ("kubeflow.org/v1", "PyTorchJob"),
    "mp": ("kubeflow.org/v2beta1", "MPIJob"),
    "vc": ("batch.volcano.sh/v1alpha1", "Job"),
    "ac": ("mindxdl.gitee.com/v1", "AscendJob"),
    "at": ("mindxdl.gitee.com/v1", "AscendJob"),
    "ah": ("mindxdl.gitee.com/v1", "AscendJob"),
    "ph": ("kubeflow.org/v1", "PyTorchJob"),
    "ray": ("ray.io/v1", "RayCluster"),
}
"""Of the object that a user makes, and that owns what is made for it."""
QUIET = ["sleep", "100000"]
QUICK = ["--net", "off", "--select", "shm-docker-default,host-unreachable,host-name-unresolved,interface-mtu-differs"]
PORTS = range(28640, 28644)
CLUSTER_IPS = {"at-master-0": "10.96.4.7", "ah-master-0": "10.96.4.8"}


def in_gang(size: str) -> list[str]:
    """The line of a job whose pods check each other first; here they stay, so that they can be looked at."""
    script = '"$@"; echo "ended with $?"; exec sleep 100000'
    return ["sh", "-c", script, "sh", *preflight("--gang", size, *QUICK)]


def member(name: str, labels: Json, command: list[str], environ: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod, as a controller makes it; ``environ``: what that controller gives to its containers."""
    body = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [container(command, **(environ or {}))],
        "volumes": volumes(),
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": body}


def named_service(name: str, labels: Json) -> Json:
    return {**service(name), "spec": {**service(name)["spec"], "selector": labels}}


def real_job(name: str, item: Json, count: int, **spec: Any) -> Json:
    template = {"metadata": {"labels": item["metadata"]["labels"]}, "spec": item["spec"]}
    body = {"parallelism": count, "completions": count, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def job_set() -> list[Json]:
    """Its child is an Indexed Job, whose pods are made before it: it takes them over, by their labels."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    labels |= {"job-name": "js-workers-0"}
    pods = [
        member(
            f"js-workers-0-{index}-abcde",
            labels,
            in_gang("2"),
            {"JOB_COMPLETION_INDEX": str(index)},
            hostname=f"js-workers-0-{index}",
            subdomain="js",
        )
        for index in range(2)
    ]
    selector = {"manualSelector": True, "selector": {"matchLabels": {"job-name": "js-workers-0"}}}
    child = real_job("js-workers-0", pods[0], 2, **selector)
    return [named_service("js", {"jobset.sigs.k8s.io/jobset-name": "js"}), *pods, child]


def leader_worker_set() -> list[Json]:
    """Two StatefulSets; that of the workers counts from 1, which this version cannot: that pod is made alone."""
    labels = {"leaderworkerset.sigs.k8s.io/name": "lw", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    environ = {"LWS_LEADER_ADDRESS": "lw-0.lw.default", "LWS_GROUP_SIZE": "2"}
    leader = member("", labels, in_gang("auto"), {**environ, "LWS_WORKER_INDEX": "0"}, restartPolicy="Always")
    body = {
        "serviceName": "lw",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": leader["spec"]},
    }
    worker = member(
        "lw-0-1",
        {"leaderworkerset.sigs.k8s.io/name": "lw", "leaderworkerset.sigs.k8s.io/worker-index": "1"},
        in_gang("auto"),
        {**environ, "LWS_WORKER_INDEX": "1"},
        hostname="lw-0-1",
        subdomain="lw",
    )
    group = named_service("lw", {"leaderworkerset.sigs.k8s.io/name": "lw"})
    return [group, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "lw"}, "spec": body}, worker]


def on_nodes(number: int) -> Json:
    """What else is in the spec of a pod on the network of its node."""
    return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "nodeName": f"node{number + 1}"}


def pytorch_job(job: str = "pt", of_nodes: bool = False) -> list[Json]:
    """Each pod has a service of its own name: pkg/controller.v1/pytorch/envvar.go."""
    made = []
    for rank, name in enumerate((f"{job}-master-0", f"{job}-worker-0")):
        labels = {"training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-type": name.split("-")[1]}
        environ = {"PET_NNODES": "2", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "1", "RANK": str(rank)}
        environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": f"{job}-master-0", "MASTER_PORT": "23456"}
        spec = on_nodes(rank) if of_nodes else {}
        made += [member(name, labels, in_gang("auto"), environ, **spec), named_service(name, labels)]
    return made


def mpi_job() -> list[Json]:
    """The launcher is a Job: pkg/controller/mpi_job_controller.go (newWorker, newLauncherJob)."""
    about = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "mp"}
    workers = about | {"training.kubeflow.org/job-role": "worker"}
    pods = [
        member(f"mp-worker-{number}", workers, in_gang("2"), hostname=f"mp-worker-{number}", subdomain="mp-worker")
        for number in range(2)
    ]
    launcher = member("", about | {"training.kubeflow.org/job-role": "launcher"}, QUIET)
    return [*pods, named_service("mp-worker", workers), real_job("mp-launcher", launcher, 1)]


def volcano_job() -> list[Json]:
    """With the plugins env and svc: pkg/controllers/job/plugins, pkg/controllers/job/job_controller_util.go."""
    environ = {"VC_MASTER_HOSTS": "vc-master-0.vc", "VC_WORKER_HOSTS": "vc-worker-0.vc", "VC_TASK_INDEX": "0"}
    environ |= {"VK_TASK_INDEX": "0", "VC_MASTER_NUM": "1", "VC_WORKER_NUM": "1"}
    labels = {"volcano.sh/job-name": "vc", "volcano.sh/job-namespace": "default"}
    pods = [
        member(name, labels, in_gang("auto"), environ, hostname=name, subdomain="vc")
        for name in ("vc-master-0", "vc-worker-0")
    ]
    return [*pods, named_service("vc", labels)]


def ascend_job() -> list[Json]:
    """Of MindSpore: the scheduler is a pod without NPUs."""
    about = {"job-name": "ac", "group-name": "mindxdl.gitee.com"}
    names = {"ac-scheduler-0": "scheduler", "ac-worker-0": "worker", "ac-worker-1": "worker"}
    return [member(name, about | {"replica-type": role}, QUIET) for name, role in names.items()]


def ascend_job_of_pytorch(job: str = "at", workers: int = 2, of_nodes: bool = False) -> list[Json]:
    """The first pod has a service, with the ports that its container declares; the others have none.

    ascend-operator/pkg/controllers/v1/service.go (genService, GetPortsFromJob), env.go (setPytorchEnv, setCommonEnv).
    """
    address = CLUSTER_IPS[f"{job}-master-0"]
    ports = [{"name": "ascendjob-port", "port": 2222}, *({"name": f"gang-{port}", "port": port} for port in PORTS)]
    first = {"job-name": job, "training.kubeflow.org/replica-type": "master"}
    environ = {"MINDX_TASK_ID": "6a8f", "MASTER_ADDR": address, "MASTER_PORT": "2222", "LOCAL_WORLD_SIZE": "8"}
    environ |= {"WORLD_SIZE": str(8 + 8 * workers), "LOCAL_RANK": "0,1,2,3,4,5,6,7"}
    environ |= {"HostNetwork": str(of_nodes).lower()}
    pods = []
    for rank, name in enumerate((f"{job}-master-0", *(f"{job}-worker-{number}" for number in range(workers)))):
        labels = {**first, "training.kubeflow.org/replica-type": name.split("-")[1]}
        spec = {**on_nodes(rank), "dnsPolicy": "ClusterFirst"} if of_nodes else {}
        pods.append(member(name, labels, in_gang("auto"), {**environ, "RANK": str(rank)}, **spec))
    about = {"name": f"{job}-master-0"}
    spec = {"selector": first, "ports": ports, "clusterIP": address}
    return [*pods, {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}]


def serve(cluster: Cluster, pod: str) -> None:
    """Leads the service of an AscendJob to its pod, in the place of kube-proxy: the ports that it has, no others."""
    address = ""

    def has_address() -> bool:
        nonlocal address
        address = cluster.get("pod", pod)["status"].get("podIP", "")
        return bool(address)

    cluster.wait(has_address, f"{pod} has no address")
    ports = f"{PORTS[0]}-{PORTS[-1]}"
    for node in cluster.nodes:
        for chain in ("prerouting", "output"):
            rule = f"ip services {chain} ip daddr {CLUSTER_IPS[pod]} tcp dport {ports} dnat to {address}"
            done = cluster.enter(node, "nft", "add", "rule", *rule.split())
            assert done.returncode == 0, done.stderr


def ray_cluster() -> list[Json]:
    """ray-operator/controllers/ray/common/pod.go (setInitContainerEnvVars), service.go (BuildServiceForHeadPod).

    There doctor is an init container of each; the one of the workers comes before that which waits for the head.
    """
    environ = {"FQ_RAY_IP": "ray-head-svc.default.svc.cluster.local", "RAY_IP": "ray-head-svc"}
    names = {"ray-head-abcde": "head", "ray-gpu-worker-abcde": "worker", "ray-cpu-worker-fghij": "worker"}
    pods = [
        member(name, {"ray.io/cluster": "ray", "ray.io/node-type": kind}, in_gang("3"), environ)
        for name, kind in names.items()
    ]
    return [*pods, named_service("ray-head-svc", {"ray.io/cluster": "ray", "ray.io/node-type": "head"})]


JOBS = {
    "js": job_set(),
    "lw": leader_worker_set(),
    "pt": pytorch_job(),
    "mp": mpi_job(),
    "vc": volcano_job(),
    "ac": ascend_job(),
    "at": ascend_job_of_pytorch(),
    "ah": ascend_job_of_pytorch("ah", 1, of_nodes=True),
    "ph": pytorch_job("ph", of_nodes=True),
    "ray": ray_cluster(),
}
HOSTS = {
    "js": ["js-workers-0-0-abcde", "js-workers-0-1-abcde"],
    "lw": ["lw-0", "lw-0-1"],
    "pt": ["pt-master-0", "pt-worker-0"],
    "mp": ["mp-worker-0", "mp-worker-1"],
    "vc": ["vc-master-0", "vc-worker-0"],
    "ac": ["ac-worker-0", "ac-worker-1"],
    "at": ["at-master-0", "at-worker-0", "at-worker-1"],
    "ah": ["ah-master-0", "ah-worker-0"],
    "ph": ["ph-master-0", "ph-worker-0"],
    "ray": ["ray-cpu-worker-fghij", "ray-gpu-worker-abcde", "ray-head-abcde"],
}
WORDS = {
    "js": "jobset",
    "lw": "lws",
    "pt": "pytorchjob",
    "mp": "mpijob",
    "vc": "vcjob",
    "ac": "acjob",
    "at": "ascendjob",
    "ah": "acjob",
    "ph": "pytorchjob",
    "ray": "",
}
GANGS = ("js", "lw", "pt", "mp", "vc", "at", "ah", "ph", "ray")
SELECTED = ("-s", "kernel", "-s", "host-name-unresolved")
ALONE = ("js-workers-", "lw-0-1")
"""Pods whose owner is made after them, or is none of this version."""


def furnish(cluster: Cluster) -> None:
    give_key(cluster)
    for name, (version, kind) in OWNERS.items():
        owner = {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
        for item in JOBS[name]:
            owned = not item["metadata"]["name"].startswith(ALONE) or item["kind"] == "Job"
            item["metadata"]["ownerReferences"] = [owner] if owned else []
            cluster.apply(item)
    for pod in CLUSTER_IPS:
        serve(cluster, pod)


def run(cluster: Cluster, hosts: list[str]) -> bool:
    items = {item["metadata"]["name"]: item for item in cluster.get("pods")["items"]}
    return all(items.get(name, {}).get("status", {}).get("phase") == "Running" for name in hosts)


@pytest.mark.parametrize("name", JOBS)
def test_the_pods_of_the_job_are_its_hosts(cluster: Cluster, name: str) -> None:
    cluster.wait(lambda: run(cluster, HOSTS[name]), f"the pods of {name} do not run")
    word = WORDS[name]
    done = doctor(cluster, "check", "--job", f"{word}/{name}" if word else name, *SELECTED, "--json", "--no-history")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert sorted(report["hosts"]) == HOSTS[name], report["hosts"]
    beside = {"mp": "mp-launcher-", "ac": "ac-scheduler-0"}.get(name)
    noted = [text for text in report["notes"] if "starts the job, and is no host of it" in text]
    assert [text.startswith(str(beside)) for text in noted] == ([True] if beside else []), report["notes"]


@pytest.mark.parametrize("name", GANGS)
def test_the_pods_check_each_other_and_end_alike(cluster: Cluster, name: str) -> None:
    lines: dict[str, str] = {}

    def ended() -> bool:
        for host in HOSTS[name]:
            lines[host] = cluster.kubectl("logs", host).stdout
        return all("ended with" in text for text in lines.values())

    cluster.wait(ended, f"the gang {name} does not end: {lines}")
    assert all("ended with 0" in text for text in lines.values()), lines
    verdicts = {next(line for line in text.splitlines() if " nodes=" in line) for text in lines.values()}
    assert len(verdicts) == 1 and f" nodes={len(HOSTS[name])}/{len(HOSTS[name])} " in verdicts.pop(), lines
