"""Kubeflow: pods whose RANK is the host's number, until torchrun has started in them."""

from __future__ import annotations

import pytest

from tests.environment.contexts import context, fields, rank_context, scheduler_sample, summary
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN

EXAMPLE = scheduler_sample("kubeflow")


def test_a_context() -> None:
    detected = context(EXAMPLE)
    assert summary(detected) == ("Kubeflow, host 1 of 2", "kubeflow", "local")
    assert fields(detected, {"started": "", "node_rank": 1, "rank": None}) == {
        "started": "hosts",
        "node_rank": 1,
        "rank": None,
    }


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "bert-worker-0", "PYTHONUNBUFFERED": "0"}
OLDER = {**POD, "MASTER_ADDR": "bert-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": "1"}
OLDER_MASTER = {**OLDER, "HOSTNAME": "bert-master-0", "MASTER_ADDR": "localhost", "RANK": "0"}
ELASTIC = {**POD, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "bert-worker-0:23456", "PET_NNODES": "2:4"}


@pytest.mark.parametrize(
    ("environ", "described", "scope"),
    [
        (OLDER, "Kubeflow, host 1 of 3", "local"),
        ({**OLDER, "HOSTNAME": "node7"}, "Kubeflow, host 1 of 3", "local"),
        (OLDER_MASTER, "Kubeflow, host 0 of 3", "cluster"),
        ({**OLDER_MASTER, "HOSTNAME": "node7"}, "a loop in a shell, rank 0 of 3", "cluster"),
        ({**OLDER, "MASTER_ADDR": "w1"}, "a loop in a shell, rank 1 of 3", "local"),
        ({**OLDER, "LOCAL_RANK": "1"}, "a loop in a shell, rank 1 of 3", "follower"),
        ({**OLDER, "KUBERNETES_SERVICE_HOST": ""}, "a loop in a shell, rank 1 of 3", "local"),
        (ELASTIC, "Kubeflow, host 0 of 2", "cluster"),
        ({**ELASTIC, "HOSTNAME": "bert-worker-1"}, "Kubeflow, host 1 of 2", "local"),
        ({**ELASTIC, "PET_NNODES": "$(N)"}, "this host alone", "cluster"),
    ],
)
def test_pods_without_a_number_of_their_own(environ: dict[str, str], described: str, scope: str) -> None:
    assert (summary(context(environ))[0], summary(context(environ))[2]) == (described, scope)


@pytest.mark.parametrize("environ", [OLDER, OLDER_MASTER, ELASTIC])
def test_the_other_pods_are_not_known(environ: dict[str, str]) -> None:
    assert "the names of the job's hosts are unknown" in context(environ).hosts_unknown
    assert context({**environ, "WORLD_SIZE": "1", "PET_NNODES": "1", "RANK": "0"}).hosts_unknown == ""


def test_in_torchrun_the_variables_are_its_ranks() -> None:
    assert summary(context({**EXAMPLE, **TORCHRUN})) == (
        "Kubeflow, torchrun, rank 5 of 8",
        "kubeflow/torchrun",
        "follower",
    )


def test_a_program_of_ranks_takes_a_pod_for_a_rank() -> None:
    """With one process a pod, no launcher runs in it."""
    assert rank_context(EXAMPLE).rank == 1
