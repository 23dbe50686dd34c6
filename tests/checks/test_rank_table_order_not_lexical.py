"""rank-table-order-not-lexical."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from doctor.engine.result import Status
from tests.checks.tables import a1, legacy, list_messages, run_check

NAME = "rank-table-order-not-lexical"


def test_ten_comes_before_two() -> None:
    value = a1(2, 2)
    for server, name in zip(value["server_list"], ("10.0.0.2", "10.0.0.10"), strict=True):
        server["server_id"] = name
    outcome = run_check(NAME, value)
    assert list_messages(outcome) == [
        "from rank 0 on, the hosts do not follow the order of their server_ids | observed 10.0.0.2 | expected 10.0.0.10"
    ]
    assert outcome.severity.value == "warning"
    assert run_check(NAME, value, MASTER_ADDR="n1").status is Status.SKIPPED
    assert run_check(NAME, value, MS_SCHED_HOST="n1").status is Status.FAILED


def test_the_printed_command_sorts_the_table_and_numbers_the_ranks(tmp_path: Path) -> None:
    value = a1(2, 2)
    for server, name in zip(value["server_list"], ("10.0.0.2", "10.0.0.10"), strict=True):
        server["server_id"] = name
    (finding,) = run_check(NAME, value).findings
    command = finding.values["sort"].strip("`")
    file = tmp_path / "table.json"
    file.write_text(json.dumps(value))
    subprocess.run(["bash", "-c", command.replace(command.split()[-1], str(file))], check=True)
    table = json.loads(file.read_text())
    assert run_check(NAME, table).status is Status.PASSED
    numbers = [device["rank_id"] for server in table["server_list"] for device in server["device"]]
    assert numbers == ["0", "1", "2", "3"]
    assert json.loads((tmp_path / "table.json.old").read_text()) == value


def test_healthy() -> None:
    assert run_check(NAME, a1(4)).status is Status.PASSED
    assert run_check(NAME, legacy()).status is Status.SKIPPED
