"""The place of a pod in its gang, by what each platform gives it: environments are by the platforms' documents."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from doctor.engine.errors import InputError
from doctor.environment.gang_place import GangPlace, PodDescription, find_place
from doctor.environment.job_context import detect

KUBELET = "127.0.0.1 localhost\n10.0.0.3\ttrain-1.train.team.svc.cluster.local\ttrain-1\n"


def place(environ: Mapping[str, str], host_name: str, size: int = 0, hosts_file: str = "") -> GangPlace:
    values = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": host_name, **environ}
    context = detect(values, lambda path: (_ for _ in ()).throw(FileNotFoundError(path)))
    pod = PodDescription(environ=values, host_name=host_name, hosts_file=hosts_file, size=size)
    return find_place(pod, context, context.hosts or (), context.hosts_source)


def test_a_stateful_set_has_its_ordinal_and_the_subdomain_of_the_kubelet() -> None:
    member = place({}, "train-1", 3, KUBELET)
    assert member.index == 1
    assert member.hosts == ("train-0", "train-1", "train-2")
    assert member.names == ("train-0.train", "train-1.train", "train-2.train")


def test_an_indexed_job_has_its_completion_index() -> None:
    member = place({"JOB_COMPLETION_INDEX": "1"}, "train-1", 2, KUBELET)
    assert (member.index, member.names) == (1, ("train-0.train", "train-1.train"))
    assert member.source == "2 pods of a gang, by JOB_COMPLETION_INDEX"


def test_a_job_of_a_jobset() -> None:
    text = "10.0.0.9 js-workers-2-1.js.ns.svc.cluster.local js-workers-2-1\n"
    member = place({"JOB_COMPLETION_INDEX": "1"}, "js-workers-2-1", 2, text)
    assert member.names == ("js-workers-2-0.js", "js-workers-2-1.js")


def test_a_leader_worker_set() -> None:
    environ = {"LWS_LEADER_ADDRESS": "l-0.l.ns", "LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "2"}
    member = place(environ, "l-0-2")
    assert (member.index, member.names) == (2, ("l-0.l.ns", "l-0-1.l.ns", "l-0-2.l.ns"))


@pytest.mark.parametrize(("host_name", "rank"), [("t-master-0", 0), ("t-worker-0", 1), ("t-worker-1", 2)])
def test_a_pytorchjob(host_name: str, rank: int) -> None:
    environ = {"PET_NNODES": "3", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "8", "RANK": str(rank)}
    member = place({**environ, "WORLD_SIZE": "24", "MASTER_ADDR": "t-master-0", "MASTER_PORT": "23456"}, host_name)
    assert (member.index, member.hosts) == (rank, ("t-master-0", "t-worker-0", "t-worker-1"))


@pytest.mark.parametrize("number", range(2))
def test_an_elastic_pytorchjob_has_no_master(number: int) -> None:
    """kubeflow/training-operator, examples/pytorch/elastic/imagenet: replicas of the type Worker alone."""
    environ = {"PET_NNODES": "2:4", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "t-worker-0:23456"}
    member = place(environ, f"t-worker-{number}")
    assert (member.index, member.leader, member.hosts) == (number, "t-worker-0", ("t-worker-0", "t-worker-1"))


PYTORCH = {"MINDX_TASK_ID": "6a8f", "MASTER_ADDR": "10.96.4.7", "MASTER_PORT": "2222", "WORLD_SIZE": "16"}
PYTORCH |= {"LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0,1,2,3,4,5,6,7", "REPLICA_TYPE": "Worker"}
MINDSPORE = {"MINDX_TASK_ID": "6a8f", "MS_SCHED_HOST": "10.96.4.7", "MS_SCHED_PORT": "2222", "MS_WORKER_NUM": "16"}
MINDSPORE |= {"MS_LOCAL_WORKER": "8", "MS_SERVER_NUM": "0", "MS_ROLE": "MS_WORKER", "NPU_POD": "true"}
SCHEDULER = {"MS_ROLE": "MS_SCHED", "MS_SCHED_HOST": "10.0.0.3"}


@pytest.mark.parametrize(
    ("environ", "host_name", "index"),
    [
        ({**PYTORCH, "RANK": "0"}, "t-master-0", 0),
        ({**PYTORCH, "RANK": "1"}, "t-worker-0", 1),
        ({**MINDSPORE, "MS_NODE_RANK": "1"}, "t-worker-0", 1),
        ({**MINDSPORE, **SCHEDULER, "MS_NODE_RANK": "0"}, "t-scheduler-0", 0),
        ({"MINDX_TASK_ID": "6a8f", "CM_CHIEF_IP": "10.96.4.7", "CM_RANK": "1"}, "t-worker-0", 1),
    ],
)
def test_an_ascendjob_whose_first_pod_has_npus(environ: Mapping[str, str], host_name: str, index: int) -> None:
    """Its service has the name of the first pod; the workers have no names for each other."""
    member = place(environ, host_name, 2 if "CM_RANK" in environ else 0)
    first = "scheduler" if "MS_ROLE" in environ else "chief" if "CM_RANK" in environ else "master"
    assert (member.index, member.leader, member.hosts) == (index, f"t-{first}-0", (f"t-{first}-0", "t-worker-0"))
    assert not any(member.names)


OF_NODE = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
"""What the kubelet writes for a pod with hostNetwork, before the node's own file."""


