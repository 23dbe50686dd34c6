"""rank-table-path-refused."""

from __future__ import annotations

import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.result import Status
from doctor.job import RankTableFile
from tests.checks.tables import a1, check, judged, said

NAME = "rank-table-path-refused"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/job/hccl.txt", "the name of /job/hccl.txt does not end in .json"),
        ("/job/hccl.JSON", "the name of /job/hccl.JSON does not end in .json"),
        ("/job.json.d/hccl.json", "/job.json.d/hccl.json contains .json before its end"),
    ],
)
def test_names(path: str, words: str) -> None:
    assert said(judged(NAME, a1(), path=path)) == [words]


def test_a_symbolic_link() -> None:
    file = RankTableFile("/job/hccl.json", "{}", link_target="/nfs/hccl.json")
    outcome = evaluate_check(check(NAME), (), FactCache({}), {RankTableFile: file})
    assert said(outcome) == ["/job/hccl.json is a symbolic link to /nfs/hccl.json"]


def test_healthy() -> None:
    assert judged(NAME, a1()).status is Status.PASSED
