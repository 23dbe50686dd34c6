"""Launchers whose variables mean what their names say: the rank, and the default hostfile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environment.contexts import Environ, context, fields

EXAMPLES: dict[str, Environ] = {
    "deepspeed": {
        "RANK": "9",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "1",
        "LOCAL_SIZE": "8",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "2",
        "MASTER_ADDR": "w1",
        "MASTER_PORT": "29500",
    },
    "flux": {
        "FLUX_JOB_ID": "f3ETxsR9H",
        "FLUX_JOB_NNODES": "2",
        "FLUX_JOB_SIZE": "4",
        "FLUX_TASK_RANK": "3",
        "FLUX_TASK_LOCAL_ID": "1",
    },
    "horovodrun": {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_HOSTNAME": "w2",
    },
    "pals": {
        "PALS_APID": "a1b2",
        "PALS_RANKID": "5",
        "PALS_NODEID": "1",
        "PALS_LOCAL_RANKID": "1",
        "PALS_LOCAL_SIZE": "4",
        "PMI_RANK": "5",
        "PMI_SIZE": "8",
        "PMI_LOCAL_RANK": "1",
        "PMI_LOCAL_SIZE": "4",
    },
}


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        ("deepspeed", {"rank": 9, "world_size": 16, "local_rank": 1, "local_world_size": 8, "node_rank": 1}),
        ("flux", {"rank": 3, "world_size": 4, "local_rank": 1, "local_world_size": None, "job_id": "f3ETxsR9H"}),
        ("horovodrun", {"rank": 3, "world_size": 4, "local_rank": 1, "local_world_size": 2, "node_rank": 1}),
        ("pals", {"rank": 5, "world_size": 8, "local_rank": 1, "local_world_size": 4, "node_rank": 1}),
    ],
)
def test_a_rank(launcher: str, expected: dict[str, Any]) -> None:
    detected = context(EXAMPLES[launcher])
    assert fields(detected, {**expected, "launcher": ""}) == {**expected, "launcher": launcher}


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OMPI_MCA_orte_default_hostfile", "w1 slots=8\nw2 slots=8\n"),
        ("OMPI_MCA_prte_default_hostfile", "w1 slots=8\nw2 slots=8\n"),
        ("PRTE_MCA_prte_default_hostfile", "w1 slots=8\nw2 slots=8\n"),
        ("HYDRA_HOST_FILE", "w1:8\nw2:8\n"),
        ("I_MPI_HYDRA_HOST_FILE", "w1:8\nw2:8\n"),
        ("DLTS_HOSTFILE", "w1 slots=8\nw2 slots=8\n"),
    ],
)
def test_a_default_hostfile(variable: str, text: str) -> None:
    detected = context({variable: "/job/hosts"}, {"/job/hosts": text})
    assert (detected.hosts, detected.slots, detected.tag) == (("w1", "w2"), {"w1": 8, "w2": 8}, "hostfile")
    assert detected.hosts_source == f"{variable}=/job/hosts"
    assert detected.hosts_unknown == ""
    absent = context({variable: "/job/hosts"})
    assert absent.hosts is None
    assert f"{variable}=/job/hosts: No such file" in absent.hosts_unknown


@pytest.mark.parametrize(
    ("environ", "is_known"),
    [
        ({"RANK": "0", "WORLD_SIZE": "4"}, True),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}, True),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "w1"}, False),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "w1", "LOCAL_WORLD_SIZE": "4"}, True),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "w1", "LOCAL_WORLD_SIZE": "2"}, False),
        # A PyTorchJob's first pod, whose operator counts pods and calls the master localhost.
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ({"WORLD_SIZE": "16", "MASTER_ADDR": "w1"}, False),
        ({"WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1"}, True),
        ({"WORLD_SIZE": "8"}, True),
        ({"NNODES": "2", "NODE_RANK": "0"}, False),
        ({"NNODES": "1"}, True),
        (EXAMPLES["horovodrun"], False),
        (EXAMPLES["deepspeed"], False),
    ],
)
def test_a_world_that_needs_more_hosts(environ: Environ, is_known: bool) -> None:
    assert (context(environ).hosts_unknown == "") is is_known
    assert context({**environ, "DOCTOR_HOSTS": "w[1-2]"}).hosts_unknown == ""
