"""torchrun: which rank its variables say, alone and around a single process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environment.contexts import Environ, context, fields, launcher_sample, rank_context, summary

EXAMPLE = launcher_sample("torchrun")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            EXAMPLE,
            {
                "launcher": "torchrun",
                "rank": 5,
                "world_size": 8,
                "local_rank": 1,
                "local_world_size": 4,
                "node_rank": 1,
                "device": 1,
                "leader_addresses": ("w1",),
                "leader_port": 29400,
                "leader_port_in_use": True,
                "launch_id": "torchrun job7 0 29400",
                "launchers": ("torchrun",),
                "problems": (),
            },
        ),
        (
            {**EXAMPLE, "TORCHELASTIC_USE_AGENT_STORE": "False"},
            {"launcher": "torchrun", "leader_port_in_use": False, "problems": ()},
        ),
    ],
)
def test_a_rank(environ: Environ, expected: dict[str, Any]) -> None:
    assert fields(rank_context(environ), expected) == expected


def test_without_torchruns_own_variables_it_is_not_recognised() -> None:
    assert context({"RANK": "", "TORCHELASTIC_RUN_ID": ""}).launcher == ""
    assert context({"RANK": "5", "TORCHELASTIC_RUN_ID": "job7"}).launcher == "torchrun"


@pytest.mark.parametrize(
    ("environ", "expected_summary", "expected"),
    [
        (
            EXAMPLE,
            ("torchrun, rank 5 of 8", "torchrun", "follower"),
            {"kind": "torchrun", "node_rank": 1, "node_count": None},
        ),
        (
            {**EXAMPLE, "RANK": "4", "LOCAL_RANK": "0"},
            ("torchrun, rank 4 of 8", "torchrun", "local"),
            {"local_rank": 0, "leads_fleet": False},
        ),
        (
            {**EXAMPLE, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            ("this host alone", "no-job", "cluster"),
            {"launcher": "", "rank": None, "started": "once"},
        ),
    ],
)
def test_a_context(environ: Environ, expected_summary: tuple[str, str, str], expected: dict[str, Any]) -> None:
    detected = context(environ)
    assert summary(detected) == expected_summary
    assert fields(detected, expected) == expected


def test_a_rank_alone_is_still_a_rank_for_a_program_of_ranks() -> None:
    alone = rank_context({**EXAMPLE, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    assert (alone.launcher, alone.rank, alone.world_size, alone.leads_ranks) == ("torchrun", 0, 1, True)


def test_the_launch_id_is_the_jobs() -> None:
    others = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "MASTER_ADDR": "elsewhere"}
    launch_id = rank_context(EXAMPLE).launch_id
    assert rank_context({**EXAMPLE, **others}).launch_id == launch_id
    for changed in ({"TORCHELASTIC_RUN_ID": "job8"}, {"TORCHELASTIC_RESTART_COUNT": "1"}):
        assert rank_context({**EXAMPLE, **changed}).launch_id != launch_id
