"""rank-table-path-refused."""

from __future__ import annotations

import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.result import Status
from doctor.job import RankTableFile
from tests.checks.tables import a1, check, list_messages, run_check

NAME = "rank-table-path-refused"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/job/hccl.txt", "the name of /job/hccl.txt does not end in .json"),
        ("/job/hccl.JSON", "the name of /job/hccl.JSON does not end in .json"),
        ("/job.json.d/hccl.json", "/job.json.d/hccl.json contains .json before its end"),
    ],
)
def test_names(path: str, message: str) -> None:
    assert list_messages(run_check(NAME, a1(), path=path)) == [message]


def test_a_symbolic_link() -> None:
    file = RankTableFile("/job/hccl.json", "{}", link_target="/nfs/hccl.json")
    outcome = evaluate_check(check(NAME), (), FactCache({}), {RankTableFile: file})
    assert list_messages(outcome) == ["/job/hccl.json is a symbolic link to /nfs/hccl.json"]


def test_healthy() -> None:
    assert run_check(NAME, a1()).status is Status.PASSED
