"""rank-table-not-completed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.result import Status
from tests.checks.tables import a1, list_messages, run_check

NAME = "rank-table-not-completed"


@pytest.mark.parametrize("status", ["initializing", "Completed"])
def test_not_completed(status: str) -> None:
    outcome = run_check(NAME, {**a1(), "status": status})
    assert list_messages(outcome) == [
        f"the status of /job/rank_table.json is not completed | observed {status} | expected completed"
    ]


def test_empty() -> None:
    assert run_check(NAME, {**a1(), "status": ""}).status is Status.FAILED


def test_missing_is_another_check_s_finding() -> None:
    value = a1()
    del value["status"]
    assert run_check(NAME, value).unknown[""].root_cause == "rank-table-field-missing"


def test_healthy() -> None:
    assert run_check(NAME, a1()).status is Status.PASSED


@pytest.mark.parametrize("status", ["initializing", "Completed", ""])
def test_the_printed_command_changes_the_status_alone(status: str, tmp_path: Path) -> None:
    page = next(check for check in load_checks() if check.name == NAME).section("What to do")
    command = " ".join(re.findall(r"`(sed [^`]+)`", page)[0].split())
    table = {**a1(), "status": status}
    for indent in (None, 2):
        path = tmp_path / "rank_table.json"
        path.write_text(json.dumps(table, indent=indent))
        subprocess.run(command.replace("{path}", str(path)), shell=True, check=True)
        assert json.loads(path.read_text()) == {**table, "status": "completed"}
