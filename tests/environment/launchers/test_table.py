"""What launchers leave open: the default hostfile, and a world that needs more hosts."""

from __future__ import annotations

import pytest

from tests.environment.contexts import Environ, context, launcher_sample


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
        (launcher_sample("horovodrun"), False),
        (launcher_sample("deepspeed"), False),
    ],
)
def test_a_world_that_needs_more_hosts(environ: Environ, is_known: bool) -> None:
    assert (context(environ).hosts_unknown == "") is is_known
    assert context({**environ, "DOCTOR_HOSTS": "w[1-2]"}).hosts_unknown == ""
