"""rank-numbers-wrong."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.result import Outcome, Status
from doctor.job import LaunchConfig
from tests.checks.launch_lines import run_check


def ranks(**by_host: dict[str, str]) -> Outcome:
    return run_check("rank-numbers-wrong", LaunchConfig.from_environment({}, by_host=by_host))


RANKS: list[tuple[list[dict[str, str]], list[tuple[str, Any, tuple[str, ...]]]]] = [
    ([{"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "1", "WORLD_SIZE": "2"}], []),
    ([{"RANK": "1"}, {"RANK": "1"}], [("RANK", 1, ("n0", "n1"))]),
    ([{"NODE_RANK": "0"}, {"NODE_RANK": "0"}, {"NODE_RANK": "2"}], [("NODE_RANK", 0, ("n0", "n1"))]),
    ([{"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}], [("RANK", 2, ("n1",))]),
    (
        [{"RANK": str(host), "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4"} for host in range(2)],
        [("WORLD_SIZE", 16, ())],
    ),
    ([{"RANK": "x"}, {"RANK": "1"}], []),
]


@pytest.mark.parametrize(("environs", "findings"), RANKS)
def test_numbers_of_ranks(environs: list[dict[str, str]], findings: list[tuple[str, Any, tuple[str, ...]]]) -> None:
    outcome = ranks(**{f"n{number}": environ for number, environ in enumerate(environs)})
    assert [
        (finding.values["variable"], finding.values["observed"], finding.hosts) for finding in outcome.findings
    ] == findings


def test_the_remedy_is_that_of_the_fault() -> None:
    def remedy(*environs: dict[str, str]) -> str:
        return str(ranks(**{f"n{n}": environ for n, environ in enumerate(environs)}).findings[0].values["remedy"])

    assert "`export NODE_RANK=$SLURM_NODEID`" in remedy({"NODE_RANK": "0"}, {"NODE_RANK": "0"})
    assert "`export WORLD_SIZE=8`" in remedy(*({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4"} for _ in range(2)))


def test_without_each_hosts_environment_ranks_are_not_judged() -> None:
    assert run_check("rank-numbers-wrong", LaunchConfig.from_environment({})).status is Status.SKIPPED
