"""MindCluster: pods whose RANK is the host's number, for PyTorch and MindSpore, and launchers in them."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.environment.mounted_rank_table import MINDCLUSTER
from tests.environment.contexts import (
    INITIALIZING,
    TABLE,
    TABLE_HOSTS,
    Environ,
    Files,
    context,
    fields,
    scheduler_sample,
    summary,
)
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN

EXAMPLE = scheduler_sample("mindcluster")
MINDSPORE = {
    "MS_ROLE": "MS_WORKER",
    "MS_NODE_RANK": "1",
    "MS_WORKER_NUM": "16",
    "MS_LOCAL_WORKER": "8",
    "MS_SERVER_NUM": "0",
    "MS_SCHED_HOST": "10.96.4.7",
    "MS_SCHED_PORT": "2222",
}


@pytest.mark.parametrize(
    ("environ", "files", "expected_summary", "expected"),
    [
        (
            EXAMPLE,
            {MINDCLUSTER: TABLE},
            ("MindCluster job 6a8f, host 1 of 2", "mindcluster:6a8f", "local"),
            {
                "started": "hosts",
                "rank": None,
                "node_rank": 1,
                "hosts": TABLE_HOSTS,
                "rank_table_path": MINDCLUSTER,
                "conflicts": (),
            },
        ),
        (
            {**EXAMPLE, **TORCHRUN},
            {MINDCLUSTER: INITIALIZING},
            ("MindCluster job 6a8f, torchrun, rank 5 of 8", "mindcluster:6a8f/torchrun", "follower"),
            {"started": "ranks", "rank_table_pending": True, "hosts": None, "hosts_error": ""},
        ),
        (
            MINDSPORE,
            {},
            ("MindCluster, host 1 of 2", "mindcluster", "local"),
            {"started": "hosts", "node_rank": 1, "node_count": 2, "is_scheduler_process": False},
        ),
        (
            {**MINDSPORE, "MS_ROLE": "MS_SCHED", "MS_NODE_RANK": "0"},
            {},
            ("MindCluster, scheduler", "mindcluster", "local"),
            {"is_scheduler_process": True, "leads_fleet": False},
        ),
        (  # MindCluster, "Ascend Operator environment variables": with NPUs of its own it is the first of the hosts
            {**MINDSPORE, "MS_ROLE": "MS_SCHED", "MS_NODE_RANK": "0", "NPU_POD": "true"},
            {},
            ("MindCluster, host 0 of 2", "mindcluster", "cluster"),
            {"is_scheduler_process": False, "leads_fleet": True},
        ),
    ],
)
def test_a_context(
    environ: Environ, files: Files, expected_summary: tuple[str, str, str], expected: dict[str, Any]
) -> None:
    detected = context(environ, files)
    assert summary(detected) == expected_summary
    assert fields(detected, expected) == expected