@pytest.mark.parametrize("host_name", ["node-7", "npu-worker-1", "npu"])
@pytest.mark.parametrize(
    ("environ", "index"),
    [
        ({**PYTORCH, "RANK": "0"}, 0),
        ({**PYTORCH, "RANK": "1"}, 1),
        ({**MINDSPORE, **SCHEDULER, "MS_NODE_RANK": "0"}, 0),
        ({**MINDSPORE, "MS_NODE_RANK": "1"}, 1),
    ],
)
def test_an_ascendjob_on_the_network_of_its_nodes(environ: Mapping[str, str], index: int, host_name: str) -> None:
    """Their names are those of nodes, and tell nothing of their places."""
    member = place({**environ, "HostNetwork": "true"}, host_name)
    assert (member.index, member.hosts[index], member.is_named) == (index, "pod-1" if index else host_name, False)
    assert member.leader == (SCHEDULER["MS_SCHED_HOST"] if environ.get("MS_ROLE") == "MS_SCHED" else "10.96.4.7")
    other = place({**MINDSPORE, "MS_NODE_RANK": "1", "HostNetwork": "true"}, "other")
    assert member.identity == other.identity


@pytest.mark.parametrize(("host_name", "rank"), [("node-7", 0), ("gpu-worker-0", 1), ("gpu", 2)])
def test_a_pytorchjob_on_the_network_of_its_nodes(host_name: str, rank: int) -> None:
    environ = {"PET_NNODES": "3", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "8", "RANK": str(rank)}
    environ |= {"WORLD_SIZE": "24", "MASTER_ADDR": "t-master-0", "MASTER_PORT": "23456"}
    member = place(environ, host_name, hosts_file=OF_NODE)
    assert (member.index, member.names) == (rank, ("t-master-0", "t-worker-0", "t-worker-1"))


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"JOB_COMPLETION_INDEX": "1"},
        {"FQ_RAY_IP": "r-head-svc.ns.svc.cluster.local"},
        {"MINDX_TASK_ID": "6a8f", "CM_CHIEF_IP": "10.96.4.7", "CM_RANK": "1"},
        {**MINDSPORE, "MS_NODE_RANK": "0"},  # its scheduler has no NPUs, and no service leads to the workers
    ],
)
def test_a_nodes_number_is_no_index(environ: Mapping[str, str]) -> None:
    with pytest.raises(InputError, match="the network and the name of its node, node-1; expected HOSTS"):
        place(environ, "node-1", 2, OF_NODE)


def test_a_pod_of_a_rank_table_is_the_one_with_its_address() -> None:
    member = place({"DOCTOR_HOSTS": "10.0.0.4,10.0.0.3"}, "train-1", hosts_file=KUBELET)
    assert (member.index, member.leader) == (1, "10.0.0.4")


@pytest.mark.parametrize(("host_name", "index"), [("r-head-x7k2p", 0), ("r-head", 0), ("r-head-worker-x7k2p", -1)])
def test_a_raycluster_has_a_name_for_its_head_alone(host_name: str, index: int) -> None:
    member = place({"FQ_RAY_IP": "r-head-svc.ns.svc.cluster.local"}, host_name, 3)
    assert (member.index, member.names[1:], member.is_named) == (index, ("", ""), False)
    assert member.leader == "r-head-svc.ns.svc.cluster.local"
    assert member.hosts == (member.leader if index else host_name, "pod-1", "pod-2")


def test_volcano_lists_its_pods_whose_numbers_are_within_one_kind_of_task() -> None:
    environ = {
        "VC_TASK_INDEX": "0",
        "VK_TASK_INDEX": "0",
        "VC_MASTER_HOSTS": "t-master-0.t",
        "VC_MASTER_NUM": "1",
        "VC_WORKER_HOSTS": "t-worker-0.t,t-worker-1.t",
        "VC_WORKER_NUM": "2",
    }
    member = place(environ, "t-worker-0")
    assert (member.index, member.names) == (1, ("t-master-0.t", "t-worker-0.t", "t-worker-1.t"))


def test_a_tensorflow_cluster() -> None:
    cluster = {"chief": ["t-chief-0.ns.svc:2222"], "worker": ["t-worker-0.ns.svc:2222", "t-worker-1.ns.svc:2222"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
    member = place({"TF_CONFIG": text}, "t-worker-1")
    assert (member.index, len(member.hosts)) == (2, 3)


@pytest.mark.parametrize(
    ("environ", "host_name", "size", "text"),
    [
        ({}, "train-1", 0, "no variable has the number of pods"),
        ({}, "train-3", 3, "this pod has index 3"),
        ({}, "node", 2, "has no number at its end"),
        ({"JOB_COMPLETION_INDEX": "2"}, "train-1", 3, "JOB_COMPLETION_INDEX is 2"),
        (
            {**MINDSPORE, **SCHEDULER, "NPU_POD": "false", "MS_NODE_RANK": "0"},
            "t-scheduler-0",
            0,
            "this pod is a sched",
        ),
        ({**MINDSPORE, "MS_NODE_RANK": "0"}, "t-worker-0", 0, "t-scheduler-0 has no NPU"),
        ({"FQ_RAY_IP": "r-head-svc.ns.svc.cluster.local"}, "r-head", 0, "no variable has the number of pods"),
        ({"DOCTOR_HOSTS": "a-0,b-0"}, "c-0", 0, "does not have this host, c-0, once"),
        ({"DOCTOR_HOSTS": "a-0,a-1"}, "a-1", 3, "names 2 hosts"),
        ({"LWS_LEADER_ADDRESS": "l-0.l", "LWS_GROUP_SIZE": "x", "LWS_WORKER_INDEX": "1"}, "l-0-1", 0, "LWS_GROUP_SIZE"),
        ({}, "train-\x1b[2J", 2, "has no number"),
    ],
)
def test_a_place_that_cannot_be_known_is_refused(
    environ: Mapping[str, str], host_name: str, size: int, text: str
) -> None:
    with pytest.raises(InputError, match=text) as refused:
        place(environ, host_name, size, KUBELET)
    assert "\x1b" not in str(refused.value)
