"""Kubeflow: pods whose RANK is the host's number, until torchrun has started in them."""

from __future__ import annotations

from tests.environment.contexts import context, fields, rank_context, summary
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN

EXAMPLE = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "8", "RANK": "1", "WORLD_SIZE": "2"}


def test_a_context() -> None:
    detected = context(EXAMPLE)
    assert summary(detected) == ("Kubeflow, host 1 of 2", "kubeflow", "local")
    assert fields(detected, {"started": "", "node_rank": 1, "rank": None}) == {
        "started": "hosts",
        "node_rank": 1,
        "rank": None,
    }


def test_in_torchrun_the_variables_are_its_ranks() -> None:
    assert summary(context({**EXAMPLE, **TORCHRUN})) == (
        "Kubeflow, torchrun, rank 5 of 8",
        "kubeflow/torchrun",
        "follower",
    )


def test_a_program_of_ranks_takes_a_pod_for_a_rank() -> None:
    """With one process a pod, no launcher runs in it."""
    assert rank_context(EXAMPLE).rank == 1
