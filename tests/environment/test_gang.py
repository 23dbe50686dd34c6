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
    found = place({}, "train-1", 3, KUBELET)
    assert found.index == 1
    assert found.hosts == ("train-0", "train-1", "train-2")
    assert found.names == ("train-0.train", "train-1.train", "train-2.train")


def test_an_indexed_job_has_its_completion_index() -> None:
    found = place({"JOB_COMPLETION_INDEX": "1"}, "train-1", 2, KUBELET)
    assert (found.index, found.names) == (1, ("train-0.train", "train-1.train"))
    assert found.source == "2 pods of a gang, by JOB_COMPLETION_INDEX"


def test_a_job_of_a_jobset() -> None:
    text = "10.0.0.9 js-workers-2-1.js.ns.svc.cluster.local js-workers-2-1\n"
    found = place({"JOB_COMPLETION_INDEX": "1"}, "js-workers-2-1", 2, text)
    assert found.names == ("js-workers-2-0.js", "js-workers-2-1.js")


def test_a_leader_worker_set() -> None:
    environ = {"LWS_LEADER_ADDRESS": "l-0.l.ns", "LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "2"}
    found = place(environ, "l-0-2")
    assert (found.index, found.names) == (2, ("l-0.l.ns", "l-0-1.l.ns", "l-0-2.l.ns"))


@pytest.mark.parametrize(("host_name", "rank"), [("t-master-0", 0), ("t-worker-0", 1), ("t-worker-1", 2)])
def test_a_pytorchjob(host_name: str, rank: int) -> None:
    environ = {"PET_NNODES": "3", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "8", "RANK": str(rank)}
    found = place({**environ, "WORLD_SIZE": "24", "MASTER_ADDR": "t-master-0", "MASTER_PORT": "23456"}, host_name)
    assert (found.index, found.hosts) == (rank, ("t-master-0", "t-worker-0", "t-worker-1"))


def test_volcano_lists_its_pods_whose_numbers_are_within_one_kind_of_task() -> None:
    environ = {
        "VC_TASK_INDEX": "0",
        "VK_TASK_INDEX": "0",
        "VC_MASTER_HOSTS": "t-master-0.t",
        "VC_MASTER_NUM": "1",
        "VC_WORKER_HOSTS": "t-worker-0.t,t-worker-1.t",
        "VC_WORKER_NUM": "2",
    }
    found = place(environ, "t-worker-0")
    assert (found.index, found.names) == (1, ("t-master-0.t", "t-worker-0.t", "t-worker-1.t"))


def test_a_tensorflow_cluster() -> None:
    cluster = {"chief": ["t-chief-0.ns.svc:2222"], "worker": ["t-worker-0.ns.svc:2222", "t-worker-1.ns.svc:2222"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
    found = place({"TF_CONFIG": text}, "t-worker-1")
    assert (found.index, len(found.hosts)) == (2, 3)


@pytest.mark.parametrize(
    ("environ", "host_name", "size", "text"),
    [
        ({}, "train-1", 0, "no variable has the number of pods"),
        ({}, "train-3", 3, "this pod has index 3"),
        ({}, "node", 2, "has no number at its end"),
        ({"JOB_COMPLETION_INDEX": "2"}, "train-1", 3, "JOB_COMPLETION_INDEX is 2"),
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
