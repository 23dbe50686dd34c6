"""Ranks that a script numbers itself, for PyTorch and for Ascend with a rank table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environment.contexts import (
    TABLE,
    TABLE_HOSTS,
    Environ,
    Files,
    context,
    fields,
    launcher_sample,
    rank_context,
    summary,
)

EXAMPLE = launcher_sample("environment")
ASCEND = {"RANK_ID": "9", "RANK_SIZE": "16", "DEVICE_ID": "1", "MASTER_ADDR": "w1", "MASTER_PORT": "29500"}
WITH_TABLE = {"RANK_TABLE_FILE": "/job/rank.json", "RANK_ID": "9", "RANK_SIZE": "16", "DEVICE_ID": "1"}
FILES = {"/job/rank.json": TABLE}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            EXAMPLE,
            {
                "launcher": "environment",
                "rank": 1,
                "world_size": 4,
                "local_rank": 1,
                "device": 1,
                "leader_port": 29500,
                "leads_ranks": False,
            },
        ),
        (
            ASCEND,
            {
                "launcher": "environment",
                "rank": 9,
                "world_size": 16,
                "local_rank": None,
                "device": 1,
                "leader_addresses": ("w1",),
            },
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2"},
            {"leader_addresses": ("127.0.0.1",), "leader_port": 0, "local_rank": None, "leads_ranks": True},
        ),
    ],
)
def test_a_rank(environ: Environ, expected: dict[str, Any]) -> None:
    detected = rank_context(environ)
    assert fields(detected, expected) == expected
    assert detected.problems == ()


@pytest.mark.parametrize(
    ("environ", "files", "expected_summary", "expected"),
    [
        (
            EXAMPLE,
            {},
            ("a loop in a shell, rank 1 of 4", "shell", "follower"),
            {"kind": "shell", "launcher": "environment", "local_rank": 1, "shares_host": True},
        ),
        (
            WITH_TABLE,
            FILES,
            ("a loop in a shell, rank 9 of 16", "rank-table", "follower"),
            {"kind": "rank-table", "local_rank": 1, "local_world_size": 8, "node_rank": 1, "hosts": TABLE_HOSTS},
        ),
        (
            {"RANK_TABLE_FILE": "/job/rank.json", "RANK_ID": "8", "DEVICE_ID": "4"},
            FILES,
            ("a loop in a shell, rank 8 of 16", "rank-table", "local"),
            {"world_size": 16, "local_rank": 0, "node_rank": 1, "conflicts": ()},
        ),
        (
            {"RANK_TABLE_FILE": "/job/rank.json", "DEVICE_ID": "1"},
            FILES,
            ("a loop in a shell, rank ? of ?", "rank-table", "cluster"),
            {"started": "ranks", "rank": None, "shares_host": True},
        ),
    ],
)
def test_a_context(
    environ: Environ, files: Files, expected_summary: tuple[str, str, str], expected: dict[str, Any]
) -> None:
    detected = context(environ, files)
    assert summary(detected) == expected_summary
    assert fields(detected, expected) == expected


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"RANK": "two"}, "RANK='two', expected a whole number from 0 to 3"),
        ({"RANK": "4"}, "RANK='4', expected a whole number from 0 to 3"),
        ({"RANK": "-1"}, "RANK='-1', expected a whole number from 0 to 3"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0', expected a whole number from 1"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is not set, expected a whole number from 1"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT='70000', expected a whole number from 1 to 65535"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK='x', expected a whole number from 0"),
    ],
)
def test_each_impossible_value_is_named(changes: dict[str, str], text: str) -> None:
    detected = rank_context({**EXAMPLE, **changes})
    assert [problem.text for problem in detected.problems if problem.variable in changes] == [text]


def test_a_rank_that_is_no_number_does_not_check_the_fleet_and_does_not_follow() -> None:
    detected = context({**EXAMPLE, "RANK": "one", "LOCAL_RANK": "x"})
    assert (detected.rank, detected.local_rank, detected.shares_host) == (None, None, True)


def test_the_launch_id_is_the_jobs() -> None:
    launch_id = rank_context(EXAMPLE).launch_id
    others = {"RANK": "0", "WORLD_SIZE": "5", "MASTER_ADDR": "elsewhere"}
    assert rank_context({**EXAMPLE, **others}).launch_id == launch_id
    assert rank_context({**EXAMPLE, "MASTER_PORT": "29501"}).launch_id != launch_id
