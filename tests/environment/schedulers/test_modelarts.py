"""ModelArts: one process on every host, and a list of the hosts in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checks.tables import legacy
from tests.environment.contexts import Environ, Files, context, fields, scheduler_sample, summary

EXAMPLE = scheduler_sample("modelarts")


@pytest.mark.parametrize(
    ("environ", "files", "expected_summary", "expected"),
    [
        (
            {**EXAMPLE, "RANK_TABLE_FILE": "/user/config"},
            {"/user/config": None, "/user/config/jobstart_hccl.json": json.dumps(legacy())},
            ("ModelArts job ma-job-77, host 1 of 2", "modelarts:ma-job-77", "local"),
            {
                "started": "hosts",
                "hosts": ("job-worker-0.job", "job-worker-1.job"),
                "hosts_source": "VC_WORKER_HOSTS",
                "rank_table_path": "/user/config/jobstart_hccl.json",
            },
        ),
        (
            {**EXAMPLE, "MA_NUM_HOSTS": "1", "VC_WORKER_NUM": "1", "VC_WORKER_HOSTS": "job-worker-0.job"},
            {},
            ("ModelArts job ma-job-77", "modelarts:ma-job-77", "cluster"),
            {"started": "once", "node_count": 1},
        ),
        (
            {**EXAMPLE, "VC_TASK_INDEX": "0"},
            {},
            ("ModelArts job ma-job-77, host 0 of 2", "modelarts:ma-job-77", "cluster"),
            {"leads_fleet": True},
        ),
    ],
)
def test_a_context(
    environ: Environ, files: Files, expected_summary: tuple[str, str, str], expected: dict[str, Any]
) -> None:
    detected = context(environ, files)
    assert summary(detected) == expected_summary
    assert fields(detected, expected) == expected
