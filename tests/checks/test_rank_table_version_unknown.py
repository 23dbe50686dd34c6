"""rank-table-version-unknown."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import Json, a1, a3, lab, legacy, list_messages, run_check

NAME = "rank-table-version-unknown"


@pytest.mark.parametrize("version", ["1.1", "2.0", "", "one"])
def test_other_versions_are_named(version: str) -> None:
    outcome = run_check(NAME, {**a1(), "version": version})
    expected = "expected 1.0, 1.2, 2.0 with a rank_list, or a group_list without version"
    assert list_messages(outcome) == [f"/job/rank_table.json: version {version} | {expected}"]


def test_a_server_list_without_version() -> None:
    value = a1()
    del value["version"]
    (finding,) = list_messages(run_check(NAME, value))
    assert "it has no version and no group_list, but server_list" in finding


def test_no_other_check_guesses() -> None:
    outcome = run_check("rank-table-counts-wrong", {**a1(), "version": "2.0"})
    assert outcome.status is Status.UNKNOWN
    assert outcome.unknown[""].root_cause == NAME


@pytest.mark.parametrize("value", [a1(), a3(), legacy(), lab()])
def test_healthy(value: Json) -> None:
    assert run_check(NAME, value).status is Status.PASSED
