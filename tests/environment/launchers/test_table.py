"""What launchers leave open: the default hostfile, and a world that needs more hosts."""

from __future__ import annotations

import pytest

from doctor.environment.job_context import detect
from tests.environment.contexts import Environ, context, launcher_sample, reader


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
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "w1:1234"}, False),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "localhost:1234"}, True),
        ({"TPU_WORKER_HOSTNAMES": "t0,t1", "TPU_WORKER_ID": "0"}, False),
        ({"TPU_WORKER_HOSTNAMES": "t0", "TPU_WORKER_ID": "0"}, True),
        ({"MOAB_NODELIST": "w1&w2", "MOAB_JOBID": "12"}, False),
        ({"MOAB_NODECOUNT": "2", "MOAB_JOBID": "12"}, False),
        ({"KAFKA_HOSTS": "k0,k1", "KAFKA_CLIENT_ID": "7"}, True),  # servers of another program
        ({"CLUSTER_SIZE": "4", "CLUSTER_NODE_INDEX": "0"}, False),
        ({"PLX_NUM_WORKERS": "4", "PLX_TASK_INDEX": "0"}, False),
        ({"LOADER_NUM_WORKERS": "4", "LOADER_ID": "a", "RANK": "0", "MASTER_ADDR": "localhost"}, True),
        ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "prterun-w1-7@1"}, False),
        ({"PMIX_RANK": "0", "PMIX_SIZE": "1"}, True),
        (launcher_sample("horovodrun"), False),
        (launcher_sample("deepspeed"), False),
    ],
)
def test_a_world_that_needs_more_hosts(environ: Environ, is_known: bool) -> None:
    assert (context(environ).hosts_unknown == "") is is_known
    assert context({**environ, "DOCTOR_HOSTS": "w[1-2]"}).hosts_unknown == ""


@pytest.mark.parametrize(
    ("environ", "is_known"),
    [
        ({"RANK_SIZE": "16", "RANK_ID": "0", "DEVICE_ID": "0"}, False),
        ({"RANK_SIZE": "8", "RANK_ID": "0", "DEVICE_ID": "0"}, True),
        ({"RANK": "0", "WORLD_SIZE": "16", "MASTER_ADDR": "localhost"}, True),  # two ranks share a device
    ],
)
def test_ranks_of_a_script_that_names_no_leader_are_counted_against_the_devices(
    environ: Environ, is_known: bool
) -> None:
    assert (detect(environ, reader({}), devices=8).hosts_unknown == "") is is_known
    assert detect(environ, reader({})).hosts_unknown == ""
